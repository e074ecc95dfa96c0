"""The scripted model of tests and examples."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentkit import (
    Agent,
    AskAgain,
    Composition,
    Layers,
    Message,
    OutputSpec,
    PromptContext,
    Reply,
    ScriptedModel,
    ToolCall,
    Usage,
)
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelUnavailable
from agentkit.models.model_errors import ScriptExhausted
from agentkit.prompts import compose
from agentkit.testing import Delayed
from tests.raising import raises


def composed(text: str = "Hi") -> Composition:
    return compose(Layers(), PromptContext(user_input=text))


def ask(model: ScriptedModel, composition: Composition | None = None, **listening: Any) -> Reply:
    return asyncio.run(model.request(composition or composed(), **listening))


def test_replies_in_any_of_their_forms_are_returned_in_order() -> None:
    calling = Message("assistant", tool_calls=(ToolCall("1", "add", "{}"),))
    whole = Reply(Message("assistant", "whole"), Usage(1, 2), "length", "other")
    model = ScriptedModel(["text", calling, whole, lambda sent: sent.context.user_input.text.upper()], name="script")
    replies = [ask(model) for _ in range(4)]
    assert replies[0] == Reply(Message("assistant", "text"), finish_reason="stop", model="script")
    assert replies[1] == Reply(calling, finish_reason="tool_calls", model="script")
    assert replies[2] is whole
    assert replies[3].message.text == "HI"


class City(BaseModel):
    name: str


def test_calls_and_structured_answers_are_replies() -> None:
    call, other = ToolCall("1", "add", {"a": 1}), ToolCall("2", "add", {"a": 2})
    calls = [ask(ScriptedModel([reply])) for reply in (call, [call], (call, other))]
    assert [reply.message.tool_calls for reply in calls] == [(call,), (call,), (call, other)]
    assert {reply.finish_reason for reply in calls} == {"tool_calls"}
    forms = [City(name="Bern"), {"name": "Bern"}, MappingProxyType({"name": "Bern"}), lambda _: City(name="Bern")]
    for structured in [*forms, Delayed(0, City(name="Bern"))]:
        reply = ask(ScriptedModel([structured]))
        assert (reply.message.text, reply.finish_reason) == ('{"name":"Bern"}', "stop")
    for wrong in ([], [call, "text"], 3, City):
        with pytest.raises((AgentDefinitionError, TypeError, ValueError)):
            ask(ScriptedModel([wrong]))  # type: ignore[list-item]


def test_a_single_reply_without_a_list_names_the_list() -> None:
    build: Any = ScriptedModel
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: build("Hi"), "ScriptedModel([...])"),
        (lambda: build(City(name="Bern")), "ScriptedModel([...])"),
        (lambda: build({"name": "Bern"}), "ScriptedModel([...])"),
        (lambda: build("Hi", "Ho"), "ScriptedModel([reply, reply])"),
        (lambda: build(responses=["Hi"]), "ScriptedModel([...])"),
        (lambda: build(lambda _: "Hi"), "ScriptedModel.repeat(function)"),
    ]
    for call, message in wrong:
        with pytest.raises((AgentDefinitionError, TypeError)) as caught:
            call()
        assert message in str(caught.value)
    assert ask(ScriptedModel.repeat(lambda _: "Hi")).message.text == "Hi"


def test_an_exception_among_the_replies_is_raised() -> None:
    model = ScriptedModel([ModelUnavailable("down"), lambda sent: ModelUnavailable("down again"), "up"])
    with raises(ModelUnavailable, args=("down",)):
        ask(model)
    with raises(ModelUnavailable, args=("down again",)):
        ask(model)
    assert ask(model).message.text == "up"


def test_a_request_after_the_last_reply_is_an_error() -> None:
    replies = iter(["one"])
    for model in (ScriptedModel(["one"]), ScriptedModel.repeat(lambda _: next(replies))):
        ask(model)
        with pytest.raises(ScriptExhausted):
            ask(model)


def test_repeat_never_ends() -> None:
    model = ScriptedModel.repeat("a", "b")
    assert "".join(ask(model).message.text for _ in range(5)) == "ababa"


def test_all_requests_or_the_last_requests_are_stored() -> None:
    sent = [composed(str(i)) for i in range(3)]
    for keep, kept in ((None, sent), (2, sent[1:]), (0, [])):
        model = ScriptedModel.repeat("a", keep=keep)
        for composition in sent:
            ask(model, composition)
        assert list(model.requests) == kept


@given(st.text())
def test_the_streamed_words_are_the_text(text: str) -> None:
    heard: list[str] = []
    reply = ask(ScriptedModel([text]), on_delta=lambda one: heard.append(one.text))
    assert "".join(heard) == reply.message.text == text


def test_words_are_streamed_separately() -> None:
    heard: list[str] = []
    ask(ScriptedModel(["Hello there, you."]), on_delta=lambda one: heard.append(one.text))
    assert heard == ["Hello", " there,", " you."]


@pytest.mark.parametrize("reply", [1, None, b"bytes", ["a"], Message("user", "not a reply")])
def test_an_invalid_reply_is_refused(reply: Any) -> None:
    with raises(AgentDefinitionError, name="replies"):
        ScriptedModel([reply])
    with raises(AgentDefinitionError, name="replies"):
        ask(ScriptedModel([lambda sent: reply]))


def test_a_text_instead_of_a_list_is_refused() -> None:
    with raises(AgentDefinitionError, name="replies", value="str"):
        ScriptedModel("hello")


def test_a_script_that_is_too_short_names_the_reason_of_the_next_request() -> None:
    def total(number: int) -> int:
        """Set the total."""
        raise ValueError("negative")

    def refuse(value: int) -> int:
        raise AskAgain("too small")

    call = ToolCall("c1", "total", '{"number": 1}')
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("text", {"output": int}, "not a valid int"),
        ('{"value": "x"}', {"output": int}, "not a valid int"),
        ('{"value": 1}', {"output": OutputSpec(int, output_validator=refuse)}, "too small"),
        (call, {"output": OutputSpec(total)}, "negative"),
        (call, {"tools": [total]}, "result of the tool total"),
        (ToolCall("c1", "nope", "{}"), {"tools": [total]}, "Unknown tool"),
    ]
    for reply, options, reason in cases:
        with pytest.raises(ScriptExhausted, match=reason):
            Agent(ScriptedModel([reply]), **options).run_sync("x")
    with pytest.raises(ScriptExhausted) as caught:
        Agent(ScriptedModel([])).run_sync("x")
    assert "refused" not in str(caught.value)
