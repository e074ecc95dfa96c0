"""The table of prompt classes: every public class, and the pages that list its kinds."""

from __future__ import annotations

import importlib

from agentkit.prompts import BasePrompt, PromptContext, PromptError, PromptFolder, TextPrompt, WrapPrompt
from agentkit_prompts.prompt_files.prompt_kinds import PROMPT_KINDS
from agentkit_prompts.prompters.slots import SlotPrompt
from tests.paths import ROOT

_NO_KINDS = {BasePrompt, WrapPrompt, SlotPrompt}
"""Classes that contain other prompts or belong to a prompter: a file cannot describe them."""


def test_each_public_prompt_class_is_a_kind_and_is_drawn_by_the_laws() -> None:
    module = importlib.import_module("agentkit.prompts")
    public = [getattr(module, name) for name in module.__all__]
    classes = {item for item in public if isinstance(item, type) and issubclass(item, BasePrompt)}
    missing = sorted(item.__name__ for item in classes - _NO_KINDS - {*PROMPT_KINDS.values()})
    assert missing == [], "add a row to PROMPT_KINDS in prompts/agentkit_prompts/prompt_files/prompt_kinds.py"


def test_a_folder_and_the_page_of_templates_list_each_kind() -> None:
    texts = {
        "the docstring in prompts/agentkit_prompts/prompt_files/prompt_folder.py": PromptFolder.__doc__ or "",
        "the table in docs/templates.md": (ROOT / "docs/templates.md").read_text("utf-8"),
    }
    missing = [(kind, place) for kind in PROMPT_KINDS for place, text in texts.items() if f"`{kind}`" not in text]
    assert missing == [], "add the kind there"


def test_a_kind_without_its_data_is_empty() -> None:
    texts = {}
    for kind, kind_class in PROMPT_KINDS.items():
        if kind_class is not TextPrompt:
            try:
                texts[kind] = kind_class().format_2_str(PromptContext(""))
            except PromptError as error:
                texts[kind] = str(error)
    wrong = {kind: text for kind, text in texts.items() if text}
    assert wrong == {}, "the default template of a kind renders every context: it cannot require kwargs"
