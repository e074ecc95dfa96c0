"""Ambiguous templates: an error or a warning with the key, or the behaviour of OpenCompass; see the docs."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    InContext,
    InContextWarning,
    MetaTemplate,
    PromptTemplate,
)
from tests.prompts.evaluation.refusals import places, warned

ROUND: list[Any] = [{"role": "HUMAN", "begin": "<h>", "end": "</h>"}, {"role": "BOT", "begin": "<b>", "generate": True}]
ROW = {"question": "q", "answer": "a"}


@pytest.mark.parametrize("given", ["Q: {question}", ["Q: {question}"], ["Q: {question}", {"role": "BOT"}]])
def test_text_in_a_round_is_a_warning_and_precedes_the_turns(given: Any) -> None:
    assert warned(lambda: PromptTemplate({"round": given})) == ["round"]
    with pytest.warns(InContextWarning):
        template = PromptTemplate({"round": given})
    assert MetaTemplate({"round": ROUND}).parse(template.item(ROW)).startswith("Q: q<h>")


@pytest.mark.filterwarnings("error")
def test_the_token_of_examples_in_a_round_is_not_text() -> None:
    PromptTemplate({"round": ["</E>", {"role": "HUMAN", "prompt": "{question}"}]}, ice_token="</E>")


def test_text_in_a_round_is_an_error_for_an_api_and_written_for_a_completion_model() -> None:
    assert places(lambda: ApiMetaTemplate({"round": ["--", *ROUND]})) == ("round[0]",)
    asked = PromptTemplate({"round": [{"role": "HUMAN", "prompt": "{question}"}]}).item(ROW)
    assert MetaTemplate({"round": ["--", *ROUND]}).parse(asked) == "--<h>q</h><b>"


def test_a_role_without_any_prompt_is_a_warning() -> None:
    asked = PromptTemplate({"round": [{"role": "HUMAN"}, {"role": "BOT"}]}).item(ROW)
    assert warned(lambda: MetaTemplate({"round": ROUND}).parse(asked)) == ["HUMAN"]
    with pytest.warns(InContextWarning):
        assert MetaTemplate({"round": ROUND}).parse(asked) == "<h></h><b>"


def test_a_slot_in_the_prompt_of_a_meta_template_is_a_warning() -> None:
    config = {"round": [{**ROUND[0], "prompt": "Ask {question}"}, ROUND[1]]}
    assert warned(lambda: MetaTemplate(config)) == ["round[0].prompt"]
    with pytest.warns(InContextWarning):
        meta = MetaTemplate(config)
    asked = PromptTemplate({"round": [{"role": "BOT"}]}).item(ROW)
    assert meta.parse(asked) == "<h>Ask {question}</h><b>"


def test_labels_without_the_key_template_are_an_error_with_the_right_place() -> None:
    target = {"A": {"round": [{"role": "HUMAN", "prompt": "{question}"}]}}
    found = places(lambda: InContext.from_cfg({"prompt_template": target}, {"input_columns": "question"}))
    where = "infer_cfg['prompt_template']"
    assert found == (f"{where}.A", f"{where}.template", where)
    icl = InContext.from_cfg({"prompt_template": {"template": target}}, {"input_columns": "question"})
    assert icl.labels() == ["A"]


def test_sections_with_an_unknown_key_are_labels_and_a_warning() -> None:
    labelled = {"begin": "x", "round": "y", "ende": "z"}
    assert warned(lambda: PromptTemplate(labelled)) == ["ende"]
    with pytest.warns(InContextWarning):
        assert PromptTemplate(labelled).labels == ("begin", "round", "ende")
