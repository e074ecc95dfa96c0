"""Exceptions that do not derive from `Exception`: a few end the run, all others are the result of a call."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from agentkit import Agent, Reply, ScriptedModel, Session
from agentkit.prompts import Message, ToolCall
from agentkit.testing import controlled_time
from agentkit.tools import MCPToolset, Tool, ToolContext, ToolResult, Toolset, tool
from agentkit_tools.calling.arguments import ToolArguments
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.dispatch import call_tools
from agentkit_tools.errors import MCPServerLost, RunInterrupt
from agentkit_tools.schemas.argument_reader import ArgumentReader


class Stop(RunInterrupt):
    """An exception of the runtime."""


class Panic(BaseException):
    """A panic of Rust code."""


class Said:
    """An exception whose text cannot be read without an exception that ends the run."""

    def __str__(self) -> str:
        raise Stop

    __repr__ = __str__


class Unreadable(Exception):
    __str__ = Said.__str__


def raises(error: BaseException) -> Callable[..., Any]:
    def run(*_: Any, **__: Any) -> Any:
        raise error

    return run


def in_a_coroutine() -> Any:
    async def stops() -> None:
        raise Stop

    return stops


def later_in_a_coroutine() -> Any:
    async def stops() -> None:
        await asyncio.sleep(0.001)
        raise Stop

    return stops


def in_a_thread() -> Any:
    def stops() -> None:
        raise Stop

    return stops


def in_an_awaitable_of_a_thread() -> Any:
    async def waits() -> None:
        raise Stop

    def stops() -> Any:
        return waits()

    return stops


def in_a_generator() -> Any:
    def stops() -> Iterator[str]:
        yield "first"
        raise Stop

    return stops


def in_an_async_generator() -> Any:
    async def stops() -> Any:
        yield "first"
        raise Stop

    return stops


def in_a_separate_task() -> Any:
    async def stops() -> None:
        await asyncio.create_task(later_in_a_coroutine()())

    return stops


def in_its_cleanup_after_a_cancellation() -> Any:
    @tool(timeout=0.02)
    async def stops() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            raise Stop

    return stops


def in_the_text_of_its_error() -> Any:
    async def stops() -> None:
        raise Unreadable

    return stops


def in_an_iterator_it_returns() -> Any:
    async def stops() -> Any:
        return iter(raises(Stop()), None)

    return stops


def in_a_validator() -> Any:
    async def stops(n: Any = 1) -> None: ...

    stops.__annotations__["n"] = Annotated[int, AfterValidator(lambda value: raises(Stop())())]
    return stops


def in_a_validator_that_is_called_again() -> Any:
    return Tool(in_a_validator(), retries=1, repair=True)


def in_a_retry() -> Any:
    errors = iter([ValueError("first"), Stop()])

    @tool(retries=1, backoff=0)
    async def stops() -> None:
        raise next(errors)

    return stops


def in_a_predicate() -> Any:
    async def stops() -> None: ...

    return Tool(stops, approval=raises(Stop()))


def in_an_async_predicate() -> Any:
    async def stops() -> None: ...

    async def decide(*_: Any) -> bool:
        await asyncio.sleep(0)
        raise Stop

    return Tool(stops, approval=decide)


def in_a_wrapper() -> Any:
    async def around(proceed: Any, call: Any, context: Any) -> Any:
        await asyncio.sleep(0)
        raise Stop

    async def stops() -> None: ...

    return Toolset([stops]).wrapped(around)[0]


def under_a_wrapper() -> Any:
    return Toolset([in_a_coroutine()]).limited(3).cached().with_result_store()[0]


def of_a_described_tool() -> Any:
    return Tool.from_json_schema("stops", "", None, in_a_coroutine())


PLACES = [
    in_a_coroutine,
    later_in_a_coroutine,
    in_a_thread,
    in_an_awaitable_of_a_thread,
    in_a_generator,
    in_an_async_generator,
    in_a_separate_task,
    in_its_cleanup_after_a_cancellation,
    in_the_text_of_its_error,
    in_an_iterator_it_returns,
    in_a_validator,
    in_a_validator_that_is_called_again,
    in_a_retry,
    in_a_predicate,
    in_an_async_predicate,
    in_a_wrapper,
    under_a_wrapper,
    of_a_described_tool,
]


def made(place: Callable[[], Any]) -> Tool:
    found = place()
    return found if isinstance(found, Tool) else Tool(found)


@pytest.mark.parametrize("place", PLACES)
async def test_it_ends_a_run_and_is_not_stored_as_a_result(place: Callable[[], Any]) -> None:
    calls = Message(
        "assistant", "", tool_calls=[ToolCall("c", "stops", '{"n": 1}' if "validator" in place.__name__ else "")]
    )
    session = Session()
    agent: Agent[Any, Any] = Agent(ScriptedModel([Reply(calls), "went on"]), tools=[made(place)])
    with pytest.raises(Stop):
        await agent.run("go", session=session, approve=lambda call: True)
    assert not [message for message in session.conversation if message.role == "tool"]


@pytest.mark.parametrize("names", ["s", "sw", "ws"])
async def test_it_passes_from_a_tool_that_is_closed_because_it_ignores_its_time_limit(names: str) -> None:
    @tool(timeout=1)
    async def stops() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue
            except GeneratorExit:
                raise Stop from None

    async def waits() -> None:
        await asyncio.sleep(60)

    tools = {"s": stops, "w": Tool(waits)}
    calls = [ToolCall(name, name, "") for name in names]
    with controlled_time() as clock, pytest.raises(Stop):
        await call_tools(calls, tools, lambda call: ToolContext(None))
    assert clock.seconds < 10


@pytest.mark.parametrize("place", [in_a_coroutine, later_in_a_coroutine, in_a_thread])
@pytest.mark.parametrize("position", [0, 1])
async def test_it_cancels_the_other_calls_immediately(place: Callable[[], Any], position: int) -> None:
    cancelled: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("waits")
            raise

    tools = {"stops": made(place), "waits": Tool(waits)}
    names = ["waits", "waits"]
    names.insert(position, "stops")
    calls = [ToolCall(f"c{number}", name, "") for number, name in enumerate(names)]
    ended: list[ToolResult] = []
    with pytest.raises(Stop):
        async with asyncio.timeout(30):
            await call_tools(calls, tools, lambda call: ToolContext(None, "r", call.id), on_end=ended.append)
    assert ended == []
    assert set(cancelled) <= {"waits"}
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0


async def test_a_cancellation_of_the_round_meanwhile_cancels_it() -> None:
    async def waits() -> None:
        await asyncio.sleep(60)

    tools = {"waits": Tool(waits)}
    calls = [ToolCall(one, "waits", "") for one in "abc"]
    task = asyncio.create_task(call_tools(calls, tools, lambda call: ToolContext(None)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


@pytest.mark.parametrize("listener", ["on_start", "on_end"])
async def test_it_passes_from_a_listener(listener: str) -> None:
    async def quick() -> str:
        return "done"

    options: Any = {listener: raises(Stop())}
    with pytest.raises(Stop):
        await call_tools(
            [ToolCall("c", "quick", "")],
            {"quick": Tool(quick)},
            lambda call: ToolContext(None),
            **options,
        )


async def test_it_cancels_the_other_calls_immediately_from_a_listener_of_a_late_call() -> None:
    over: list[bool] = []

    @tool(timeout=1)
    async def stubborn() -> None:
        while not over:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    async def waits() -> None:
        await asyncio.sleep(30)

    tools = {"waits": Tool(waits), "stubborn": stubborn}
    calls = [ToolCall("c1", "waits"), ToolCall("c2", "stubborn")]
    with controlled_time() as clock:
        with pytest.raises(Stop):
            await call_tools(calls, tools, lambda call: ToolContext(None), on_end=raises(Stop()))
        assert clock.seconds < 10
    over.append(True)


OTHERS: list[Callable[[], BaseException]] = [
    Panic,
    GeneratorExit,
    asyncio.CancelledError,
    lambda: BaseExceptionGroup("several", [Panic("one"), ValueError("two"), GeneratorExit()]),
]


@pytest.mark.parametrize("error", OTHERS)
@pytest.mark.parametrize("place", PLACES)
async def test_any_other_exception_is_the_result_of_its_call_only(
    place: Callable[[], Any], error: Callable[[], BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Stop` of the places is replaced by the other exception."""
    monkeypatch.setitem(globals(), "Stop", lambda: error())
    done: list[str] = []

    async def sibling() -> str:
        await asyncio.sleep(0)
        done.append("sibling")
        return "here"

    arguments = '{"n": 1}' if "validator" in place.__name__ else ""
    calls = [ToolCall("a", "sibling", ""), ToolCall("c", "stops", arguments), ToolCall("b", "sibling", "")]
    script: list[Any] = [Reply(Message("assistant", "", tool_calls=calls)), "went on"]
    agent: Agent[Any, Any] = Agent(ScriptedModel(script), tools=[made(place), sibling])
    result = await agent.run("go", approve=lambda call: True)
    assert result.output == "went on" and done == ["sibling"] * 2
    assert [message.tool_call_id for message in result.messages if message.role == "tool"] == ["a", "c", "b"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_ends_only_the_call_if_no_main_thread_waits_for_the_run(error: type[BaseException]) -> None:
    async def leave() -> None:
        raise error("now")

    calls = Message("assistant", "", tool_calls=[ToolCall("c", "leave", "")])
    agent: Agent[Any, Any] = Agent(ScriptedModel([calls, "went on", calls, "went on"]), tools=[leave])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: asyncio.run(agent.run("go"))).result().output == "went on"
        assert pool.submit(agent.run_sync, "go").result().output == "went on"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_exceptions_of_python_pass_too(error: type[BaseException]) -> None:
    async def leave() -> None:
        raise error("now")

    calls = Message("assistant", "", tool_calls=[ToolCall("c", "leave", "")])
    agent: Agent[Any, Any] = Agent(ScriptedModel([Reply(calls), "went on"]), tools=[leave])
    with pytest.raises(error) as caught:
        asyncio.run(agent.run("go"))
    assert type(caught.value) is error
    assert Agent(ScriptedModel(["fine"])).run_sync("go").output == "fine"


