"""What a template leaves open is an error or a warning that names it, or does what the original does; see the docs."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts.evaluation import (
    ApiMetaTemplate,
    InContext,
    InContextError,
    InContextWarning,
    MetaTemplate,
    PromptTemplate,
)

ROUND: list[Any] = [{"role": "HUMAN", "begin": "<h>", "end": "</h>"}, {"role": "BOT", "begin": "<b>", "generate": True}]
ROW = {"question": "q", "answer": "a"}


@pytest.mark.parametrize("given", ["Q: {question}", ["Q: {question}"], ["Q: {question}", {"role": "BOT"}]])
def test_text_in_a_round_is_named_and_stands_before_the_turns(given: Any) -> None:
    with pytest.warns(InContextWarning, match="'Q: {question}' in `round` has no role, so it stands before all turns"):
        template = PromptTemplate({"round": given})
    assert MetaTemplate({"round": ROUND}).parse(template.item(ROW)).startswith("Q: q<h>")


@pytest.mark.filterwarnings("error")
def test_the_place_of_examples_in_a_round_is_no_text() -> None:
    PromptTemplate({"round": ["</E>", {"role": "HUMAN", "prompt": "{question}"}]}, ice_token="</E>")


def test_text_in_the_round_of_an_api_is_an_error_and_of_a_completion_model_is_written() -> None:
    with pytest.raises(InContextError, match=r"round\[0\] is text, which has no place among messages; give it a role"):
        ApiMetaTemplate({"round": ["--", *ROUND]})
    asked = PromptTemplate({"round": [{"role": "HUMAN", "prompt": "{question}"}]}).item(ROW)
    assert MetaTemplate({"round": ["--", *ROUND]}).parse(asked) == "--<h>q</h><b>"


def test_a_role_without_a_prompt_on_either_side_is_named() -> None:
    asked = PromptTemplate({"round": [{"role": "HUMAN"}, {"role": "BOT"}]}).item(ROW)
    with pytest.warns(InContextWarning, match="role 'HUMAN' has no prompt in the dataset's template and none in"):
        assert MetaTemplate({"round": ROUND}).parse(asked) == "<h></h><b>"


def test_a_slot_in_the_prompt_of_a_meta_template_is_named() -> None:
    with pytest.warns(InContextWarning, match=r"round\[0\]: nothing fills {question} in its own prompt"):
        meta = MetaTemplate({"round": [{**ROUND[0], "prompt": "Ask {question}"}, ROUND[1]]})
    asked = PromptTemplate({"round": [{"role": "BOT"}]}).item(ROW)
    assert meta.parse(asked) == "<h>Ask {question}</h><b>"


def test_labels_without_template_are_an_error_that_says_where_they_go() -> None:
    target = {"A": {"round": [{"role": "HUMAN", "prompt": "{question}"}]}}
    with pytest.raises(InContextError, match="labels and their prompts, or a dialogue, stand under template="):
        InContext.from_cfg({"prompt_template": target}, {"input_columns": "question"})
    icl = InContext.from_cfg({"prompt_template": {"template": target}}, {"input_columns": "question"})
    assert icl.labels() == ["A"]


def test_sections_beside_a_key_that_is_none_are_labels_and_named() -> None:
    with pytest.warns(InContextWarning, match="`begin` and `round` are labels beside 'ende'; did you mean 'end'"):
        template = PromptTemplate({"begin": "x", "round": "y", "ende": "z"})
    assert template.labels == ("begin", "round", "ende")
