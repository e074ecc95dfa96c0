"""Wrappers, predicates and results that break their contracts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolContext, ToolResult, Toolset, tool
from agentkit_tools.calling import result_content
from tests.waiting import longer


async def ask(made: Tool) -> ToolResult:
    return await asyncio.wait_for(made.call(ToolCall("c", made.name, ""), ToolContext(None, "r", "c")), 60)


@tool
async def plain() -> str:
    return "plain"


@pytest.mark.parametrize("answer", [None, "text", 5, ("a", "b"), ToolResult])
async def test_a_wrapper_without_a_result_is_an_error_that_names_the_returned_type(answer: Any) -> None:
    async def around(proceed: Any, call: Any, context: Any) -> Any:
        return answer

    result = await ask(Toolset([plain]).wrapped(around)[0])
    assert (result.status, result.call_id) == ("error", "c")
    assert f"a wrapper must return the ToolResult of the call, got {type(answer).__name__}" in str(result.content)


@pytest.mark.parametrize("content", [object(), [object()], None, {"a": 1}])
async def test_content_of_a_wrapper_is_converted_for_a_model(content: Any) -> None:
    async def around(proceed: Any, call: Any, context: Any) -> Any:
        result = await proceed(call, context)
        result.content = content
        return result

    result = await ask(Toolset([plain]).wrapped(around)[0])
    assert result.status in ("error", "success")
    assert result.message.role == "tool"


async def never(*_: Any) -> bool:
    await asyncio.Event().wait()
    return True


class Waits:
    def __await__(self) -> Any:
        return never().__await__()


@pytest.mark.parametrize(
    "predicate",
    [
        never,
        lambda *_: Waits(),
        lambda *_: asyncio.get_running_loop().create_future(),
        lambda *_: asyncio.gather(never()),
    ],
)
async def test_a_predicate_that_never_decides_ends_at_the_time_limit_of_a_call(predicate: Any) -> None:
    made = plain.with_changes(approval=predicate, timeout=0.3)
    result = await ask(made)
    assert (result.status, type(result.error)) == ("denied", TimeoutError)
    assert "whether it needs approval could not be decided within 0.3 seconds" in str(result.content)
    assert await made.needs_approval(ToolCall("c", "plain", ""), ToolContext(None))


async def test_a_predicate_that_is_cancelled_from_inside_does_not_cancel_the_run() -> None:
    async def gives_up(*_: Any) -> bool:
        raise asyncio.CancelledError

    made = plain.with_changes(approval=gives_up)
    assert (await ask(made)).status == "denied"
    assert await made.needs_approval(ToolCall("c", "plain", ""), ToolContext(None))


async def test_items_without_a_wait_do_not_block_the_loop() -> None:
    async def endless() -> AsyncIterator[str]:
        while True:
            yield ""

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    for seconds in longer(0.2):
        result = await ask(Tool(endless, timeout=seconds, max_result_chars=None))
        assert result.status == "timeout"
        if ticks > 10:
            break
    ticking.cancel()


@pytest.mark.parametrize("kind", ["generator", "async generator", "iterator", "iterator of a coroutine"])
async def test_an_endless_generator_without_a_limit_of_a_policy_ends(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_content, "_MAX_UNLIMITED", 10_000)

    def generator() -> Iterator[int]:
        yield from itertools.count()

    async def async_generator() -> AsyncIterator[int]:
        for number in itertools.count():
            yield number

    def iterator() -> Any:
        return itertools.count()

    async def coroutine() -> Any:
        return itertools.count()

    functions = {
        "generator": generator,
        "async generator": async_generator,
        "iterator": iterator,
        "iterator of a coroutine": coroutine,
    }
    result = await ask(Tool(functions[kind], max_result_chars=None))
    assert result.status == "error"
    assert "more than 10,000 characters and items" in str(result.content)
