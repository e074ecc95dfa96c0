"""Plain str as a prompt: literal text, without templates."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, Chain, ScriptedModel
from agentkit.prompts import (
    AdditionalInfoPrompt,
    Layers,
    LiteralTextWarning,
    PromptContext,
    Template,
    TemplateError,
    TextPrompt,
    WrapPrompt,
    compose,
)
from agentkit.testing import strategies as some
from agentkit_prompts.errors import PromptError
from agentkit_prompts.tree.volatility import volatility_of
from tests.prompts.laws import law

BRACES = 'Use {#anchor#} and {"a": 1}'


def system_of(model: ScriptedModel) -> str:
    return str(model.requests[0].to_openai()["messages"][0]["content"])


def test_an_agent_and_a_chain_send_literal_text() -> None:
    model = ScriptedModel(["yes"])
    Agent(model, BRACES).run_sync("hi")
    assert system_of(model) == BRACES
    assert compose(Chain(ScriptedModel([]), BRACES).layers, PromptContext(user_input="")).system.text == BRACES


@law
@given(some.hostile_texts(), st.sampled_from(["system", "before_input", "input", "after_input"]))
def test_text_in_any_layer_and_in_a_wrapper_is_literal(text: str, place: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LiteralTextWarning)
        if "<|media:" in text:
            with pytest.raises(TemplateError):
                Layers(**{place: text})
            return
        layers: Any = Layers(**{place: [text, WrapPrompt([text], "({{ wrapped_str }})", keep_empty=True)]})
    composition = compose(layers, PromptContext(user_input=""))
    shown = composition.system if place == "system" else composition.user
    assert shown.text.startswith(f"{text}\n\n({text})" if text else "()")
    assert {span.trust for span in shown.spans()} == {"trusted"}


@pytest.mark.parametrize(
    "text", ["Hello {{ user_input }}", "{{name}}", "{{- name -}}", "{% if x %}", "{%+ if x %}", "a\n{%- for x in y -%}"]
)
def test_text_that_looks_like_a_template_is_a_warning(text: str) -> None:
    with pytest.warns(LiteralTextWarning) as caught:
        layers = Layers(text)
    assert [warning.filename for warning in caught] == [__file__], "the line of the code that makes the layers"
    assert compose(layers, PromptContext(user_input="x")).system.text == text
    with pytest.warns(LiteralTextWarning):
        WrapPrompt(wrapped_prompts=[text])
    for _ in range(2):  # also the second time in a process
        with pytest.warns(LiteralTextWarning) as caught:
            agent = Agent(ScriptedModel([]), text)
        assert caught[0].filename == __file__
        with pytest.warns(LiteralTextWarning):
            agent.with_changes(instructions=text)


def test_a_field_of_another_framework_in_a_template_is_a_warning() -> None:
    with pytest.warns(LiteralTextWarning) as caught:
        AdditionalInfoPrompt("You sell {goods}.")
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AdditionalInfoPrompt("Write {goods} for {{ goods }}.")


def test_other_braces_are_no_warning() -> None:
    for text in (BRACES, '{"a": {"b": {}}}', "{}", "100 % {x}", "{{}}", "f(x) { return {y}; }", "{# x #}"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert compose(Layers(text), PromptContext(user_input="")).system.text == text


def test_a_declared_template_is_rendered() -> None:
    ctx = PromptContext(user_input="hi")
    layers = Layers([TextPrompt("{{ user_input }}!"), Template("{user_input}?", engine="fstring")], conversation=False)
    assert compose(layers, ctx).system.text == "hi!\n\nhi?"
    literal = TextPrompt(Template("{{ user_input }}", engine="literal"))
    assert literal.format_2_str(ctx) == "{{ user_input }}"
    assert volatility_of(literal) == "static"
    assert literal.additional_kwargs_schema is None


def test_a_value_that_is_not_a_text_a_prompt_or_a_list_is_refused() -> None:
    values: list[Any] = [5, None, b"text", {"a": "text"}, {"text"}]
    for value in values:
        with pytest.raises(PromptError) as caught:
            Layers(system=value)
        assert caught.value.name == "system", value
        with pytest.raises(PromptError) as caught:
            WrapPrompt(value, "{{ wrapped_str }}")
        assert caught.value.name == "wrapped_prompts", value
