"""A tool that fails `max_consecutive_failures` times in a row is no longer available in the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from agentkit import Agent, Message, Reply, ScriptedModel
from agentkit.prompts import Text, ToolCall
from agentkit.testing import controlled_time
from agentkit.tools import Tool, ToolContext, ToolDefinitionError, ToolResult, Toolset, tool
from agentkit_tools.dispatch import call_tools


def scripted(endings: Iterable[object], **policy: Any) -> Tool:
    """Return a tool with these endings: an exception is raised, another value is returned."""
    left = iter(endings)

    async def work(n: int = 0) -> Any:
        ending = next(left)
        if isinstance(ending, BaseException):
            raise ending
        if ending == "hang":
            await asyncio.sleep(30)
        return ending

    return Tool(work, **policy)


async def ask(made: Tool, counts: dict[str, int] | None, arguments: str = "") -> ToolResult:
    return await made.call(ToolCall("c", made.name, arguments), ToolContext(None, "r", "c", calls=counts))


async def statuses(made: Tool, times: int) -> list[str]:
    counts: dict[str, int] = {}
    return [(await ask(made, counts)).status for _ in range(times)]


async def test_the_last_failure_makes_the_tool_unavailable_and_it_is_not_called_again() -> None:
    made = scripted([ValueError("one"), ValueError("two"), "never"], max_consecutive_failures=2)
    counts: dict[str, int] = {}
    first, second, third = [await ask(made, counts) for _ in range(3)]

    assert (first.status, first.content) == ("error", "work failed: ValueError: one")
    assert second.status == "unavailable" and not second.ok
    assert isinstance(second.error, ValueError)
    assert second.content == (
        "work failed: ValueError: two\n"
        "work is not available any more: it failed 2 times in a row in this run. Continue without it."
    )
    assert (third.status, third.error) == ("unavailable", None)
    assert third.content == "work was not called: it failed 2 times in a row in this run. Continue without it."


async def test_a_success_between_failures_restarts_the_count() -> None:
    endings = [ValueError(), "fine", ValueError(), "x" * 200_000, ValueError(), ValueError(), "never"]
    assert await statuses(scripted(endings, max_consecutive_failures=2), 7) == [
        "error", "success", "error", "too_large", "error", "unavailable", "unavailable",
    ]  # fmt: skip


async def test_wrong_arguments_and_time_limits_are_failures() -> None:
    made = scripted(
        ["hang", "never"], max_consecutive_failures=2, timeout=0.3
    )  # wrong arguments are read in a thread, within this time
    counts: dict[str, int] = {}
    assert (await ask(made, counts, '{"n": "many"}')).status == "error"
    second = await ask(made, counts)
    assert (second.status, type(second.error)) == ("unavailable", TimeoutError)


async def test_a_call_that_ignores_its_time_limit_is_a_failure() -> None:
    over: list[bool] = []

    @tool(timeout=1, max_consecutive_failures=2)
    async def stubborn() -> None:
        while not over:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    counts: dict[str, int] = {}
    statuses: list[str] = []
    with controlled_time():
        for _ in range(3):
            calls = [ToolCall("c", "stubborn")]
            (result,) = await call_tools(calls, {"stubborn": stubborn}, lambda _: ToolContext(None, calls=counts))
            statuses.append(result.status)
    assert statuses == ["timeout", "unavailable", "unavailable"]
    over.append(True)


async def test_denied_and_cancelled_calls_are_neither_failures_nor_successes() -> None:
    endings = [ValueError(), asyncio.CancelledError(), ToolResult("", "", "no", "denied"), ValueError(), "never"]
    assert await statuses(scripted(endings, max_consecutive_failures=2), 5) == [
        "error", "cancelled", "denied", "unavailable", "unavailable",
    ]  # fmt: skip


async def test_the_attempts_of_one_call_are_one_failure() -> None:
    endings = [ValueError(), ValueError(), ValueError(), "fine", "fine"]
    assert await statuses(scripted(endings, max_consecutive_failures=2, retries=1, backoff=0), 3) == [
        "error",
        "success",
        "success",
    ]


async def test_results_with_media_have_the_note_too() -> None:
    parts = (Text("broken"),)
    result = await ask(scripted([ToolResult("", "", parts, "error")], max_consecutive_failures=1), {})
    assert isinstance(result.content, tuple)
    assert "it failed once in this run" in "".join(part.text for part in result.content if isinstance(part, Text))


async def test_every_run_and_every_tool_has_a_separate_count() -> None:
    made = scripted([ValueError()] * 4, max_consecutive_failures=2)
    other = made.with_changes(name="other")
    first, second = dict[str, int](), dict[str, int]()
    assert [(await ask(one, counts)).status for one, counts in ((made, first), (made, second), (other, first))] == [
        "error"
    ] * 3
    assert (await ask(made, first)).status == "unavailable"


async def test_without_a_count_a_tool_stays_available() -> None:
    made = scripted([ValueError()] * 5, max_consecutive_failures=1)
    assert [(await ask(made, None)).status for _ in range(5)] == ["error"] * 5


async def test_a_success_that_ends_after_the_last_failure_does_not_restore_the_tool() -> None:
    release = asyncio.Event()

    @tool(max_consecutive_failures=1)
    async def work(waits: bool) -> str:
        if not waits:
            raise ValueError
        await release.wait()
        return "late"

    counts: dict[str, int] = {}
    late = asyncio.create_task(ask(work, counts, '{"waits": true}'))
    await asyncio.sleep(0)
    assert (await ask(work, counts, '{"waits": false}')).status == "unavailable"
    release.set()
    assert (await late).status == "success"
    assert (await ask(work, counts, '{"waits": true}')).status == "unavailable"


async def test_the_count_applies_through_wrappers() -> None:
    made = (
        Toolset([scripted([ValueError()] * 5, max_consecutive_failures=1)])
        .prefixed("x_")
        .cached()
        .with_result_store()[0]
    )
    assert await statuses(made, 2) == ["unavailable", "unavailable"]


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2"])
def test_the_number_of_failures_is_a_whole_number_of_1_or_more(wrong: Any) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(max_consecutive_failures=wrong)(scripted)
    assert caught.value.names == ("max_consecutive_failures",)


async def test_a_run_continues_and_the_model_reads_the_note() -> None:
    calls = [
        Reply(Message("assistant", "", tool_calls=[ToolCall(f"c{number}", "work", json.dumps({"n": number}))]))
        for number in range(3)
    ]
    agent: Agent[Any, Any] = Agent(
        ScriptedModel([*calls, "done"]),
        tools=[scripted([ValueError("a"), ValueError("b")], max_consecutive_failures=2)],
    )
    result = await agent.run("go")
    texts = [message.text for message in result.messages if message.role == "tool"]
    assert "not available" not in texts[0]
    assert all("it failed 2 times in a row in this run" in text for text in texts[1:])
    assert result.output == "done"
