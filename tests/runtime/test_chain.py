"""Chains: layers, a model and a type of answer, without a loop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic import BaseModel

from agentkit import Chain, Layers, PromptContext, ScriptedModel, UserInput
from agentkit.errors import OutputError
from agentkit.prompts import (
    BudgetError,
    Example,
    ExamplesPrompt,
    KwargsError,
    Size,
    TemplateError,
    TextPrompt,
    WrapPrompt,
)
from tests.raising import raises


class City(BaseModel):
    name: str


async def test_a_chain_composes_sends_once_and_reads_the_answer() -> None:
    model = ScriptedModel(['{"name": "Bern"}', '{"name": "Basel"}', '{"name": "Chur"}'])
    chain = Chain(model, "Name a city.", output=City)
    assert await chain.run("small") == City(name="Bern")
    assert await chain.run(UserInput("large")) == City(name="Basel")
    assert await chain.run(PromptContext(user_input="old")) == City(name="Chur")
    assert [sent.messages[-1].text for sent in model.requests] == ["small", "large", "old"]
    assert model.requests[0].system.text == "Name a city."


async def test_a_chain_does_not_repair() -> None:
    model = ScriptedModel.repeat("Bern")
    with pytest.raises(OutputError):
        await Chain(model, output=City).run("go")
    assert len(model.requests) == 1


async def test_a_chain_streams_to_a_listener() -> None:
    pieces: list[str] = []
    assert await Chain(ScriptedModel(["one two"])).run("go", on_text=pieces.append) == "one two"
    assert pieces == ["one", " two"]


def test_compose_shows_the_complete_request_and_sends_nothing() -> None:
    model = ScriptedModel([])
    chain = Chain(model, "Be brief.", output=City)
    shown = chain.compose(PromptContext(user_input="go"))
    assert [message.text for message in shown.messages] == ["Be brief.", "go"]
    assert shown.output_schema is not None
    assert chain.output_schema is not None
    assert shown.output_schema["required"] == chain.output_schema["required"] == ["name"]
    assert not model.requests


def needy() -> Layers:
    inner = TextPrompt("{{ additional_kwargs.tone }}")
    return Layers(
        before_input=[WrapPrompt([inner], "{{ wrapped_str }} {{ additional_kwargs.lang }}")],
        after_input=TextPrompt("{{ additional_kwargs.tone }}"),
    )


async def test_all_missing_kwargs_are_named_with_their_prompts_before_any_request() -> None:
    model = ScriptedModel([])
    with pytest.raises(KwargsError) as caught:
        await Chain(model, needy()).run("hi")
    assert set(caught.value.problems) == {"tone", "lang"}
    assert set(caught.value.problems["tone"][1]) == {"before_input[0].wrapped_prompts[0]", "after_input[0]"}
    assert caught.value.problems["lang"][1] == ("before_input[0]",)
    assert not model.requests


def test_preflight_accepts_text_a_mapping_or_a_user_input() -> None:
    chain = Chain(ScriptedModel([]), needy())
    good = {"tone": "warm", "lang": "en"}
    chain.preflight(UserInput("hi", additional_kwargs=good))
    chain.preflight({"input": "hi", "additional_kwargs": good})
    for bad in ("hi", UserInput("hi", additional_kwargs={"tone": "warm"}), {"input": "hi"}):
        with pytest.raises(KwargsError) as caught:
            chain.preflight(bad)
        assert "lang" in caught.value.problems


def test_preflight_without_required_kwargs_finds_no_problem() -> None:
    chain = Chain(ScriptedModel([]), "Be brief.")
    chain.preflight("hi")
    chain.preflight({"input": "hi"})
    assert chain.additional_kwargs_schema is None


def test_the_schema_names_the_prompts_that_need_each_kwarg() -> None:
    schema = Chain(ScriptedModel([]), needy()).additional_kwargs_schema
    assert schema is not None
    assert set(schema["required"]) == {"tone", "lang"}
    assert "after_input[0]" in str(schema["properties"]["tone"]["x-required-by"])


async def test_a_prompt_that_cannot_render_is_named_with_its_line_and_no_request_is_sent() -> None:
    model = ScriptedModel([])
    with raises(TemplateError, line=1, prompt="before_input[0]"):
        await Chain(model, Layers(before_input=TextPrompt("{{ 1 / (user_input.text | length) }}"))).run("")
    assert not model.requests


def test_a_template_that_can_never_render_is_refused_by_the_constructor() -> None:
    with pytest.raises(TemplateError):
        Chain(ScriptedModel([]), TextPrompt("{% if %}"))


async def test_a_chain_awaits_an_async_selector() -> None:
    class Last:
        async def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            return examples[-1:]

    model = ScriptedModel(["ok"])
    shots = ExamplesPrompt(examples=[Example("1+1", "2"), Example("2+2", "4")], selector=Last())
    await Chain(model, Layers(before_input=shots)).run("3+3")
    assert "2+2" in model.requests[0].text and "1+1" not in model.requests[0].text


def test_a_budget_applies_to_every_composition() -> None:
    filler = TextPrompt("word " * 500, size=Size(cut="tail"))
    chain = Chain(ScriptedModel([]), Layers(filler), budget=100)
    assert 0 < chain.compose(PromptContext(user_input="hi")).tokens <= 100
    with pytest.raises(BudgetError):
        Chain(ScriptedModel([]), "word " * 500, budget=1).compose(PromptContext(user_input="hi"))


def test_a_custom_tokenizer_counts() -> None:
    class Letters:
        name = "letters"
        estimated = False

        def count(self, text: str) -> int:
            return len(text)

    chain = Chain(ScriptedModel([]), "abc", counter=Letters())
    assert chain.compose(PromptContext(user_input="hi")).counter.name == "letters"
