"""The table of prompt classes: every public class, and the pages that list its kinds."""

from __future__ import annotations

import importlib

from agentkit.prompts import BasePrompt, PromptFolder, WrapPrompt
from agentkit_prompts.prompt_files.prompt_kinds import PROMPT_KINDS
from agentkit_prompts.prompters.slots import SlotPrompt

_NO_KINDS = {BasePrompt, WrapPrompt, SlotPrompt}
"""Classes that contain other prompts, or are written by a prompter: a file cannot describe them."""


def test_every_public_prompt_class_is_a_kind_and_is_drawn_by_the_laws() -> None:
    module = importlib.import_module("agentkit.prompts")
    public = [getattr(module, name) for name in module.__all__]
    classes = {item for item in public if isinstance(item, type) and issubclass(item, BasePrompt)}
    missing = sorted(item.__name__ for item in classes - _NO_KINDS - {*PROMPT_KINDS.values()})
    assert missing == [], "add a row to PROMPT_KINDS in prompts/agentkit_prompts/prompt_files/prompt_kinds.py"


def test_the_docstring_of_a_folder_lists_every_kind() -> None:
    docstring = PromptFolder.__doc__ or ""
    missing = [kind for kind in PROMPT_KINDS if f"`{kind}`" not in docstring]
    assert missing == [], "add the kind to the docstring in prompts/agentkit_prompts/prompt_files/prompt_folder.py"
