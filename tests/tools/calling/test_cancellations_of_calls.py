"""Cancellations of calls: by code inside of a tool, from outside, and of code that ignores them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from agentkit.prompts import ToolCall
from agentkit.testing import Clock, controlled_time
from agentkit.tools import Tool, ToolContext, ToolResult, Toolset, tool
from agentkit_tools.dispatch import call_tools
from tests.waiting import LONG

SLOW_CLEANUP = 5.0
"""Seconds; more than a tool that was cancelled from outside has for its cleanup."""


@pytest.fixture
def clock() -> Iterator[Clock]:
    with controlled_time() as clock:
        yield clock


async def call_alone(made: Tool) -> ToolResult:
    return await made.call(ToolCall("c", made.name, ""), ToolContext(None, "r", "c"))


async def call_in_run(made: Tool, **listeners: Any) -> ToolResult:
    calls = [ToolCall("c", made.name, "")]
    results = await call_tools(calls, {made.name: made}, lambda call: ToolContext(None, "r", call.id), **listeners)
    return results[0]


async def stubborn() -> str:
    with contextlib.suppress(GeneratorExit):
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG)
    raise GeneratorExit


async def with_slow_cleanup() -> None:
    try:
        await asyncio.sleep(LONG)
    finally:
        await asyncio.sleep(SLOW_CLEANUP)


async def fails() -> None:
    await asyncio.sleep(0.01)
    raise ValueError("a task")


async def inner_timeout() -> str:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            await with_slow_cleanup()
    return "done"


async def timeouts_one_after_the_other() -> str:
    for _ in range(10):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                try:
                    await asyncio.sleep(LONG)
                finally:
                    await asyncio.sleep(0.9)
    return "done"


async def group_that_fails() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(with_slow_cleanup())
    except* ValueError:
        pass
    return "done"


async def work_after_a_group_that_fails() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
    except* ValueError:
        pass
    await asyncio.sleep(SLOW_CLEANUP)
    return "done"


async def call_with_a_time_limit() -> str:
    result = await call_alone(Tool(stubborn, timeout=1.0))
    assert result.status == "timeout"
    return "done"


@pytest.mark.parametrize("call", [call_alone, call_in_run])
@pytest.mark.parametrize(
    "function",
    [
        inner_timeout,
        timeouts_one_after_the_other,
        group_that_fails,
        work_after_a_group_that_fails,
        call_with_a_time_limit,
    ],
)
async def test_a_cancellation_inside_a_tool_does_not_shorten_its_time(
    call: Callable[[Tool], Coroutine[Any, Any, ToolResult]], function: Callable[[], Any], clock: Clock
) -> None:
    result = await call(Tool(function, timeout=LONG))
    assert result.content == "done"
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0


async def test_a_scope_of_anyio_inside_a_tool_does_not_shorten_its_time() -> None:
    """anyio repeats its cancellation in each step of the loop, so its time cannot be controlled."""

    async def scope() -> str:
        with anyio.move_on_after(0.01):
            try:
                await anyio.sleep(LONG)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(2.2)
        return "done"

    assert (await call_in_run(Tool(scope))).content == "done"


async def test_a_wrapper_may_limit_the_time_of_a_stubborn_tool(clock: Clock) -> None:
    async def limit(proceed: Any, call: ToolCall, context: Any) -> ToolResult:
        try:
            async with asyncio.timeout(1):
                return await proceed(call, context)  # type: ignore[no-any-return]
        except TimeoutError:
            return ToolResult(call.id, call.name, "too slow")

    wrapped = Toolset([Tool(stubborn, timeout=10.0)]).wrapped(limit)[0]
    assert (await call_alone(wrapped)).content == "too slow"
    assert clock.seconds < 13


async def test_time_of_an_inner_timeout_is_part_of_the_time_limit(clock: Clock) -> None:
    @tool(timeout=1.0)
    async def slow() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.9):
                try:
                    await asyncio.sleep(LONG)
                finally:
                    await asyncio.sleep(0.01)
        await stubborn()

    assert (await call_alone(slow)).status == "timeout"
    assert clock.seconds <= 3.1


async def test_time_before_the_first_wait_is_part_of_the_time_limit(clock: Clock) -> None:
    @tool(timeout=1.0)
    async def slow() -> None:
        clock.advance(0.8)
        await asyncio.sleep(0.5)

    assert (await call_alone(slow)).status == "timeout"


@pytest.mark.parametrize("approval", ["never", "predicate"])
async def test_a_cancellation_that_is_pending_before_a_call_cancels_it(approval: str) -> None:
    async def needs_approval(arguments: Any, context: Any) -> bool:
        await asyncio.sleep(0)
        return False

    policy: Any = needs_approval if approval == "predicate" else approval

    @tool(approval=policy)
    async def wait() -> None:
        await asyncio.sleep(0)

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await call_alone(wait)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancelled())


async def test_an_awaitable_that_asyncio_refuses_is_an_error() -> None:
    class OtherFuture(asyncio.Future[Any]):
        pass

    other_loop = asyncio.new_event_loop()
    other_future = OtherFuture(loop=other_loop)

    @tool(timeout=1.0)
    async def awaits_itself() -> None:
        task: Any = asyncio.current_task()
        await task

    @tool(timeout=1.0)
    async def awaits_other_loop() -> None:
        await other_future

    try:
        for refused in (awaits_itself, awaits_other_loop):
            assert (await call_alone(refused)).status == "error"
    finally:
        other_loop.close()


async def test_a_cancellation_from_outside_is_counted_until_uncancel() -> None:
    """The task was cancelled, and calls a tool within a time limit in its cleanup."""

    @tool
    async def swallows() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)
        return "done"

    async def cleanup() -> int:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)
        async with asyncio.timeout(0.01):
            assert (await call_alone(swallows)).content == "done"
        return task.cancelling()

    task = asyncio.create_task(cleanup())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == 1


async def test_the_message_of_a_cancellation_reaches_the_code() -> None:
    messages: list[Any] = []

    async def child() -> None:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError as error:
            messages.append(error.args)
            raise

    @tool
    async def waits() -> None:
        await asyncio.create_task(child())

    task = asyncio.create_task(call_alone(waits))
    await asyncio.sleep(0.01)
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert messages == [("why",)]


async def test_abandoned_code_is_closed_in_its_task_and_context(clock: Clock) -> None:
    variable = ContextVar("variable", default=0)
    tasks: list[Any] = []

    @tool(timeout=1.0)
    async def in_a_context() -> None:
        token = variable.set(1)
        try:
            await stubborn()
        finally:
            variable.reset(token)
            tasks.append(asyncio.current_task())

    assert (await call_alone(in_a_context)).status == "timeout"
    assert tasks == [asyncio.current_task()]
    assert variable.get() == 0


@pytest.mark.parametrize("kind", ["scope", "group"])
async def test_a_scope_of_abandoned_code_does_not_cancel_the_caller(kind: str, clock: Clock) -> None:
    @tool(timeout=1.0)
    async def in_a_scope() -> None:
        if kind == "scope":
            with anyio.move_on_after(10):
                await stubborn()
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 10)
                await stubborn()

    assert (await call_alone(in_a_scope)).status == "timeout"
    await asyncio.sleep(20)


@pytest.mark.parametrize("is_left", [True, False])
async def test_an_exception_of_a_task_that_a_tool_waits_for_is_not_logged(is_left: bool, clock: Clock) -> None:
    logged: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context["message"]))

    async def child() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(2)
        if is_left:
            await asyncio.sleep(5)
        raise ValueError("a task")

    @tool(timeout=1.0 if is_left else LONG)
    async def waits() -> None:
        task, caller = asyncio.create_task(child()), asyncio.current_task()
        assert caller is not None
        if not is_left:
            task.add_done_callback(lambda _: asyncio.get_running_loop().call_soon(caller.cancel))
        await task

    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.create_task(call_alone(waits))
    await asyncio.sleep(10)
    gc.collect()
    assert logged == []


@pytest.mark.parametrize("listener", ["on_start", "on_end"])
async def test_a_listener_that_ignores_its_cancellation_is_abandoned(listener: str, clock: Clock) -> None:
    async def ignore(_: Any) -> None:
        await stubborn()

    @tool
    async def quick() -> str:
        return "quick"

    task = asyncio.create_task(call_in_run(quick, **{listener: ignore}))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.seconds < 3


@pytest.mark.parametrize("call", [call_alone, call_in_run])
async def test_a_cancellation_after_the_time_limit_does_not_interrupt_the_cleanup(
    call: Callable[[Tool], Coroutine[Any, Any, ToolResult]], clock: Clock
) -> None:
    has_ended = False

    @tool(timeout=1.0)
    async def cleans_up() -> str:
        nonlocal has_ended
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)
        await asyncio.sleep(1)
        has_ended = True
        return "done"

    task = asyncio.create_task(call(cleans_up))
    await asyncio.sleep(1.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert has_ended


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks")
async def test_an_eager_call_that_ends_the_run_ends_the_calls_after_it() -> None:
    class Pause(BaseException):
        pass

    @tool
    async def ends() -> None:
        raise Pause

    @tool
    async def waits() -> None:
        await asyncio.sleep(LONG)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
    calls = [ToolCall("1", "ends", ""), ToolCall("2", "waits", "")]
    try:
        with pytest.raises(Pause):
            async with asyncio.timeout(LONG / 2):
                await call_tools(calls, {"ends": ends, "waits": waits}, lambda call: ToolContext(None, "r", call.id))
    finally:
        loop.set_task_factory(None)
