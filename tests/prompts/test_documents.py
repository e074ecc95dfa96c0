"""Every snippet of the five documents is in a test, or the table says why there is nothing to test."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.paths import ROOT, SHARED

SEEDS = SHARED / "seeds"
AIS = "evaluation/test_aisbench_document.py"
OPEN = "evaluation/test_opencompass_document.py"
LAZY = "prompters/test_prompters_document.py"
DEPLOY = "chat_templates/test_role_markers_document.py"
TF = "tree/test_tfrobot_document.py"

SAME, DIFFERS, PROSE = "same", "differs", "prose"
"""Prints what the document prints; something else, with the reason; nothing that runs, with what it is."""

Snippet = tuple[int, str, str, str]
"""Number in the document, counted from 1; status; module and test; reason."""

TABLE: dict[str, list[Snippet]] = {
    "aisbench_prompt_template": [
        (1, SAME, f"{AIS}::test_the_prompt_that_the_document_opens_with", ""),
        (2, SAME, f"{AIS}::test_the_prompt_that_the_document_opens_with", ""),
        (3, SAME, f"{AIS}::test_a_text_with_columns_hides_the_answer", ""),
        (4, SAME, f"{AIS}::test_a_text_with_columns_hides_the_answer", ""),
        (5, DIFFERS, f"{AIS}::test_a_text_with_columns_hides_the_answer", "the page shows no space at a line's end"),
        (6, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (7, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (8, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (9, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (10, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (11, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (12, SAME, f"{AIS}::test_dialogues_become_the_lists_that_are_printed", ""),
        (13, SAME, f"{AIS}::test_the_last_prompt_of_the_model_is_not_sent", ""),
        (14, SAME, f"{AIS}::test_turns_are_asked_as_printed", ""),
        (15, SAME, f"{AIS}::test_turns_are_asked_as_printed", ""),
        (16, SAME, f"{AIS}::test_turns_are_asked_as_printed", ""),
        (17, SAME, f"{AIS}::test_turns_are_asked_as_printed", ""),
        (18, SAME, f"{AIS}::test_turns_are_asked_as_printed", ""),
        (19, SAME, f"{AIS}::test_media_become_parts_in_the_order_of_the_content", ""),
        (20, SAME, f"{AIS}::test_media_become_parts_in_the_order_of_the_content", ""),
        (
            21,
            DIFFERS,
            f"{AIS}::test_media_become_parts_in_the_order_of_the_content",
            "printed without the file:// of its template, and under prompt instead of prompt_mm",
        ),
        (
            22,
            DIFFERS,
            f"{AIS}::test_media_become_parts_in_the_order_of_the_content",
            "printed as video/mp4 where its template has video/jpeg, and under prompt instead of prompt_mm",
        ),
        (
            23,
            DIFFERS,
            f"{AIS}::test_examples_are_shown_as_the_pseudo_code_shows_them",
            "the pseudo code fills the columns of the asked row in the text of examples, too",
        ),
        (24, SAME, f"{AIS}::test_examples_are_shown_as_the_pseudo_code_shows_them", ""),
        (25, SAME, f"{AIS}::test_examples_are_shown_as_the_pseudo_code_shows_them", ""),
        (26, SAME, f"{AIS}::test_examples_are_shown_as_the_pseudo_code_shows_them", ""),
        (27, SAME, f"{AIS}::test_examples_of_a_dialogue_are_turns", ""),
        (28, SAME, f"{AIS}::test_examples_of_a_dialogue_are_turns", ""),
        (29, SAME, f"{AIS}::test_one_template_may_be_both", ""),
        (30, SAME, f"{AIS}::test_one_template_may_be_both", ""),
        (31, SAME, f"{AIS}::test_without_examples_a_template_for_examples_asks_and_needs_no_token", ""),
    ],
    "opencompass_meta_prompt": [
        (1, SAME, f"{OPEN}::test_a_meta_template_alone", ""),
        (2, DIFFERS, f"{OPEN}::test_a_meta_template_alone", "printed with spaces and line ends that no field has"),
        (3, DIFFERS, f"{OPEN}::test_a_meta_template_alone", "printed with spaces and line ends that no field has"),
        (4, SAME, f"{OPEN}::test_a_dataset_s_template_within_the_meta_template", ""),
        (
            5,
            DIFFERS,
            f"{OPEN}::test_a_dataset_s_template_within_the_meta_template",
            "printed with another topic than the snippet's, and with spaces and line ends that no field has",
        ),
        (6, SAME, f"{OPEN}::test_labels_may_be_dialogues", ""),
    ],
    "lazyllm_prompter": [
        (1, PROSE, "", "the wish in words that the next snippet makes a prompter of"),
        (2, SAME, f"{LAZY}::test_a_prompter_with_a_hosted_and_with_a_local_model", ""),
        (
            3,
            DIFFERS,
            f"{LAZY}::test_quick_start_with_a_user_instruction",
            "printed in the system text; the system and the code it is from have it in the user's part",
        ),
        (4, PROSE, "", "the instruction template of the original; its words are in the prompt of snippet 7"),
        (5, PROSE, "", "the same with the slots filled"),
        (
            6,
            DIFFERS,
            f"{LAZY}::test_an_instruction_that_is_one_text_stands_where_the_document_prints_it",
            "printed with a space before the heading",
        ),
        (
            7,
            DIFFERS,
            f"{LAZY}::test_an_instruction_that_is_one_text_stands_where_the_document_prints_it",
            "printed with a space before the heading and a line end fewer before the reply",
        ),
        (
            8,
            DIFFERS,
            f"{LAZY}::test_what_the_document_prints_for_its_own_calls",
            "printed with a space before the heading and a line end fewer before the reply",
        ),
        (9, SAME, f"{LAZY}::test_what_the_document_prints_for_its_own_calls", ""),
        (10, SAME, f"{LAZY}::test_tools_may_have_every_field_of_the_document_and_be_incomplete", ""),
        (
            11,
            DIFFERS,
            f"{LAZY}::test_what_the_document_prints_for_its_own_calls",
            "Alpaca as in 8; the prompt for a chat is the same",
        ),
        (
            12,
            DIFFERS,
            f"{LAZY}::test_what_the_document_prints_for_its_own_calls",
            "Alpaca as in 8; the prompt for a chat is the same",
        ),
        (13, SAME, f"{LAZY}::test_what_the_document_prints_for_its_own_calls", ""),
        (14, SAME, f"{LAZY}::test_a_prompter_with_a_hosted_and_with_a_local_model", ""),
        (15, SAME, f"{LAZY}::test_a_prompter_with_a_hosted_and_with_a_local_model", ""),
    ],
    "lmdeploy_chat_template": [
        (1, SAME, f"{DEPLOY}::test_the_prompt_that_the_document_prints_is_the_one_that_is_sent", ""),
        (2, DIFFERS, f"{DEPLOY}::test_the_registry_of_the_document", "the registry is there and not made by the user"),
        (3, SAME, f"{DEPLOY}::test_the_registry_of_the_document", ""),
        (4, SAME, f"{DEPLOY}::test_the_registry_of_the_document", ""),
        (5, SAME, f"{DEPLOY}::test_the_registry_of_the_document", ""),
        (6, SAME, f"{DEPLOY}::test_the_defaults_are_those_of_the_document", ""),
        (7, SAME, f"{DEPLOY}::test_a_derived_template_decorates_a_prompt", ""),
        (8, SAME, f"{DEPLOY}::test_a_derived_template_decorates_a_prompt", ""),
        (9, SAME, f"{DEPLOY}::test_a_derived_template_decorates_a_prompt", ""),
        (10, SAME, f"{DEPLOY}::test_a_derived_template_renders_through_its_messages2prompt", ""),
        (11, SAME, f"{DEPLOY}::test_the_code_of_the_document_runs_as_written", ""),
        (12, SAME, f"{DEPLOY}::test_the_rounds_of_the_document", ""),
        (13, SAME, f"{DEPLOY}::test_the_code_of_the_document_runs_as_written", ""),
        (14, SAME, f"{DEPLOY}::test_the_code_of_the_document_runs_as_written", ""),
        (
            15,
            DIFFERS,
            f"{DEPLOY}::test_the_code_of_the_document_runs_as_written",
            "it reads self.eoa, which its class never sets: an error that names it",
        ),
        (16, SAME, f"{DEPLOY}::test_the_code_of_the_document_runs_as_written", ""),
        (17, SAME, f"{DEPLOY}::test_the_code_of_the_document_runs_as_written", ""),
        (
            18,
            DIFFERS,
            f"{DEPLOY}::test_the_code_of_the_document_runs_as_written",
            "a template whose methods return nothing is an error when it renders",
        ),
    ],
    "tfrobot_prompt_base": [
        (1, SAME, f"{TF}::test_a_schema_that_forbids_other_fields_is_refused_at_construction", ""),
        (2, SAME, f"{TF}::test_both_formats_are_abstract_and_one_render_serves_both", ""),
        (3, SAME, f"{TF}::test_a_multimodal_text_has_its_media_beside_it", ""),
        (4, SAME, f"{TF}::test_a_wrap_joins_its_children_by_newlines_and_puts_them_into_its_template", ""),
        (
            5,
            DIFFERS,
            f"{TF}::test_a_wrap_keeps_the_media_of_its_children",
            "the listing renders the children as text and loses their media",
        ),
    ],
}
"""Snippets are the fenced blocks of a document; where it has none, its source listings."""

_FENCE = re.compile(r"^( *)(`{3,})[^\n]*\n.*?^\1\2 *$", re.MULTILINE | re.DOTALL)


@cache
def names_in(module: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests/prompts" / module).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("document", TABLE)
def test_every_row_names_a_test_that_is_there_and_why_it_differs(document: str) -> None:
    wrong = []
    for number, status, test, reason in TABLE[document]:
        module, _, name = test.partition("::")
        if status not in (SAME, DIFFERS, PROSE) or (status == SAME) == bool(reason):
            wrong.append(f"{number}: {status} with the reason {reason!r}")
        if (status == PROSE) == bool(test) or (test and (not name.startswith("test_") or name not in names_in(module))):
            wrong.append(f"{number}: {test or 'no test'}")
    assert wrong == []


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not beside this checkout")
@pytest.mark.parametrize("document", TABLE)
def test_no_snippet_is_missing(document: str) -> None:
    text = (SEEDS / f"{document}.md").read_text("utf-8")
    count = len(_FENCE.findall(text)) or len(re.findall(r"^Source code in ", text, re.MULTILINE))
    assert [number for number, *_ in TABLE[document]] == [*range(1, count + 1)]


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the documents are not beside this checkout")
def test_no_document_is_missing() -> None:
    assert sorted(path.stem for path in SEEDS.glob("*.md")) == sorted(TABLE)
