"""Failures with data, and results that were cut and can be read further."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import Agent, Message, ScriptedModel, ToolCall
from agentkit.prompts import Image, Text
from agentkit.tools import Tool, ToolContext, ToolDefinitionError, ToolFailure, ToolResult, Toolset, tool


async def ask(made: Tool, arguments: dict[str, Any] | None = None, call_id: str = "call_1") -> ToolResult:
    text = json.dumps(arguments or {})
    return await made.call(ToolCall(call_id, made.name, text), ToolContext(None, "run_1", call_id))


class Refusal(BaseModel):
    code: str
    limit: int


@pytest.mark.parametrize("how", ["raised", "returned"])
async def test_a_failure_with_data_reaches_the_model_as_json_and_the_result_carries_it(how: str) -> None:
    @tool
    def pay() -> str:
        failure = ToolFailure("too much", Refusal(code="limit", limit=100))
        if how == "raised":
            raise failure
        return failure  # type: ignore[return-value]

    result = await ask(pay)

    assert result.status == "error"
    assert json.loads(str(result.content)) == {"error": "too much", "data": {"code": "limit", "limit": 100}}
    assert isinstance(result.error, ToolFailure)
    assert result.error.data == Refusal(code="limit", limit=100)


async def test_a_failure_without_data_is_json_too() -> None:
    @tool
    def pay() -> str:
        raise ToolFailure("no such account")

    assert (await ask(pay)).content == '{"error": "no such account"}'


async def test_data_that_has_no_json_form_is_named_and_the_message_stays() -> None:
    @tool
    def pay() -> str:
        raise ToolFailure("odd", object())

    shown = json.loads(str((await ask(pay)).content))

    assert shown["error"] == "odd"
    assert "object" in shown["note"]


async def test_a_huge_failure_is_cut_and_stays_an_error() -> None:
    @tool(max_result_chars=50)
    def pay() -> str:
        raise ToolFailure("x" * 500)

    result = await ask(pay)

    assert result.status == "error"
    assert len(str(result.content)) < 200
    assert result.whole == json.dumps({"error": "x" * 500})


async def test_a_failure_can_be_retried_like_any_exception() -> None:
    tries = []

    @tool(retries=1, retry_on=(ToolFailure,), backoff=0)
    def pay() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ToolFailure("busy")
        return "paid"

    assert (await ask(pay)).content == "paid"


async def test_a_result_that_a_tool_makes_itself_is_cut_too() -> None:
    @tool(max_result_chars=10)
    def made(status: str) -> ToolResult:
        return ToolResult("", "", "0123456789abc", status)  # type: ignore[arg-type]

    fine, failed = await ask(made, {"status": "success"}), await ask(made, {"status": "error"})

    assert (fine.status, failed.status) == ("too_large", "error")
    assert str(fine.content).startswith("0123456789\n[")
    assert fine.whole == failed.whole == "0123456789abc"


@tool(max_result_chars=20)
def letters(count: int = 100) -> str:
    """Return letters."""
    return "".join(chr(ord("a") + index % 26) for index in range(count))


async def test_a_cut_result_names_a_reference_to_the_rest() -> None:
    store: dict[str, str] = {}
    kept, read = Toolset([letters]).with_result_store(store)

    cut = await ask(kept)
    (reference,) = store
    rest = await ask(read, {"reference": reference, "start": 20, "length": 30})
    end = await ask(read, {"reference": reference, "start": 90})

    assert reference in str(cut.content)
    assert store[reference] == cut.whole == letters()
    assert str(rest.content).startswith(letters()[20:50] + "\n")
    assert "50 characters follow" in str(rest.content)
    assert "this is its end" in str(end.content)


async def test_a_complete_result_is_not_stored() -> None:
    store: dict[str, str] = {}
    kept, _ = Toolset([letters]).with_result_store(store)

    assert (await ask(kept, {"count": 5})).content == "abcde"
    assert store == {}


async def test_an_unknown_reference_or_a_start_beyond_the_end_is_a_failure_for_the_model() -> None:
    store: dict[str, str] = {}
    kept, read = Toolset([letters]).with_result_store(store)
    await ask(kept)

    unknown = await ask(read, {"reference": "nothing"})
    beyond = await ask(read, {"reference": next(iter(store)), "start": 1000})

    assert "call the tool again" in json.loads(str(unknown.content))["error"]
    assert json.loads(str(beyond.content))["data"] == {"start": 1000, "characters": 100}


async def test_only_the_newest_results_are_in_memory() -> None:
    kept, read = Toolset([letters]).with_result_store()
    references = [str((await ask(kept, call_id=f"call_{n}")).content).split('"')[1] for n in range(70)]

    assert len(set(references)) == 70
    assert not (await ask(read, {"reference": references[0]})).ok
    assert (await ask(read, {"reference": references[-1]})).ok


async def test_the_text_next_to_media_is_stored_too() -> None:
    @tool(max_result_chars=10)
    def chart() -> list[Any]:
        return [Image(b"\x89PNG\r\n\x1a\n"), "x" * 30]

    store: dict[str, str] = {}
    kept, _ = Toolset([chart]).with_result_store(store)
    image, shown, note = (await ask(kept)).content

    assert isinstance(image, Image)
    assert isinstance(shown, Text) and isinstance(note, Text)
    assert next(iter(store)) in note.text
    assert list(store.values()) == ["x" * 30]


def test_a_tool_with_the_name_of_the_reader_is_a_conflict() -> None:
    @tool
    def read_result() -> str:
        return ""

    with pytest.raises(ToolDefinitionError) as caught:
        Toolset([read_result]).with_result_store()
    assert caught.value.names == ("read_result",)


def test_an_agent_reads_the_rest_of_a_cut_result() -> None:
    store: dict[str, str] = {}

    def read_on(composition: Any) -> Message:
        (reference,) = store
        arguments = json.dumps({"reference": reference, "start": 20, "length": 6})
        return Message("assistant", "", (ToolCall("call_2", "read_result", arguments),))

    model = ScriptedModel([Message("assistant", "", (ToolCall("call_1", "letters"),)), read_on, "done"])
    result = Agent(model, tools=Toolset([letters]).with_result_store(store)).run_sync("Letters, please")

    assert result.output == "done"
    shown = [message.text for message in result.messages if message.role == "tool"]
    assert shown[1].startswith("uvwxyz\n")