def test_a_group_that_contains_it_passes() -> None:
    async def stops() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(later_in_a_coroutine()())

    agent: Agent[Any, Any] = Agent(
        ScriptedModel([Reply(Message("assistant", "", tool_calls=[ToolCall("c", "stops", "")])), "went on"]),
        tools=[stops],
    )
    with pytest.raises(BaseExceptionGroup) as caught:
        agent.run_sync("go")
    assert caught.group_contains(Stop)


async def test_a_cancellation_by_the_tool_is_a_result() -> None:
    """Nobody cancelled the run: a task inside of the tool was."""

    async def waits() -> None:
        await asyncio.sleep(60)

    @tool
    async def gives_up() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        await task

    result = await gives_up.call(ToolCall("c", "gives_up", ""), ToolContext(None))
    assert result.status == "cancelled"


@pytest.mark.parametrize("error", [Panic("overflow"), asyncio.CancelledError(), ValueError("no")])
def test_a_failing_reader_raises_the_exceptions_that_end_the_run(error: BaseException) -> None:
    reader = ArgumentReader(raises(error), 100, lambda text: {"n": 1})
    arguments = ToolArguments(reader, {})
    assert arguments.at_once('{"n": 1}') is None
    assert arguments.read("take", '{"n": 1}', ToolPolicy()) == {"n": 1}


