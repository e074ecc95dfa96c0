"""What a template leaves open is an error or a warning that names it, or does what the original does; see the docs."""

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
def test_text_in_a_round_is_named_and_stands_before_the_turns(given: Any) -> None:
    assert warned(lambda: PromptTemplate({"round": given})) == ["round"]
    with pytest.warns(InContextWarning):
        template = PromptTemplate({"round": given})
    assert MetaTemplate({"round": ROUND}).parse(template.item(ROW)).startswith("Q: q<h>")


@pytest.mark.filterwarnings("error")
def test_the_place_of_examples_in_a_round_is_no_text() -> None:
    PromptTemplate({"round": ["</E>", {"role": "HUMAN", "prompt": "{question}"}]}, ice_token="</E>")


def test_text_in_the_round_of_an_api_is_an_error_and_of_a_completion_model_is_written() -> None:
    assert places(lambda: ApiMetaTemplate({"round": ["--", *ROUND]})) == ("round[0]",)
    asked = PromptTemplate({"round": [{"role": "HUMAN", "prompt": "{question}"}]}).item(ROW)
    assert MetaTemplate({"round": ["--", *ROUND]}).parse(asked) == "--<h>q</h><b>"


def test_a_role_without_a_prompt_on_either_side_is_named() -> None:
    asked = PromptTemplate({"round": [{"role": "HUMAN"}, {"role": "BOT"}]}).item(ROW)
    assert warned(lambda: MetaTemplate({"round": ROUND}).parse(asked)) == ["HUMAN"]
    with pytest.warns(InContextWarning):
        assert MetaTemplate({"round": ROUND}).parse(asked) == "<h></h><b>"


def test_a_slot_in_the_prompt_of_a_meta_template_is_named() -> None:
    config = {"round": [{**ROUND[0], "prompt": "Ask {question}"}, ROUND[1]]}
    assert warned(lambda: MetaTemplate(config)) == ["round[0].prompt"]
    with pytest.warns(InContextWarning):
        meta = MetaTemplate(config)
    asked = PromptTemplate({"round": [{"role": "BOT"}]}).item(ROW)
    assert meta.parse(asked) == "<h>Ask {question}</h><b>"


def test_labels_without_template_are_an_error_that_says_where_they_go() -> None:
    target = {"A": {"round": [{"role": "HUMAN", "prompt": "{question}"}]}}
    found = places(lambda: InContext.from_cfg({"prompt_template": target}, {"input_columns": "question"}))
    where = "infer_cfg['prompt_template']"
    assert found == (f"{where}.A", f"{where}.template", where)
    icl = InContext.from_cfg({"prompt_template": {"template": target}}, {"input_columns": "question"})
    assert icl.labels() == ["A"]


def test_sections_beside_a_key_that_is_none_are_labels_and_named() -> None:
    labelled = {"begin": "x", "round": "y", "ende": "z"}
    assert warned(lambda: PromptTemplate(labelled)) == ["ende"]
    with pytest.warns(InContextWarning):
        assert PromptTemplate(labelled).labels == ("begin", "round", "ende")
