"""Snippets of the five documents, with the test of each or the reason of a missing test."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from typing import NamedTuple

import pytest

from tests.paths import ROOT, SHARED

SEEDS = SHARED / "seeds"


class Snippets(NamedTuple):
    """The snippets of a document, counted from 1."""

    module: str
    same: dict[str, list[int]]
    """Numbers of the snippets with the output of the document, by test."""
    differs: dict[tuple[str, str], list[int]]
    """Numbers of the snippets with another output, by test and reason."""
    prose: dict[str, list[int]]
    """Numbers of the snippets without code, by content."""

    @property
    def numbers(self) -> list[int]:
        return sorted(chain(*self.same.values(), *self.differs.values(), *self.prose.values()))


TABLE: dict[str, Snippets] = {
    "aisbench_prompt_template": Snippets(
        "evaluation/test_aisbench_document.py",
        same={
            "test_the_first_prompt_of_the_document": [1, 2],
            "test_a_text_with_columns_hides_the_answer": [3, 4],
            "test_dialogues_become_the_lists_that_are_printed": [6, 7, 8, 9, 10, 11, 12],
            "test_the_last_prompt_of_the_model_is_not_sent": [13],
            "test_the_requests_of_turns_are_equal_to_the_document": [14, 15, 16, 17, 18],
            "test_media_become_parts_in_the_order_of_the_content": [19, 20],
            "test_the_prompt_shows_examples_as_the_pseudo_code_does": [24, 25, 26],
            "test_examples_of_a_dialogue_are_turns": [27, 28],
            "test_one_template_can_render_the_examples_and_the_prompt": [29, 30],
            "test_a_template_of_examples_renders_the_prompt_without_a_token": [31],
        },
        differs={
            ("test_a_text_with_columns_hides_the_answer", "the page shows no space at a line's end"): [5],
            (
                "test_media_become_parts_in_the_order_of_the_content",
                "printed without the file:// of its template, and under prompt instead of prompt_mm",
            ): [21],
            (
                "test_media_become_parts_in_the_order_of_the_content",
                "printed as video/mp4, but its template has video/jpeg, and under prompt instead of prompt_mm",
            ): [22],
            (
                "test_the_prompt_shows_examples_as_the_pseudo_code_does",
                "the pseudo code fills the columns of the asked row in the text of examples, too",
            ): [23],
        },
        prose={},
    ),
    "opencompass_meta_prompt": Snippets(
        "evaluation/test_opencompass_document.py",
        same={
            "test_a_meta_template_alone": [1],
            "test_the_template_of_a_dataset_within_the_meta_template": [4],
            "test_labels_can_be_dialogues": [6],
        },
        differs={
            ("test_a_meta_template_alone", "printed with spaces and line ends that no field has"): [2, 3],
            (
                "test_the_template_of_a_dataset_within_the_meta_template",
                "printed with another topic than the snippet's, and with spaces and line ends that no field has",
            ): [5],
        },
        prose={},
    ),
    "lazyllm_prompter": Snippets(
        "prompters/test_prompters_document.py",
        same={
            "test_a_prompter_with_a_hosted_and_with_a_local_model": [2, 14, 15],
            "test_the_calls_of_the_document_have_its_output": [9, 13],
            "test_tools_can_have_each_field_of_the_document_and_can_be_incomplete": [10],
        },
        differs={
            (
                "test_quick_start_with_a_user_instruction",
                "printed in the system text; LazyLLM and its code have it in the message of the user",
            ): [3],
            (
                "test_an_instruction_of_one_text_is_at_the_place_of_the_document",
                "printed with a space before the heading",
            ): [6],
            (
                "test_an_instruction_of_one_text_is_at_the_place_of_the_document",
                "printed with a space before the heading and a line end fewer before the reply",
            ): [7],
            (
                "test_the_calls_of_the_document_have_its_output",
                "printed with a space before the heading and a line end fewer before the reply",
            ): [8],
            ("test_the_calls_of_the_document_have_its_output", "Alpaca as in 8; the prompt for a chat is equal"): [
                11,
                12,
            ],
        },
        prose={
            "the request in words, for which the next snippet makes a prompter": [1],
            "the instruction template of the original; its words are in the prompt of snippet 7": [4],
            "the same with the slots filled": [5],
        },
    ),
    "lmdeploy_chat_template": Snippets(
        "chat_templates/test_role_markers_document.py",
        same={
            "test_the_prompt_is_equal_to_the_prompt_in_the_document": [1],
            "test_the_registry_of_the_document": [3, 4, 5],
            "test_the_defaults_are_equal_to_the_document": [6],
            "test_a_derived_template_decorates_a_prompt": [7, 8, 9],
            "test_a_derived_template_renders_through_its_messages2prompt": [10],
            "test_the_code_of_the_document_runs_as_written": [11, 13, 14, 16, 17],
            "test_the_rounds_of_the_document": [12],
        },
        differs={
            ("test_the_registry_of_the_document", "the registry is there and not made by the user"): [2],
            (
                "test_the_code_of_the_document_runs_as_written",
                "it reads self.eoa, which its class never sets: an error that names it",
            ): [15],
            (
                "test_the_code_of_the_document_runs_as_written",
                "a template whose methods return nothing is an error when it renders",
            ): [18],
        },
        prose={},
    ),
    "tfrobot_prompt_base": Snippets(
        "tree/test_tfrobot_document.py",
        same={
            "test_a_schema_that_forbids_other_fields_is_refused_at_construction": [1],
            "test_both_formats_are_derived_from_one_render": [2],
            "test_a_multimodal_text_is_returned_with_its_media": [3],
            "test_a_wrap_joins_its_children_by_newlines_and_inserts_them_into_its_template": [4],
        },
        differs={
            (
                "test_a_wrap_keeps_the_media_of_its_children",
                "the listing renders the children as text and loses their media",
            ): [5]
        },
        prose={},
    ),
}
"""Snippets are the fenced blocks of a document; its source listings if it has no fenced blocks."""

_FENCE = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)


@cache
def names_in(module: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests/prompts" / module).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("document", TABLE)
def test_each_row_names_an_existing_test_and_the_reason_of_a_difference(document: str) -> None:
    row = TABLE[document]
    tests = {*row.same, *(test for test, _ in row.differs)}
    reasons = [*(reason for _, reason in row.differs), *row.prose]
    assert [test for test in tests if not test.startswith("test_") or test not in names_in(row.module)] == []
    assert all(reasons)


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not next to this checkout")
@pytest.mark.parametrize("document", TABLE)
def test_no_snippet_is_missing(document: str) -> None:
    text = (SEEDS / f"{document}.md").read_text("utf-8")
    count = len(_FENCE.findall(text)) or len(re.findall(r"^Source code in ", text, re.MULTILINE))
    assert TABLE[document].numbers == [*range(1, count + 1)]


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not next to this checkout")
def test_no_document_is_missing() -> None:
    assert sorted(path.stem for path in SEEDS.glob("*.md")) == sorted(TABLE)