def test_it_passes_from_a_reader() -> None:
    arguments = ToolArguments(ArgumentReader(raises(Stop()), 100, raises(Stop())), {})
    with pytest.raises(Stop):
        arguments.at_once("{}")
    with pytest.raises(Stop):
        arguments.read("take", "{}", ToolPolicy())


def test_an_exit_in_a_tool_exits_the_program() -> None:
    program = """
        from agentkit import Agent, Message, Reply, ScriptedModel, ToolCall

        async def leave() -> None:
            raise SystemExit(7)

        call = Reply(Message("assistant", "", tool_calls=[ToolCall("c", "leave", "")]))
        print(Agent(ScriptedModel([call, "went on"]), tools=[leave]).run_sync("go").output)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert (ended.returncode, ended.stdout) == (7, "")


@pytest.mark.parametrize(("error", "raised"), [(Stop, Stop), (Panic, MCPServerLost), (SystemExit, MCPServerLost)])
async def test_the_transport_of_an_mcp_server_raises_it(error: type[BaseException], raised: Any) -> None:
    """The transport is opened in a thread of the toolset, where `SystemExit` ends only the connection."""
    server = MCPToolset(raises(error("now")))
    with pytest.raises(raised):
        await server.prompts()
    with pytest.raises(raised):
        list(server)
    server.close()
