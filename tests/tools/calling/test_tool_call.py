"""A call always ends in a result that the model can read."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import dataclasses
import datetime as dt
import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator

from agentkit.prompts import File, Image, Text, ToolCall
from agentkit.testing import controlled_time
from agentkit.tools import (
    Tool,
    ToolArgumentError,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    ToolPolicy,
    ToolResult,
    Toolset,
    tool,
)
from agentkit.tools.types import abandoned_threads, unknown_tool
from agentkit_tools.calling import tool_threads
from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.dispatch import call_tools
from tests.paths import ROOT
from tests.waiting import LONG


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate pool: threads that other tests abandoned are not counted."""
    monkeypatch.setattr(tool_threads, "_tools", tool_threads._threads(tool_threads._MAX_TOOLS))
    monkeypatch.setattr(tool_threads, "_recalls", tool_threads._threads(tool_threads._MAX_RECALLS))


def context(**changes: Any) -> ToolContext[Any]:
    return ToolContext(changes.pop("deps", None), "run", "call", **changes)


async def ask(made: Tool, arguments: Any = "{}", ctx: ToolContext[Any] | None = None) -> ToolResult:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return await made.call(ToolCall("c1", made.name, text), ctx or context())


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


async def test_a_valid_call_reaches_the_function_and_returns_its_result() -> None:
    result = await ask(add, {"a": 2})
    assert (result.status, result.content, result.value, result.ok) == ("success", "3", 3, True)
    message = result.message
    assert (message.role, message.tool_call_id, message.name, message.content) == ("tool", "c1", "add", "3")


async def test_empty_arguments_are_no_arguments() -> None:
    @tool
    async def hello() -> str:
        return "hi"

    assert (await ask(hello, "")).content == "hi"


async def test_all_problems_are_named_with_the_values() -> None:
    result = await ask(add, '{"b": "x", "c": [1], "d": null}')
    assert result.status == "error"
    assert result.content == (
        "add was not called: 4 problems with the arguments.\n"
        "- a: is required but missing (expected integer)\n"
        '- b: expected an integer, got "x"\n'
        "- c: unknown parameter; valid parameters: a, b, got [1]\n"
        "- d: unknown parameter; valid parameters: a, b, got null\n"
        "Correct this and call it again."
    )
    assert isinstance(result.error, ToolArgumentError)
    assert [problem.path for problem in result.error.problems] == ["a", "b", "c", "d"]


class Home(BaseModel):
    zip: str


class Person(BaseModel):
    home: Home
    others: list[Home] = []


def test_a_mapping_is_validated_like_json_text() -> None:
    assert add.validate({"a": 1}) == add.validate('{"a": 1}')
    with pytest.raises(ToolArgumentError) as caught:
        add.validate({"a": "one"})
    assert [problem.path for problem in caught.value.problems] == ["a"]
    for wrong in (None, 1, [("a", 1)]):
        with pytest.raises(ToolError):
            add.validate(wrong)  # type: ignore[arg-type]


async def test_problems_deep_inside_are_named_by_path() -> None:
    @tool
    async def save(person: Person, v: int | list[float] = 1) -> None: ...

    with pytest.raises(ToolArgumentError) as caught:
        save.validate('{"person": {"home": {}, "others": [{"zip": "1"}, {"zip": 5}]}, "v": ["x"]}')
    assert [problem.path for problem in caught.value.problems] == [
        "person.home.zip",
        "person.others[1].zip",
        "v[0]",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[1]", "one JSON object"),
        ('"a"', "one JSON object"),
        ("nonsense", "not valid JSON"),
        ("[" * 100_000, "more than 40,000 values"),
        ("[" * 30_000, "not valid JSON"),
        ('{"a": ' + "[" * 10_000 + "]" * 10_000 + "}", "not valid JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "not valid JSON"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ('{"a": "\ud800"}', "expected text of Unicode characters"),
        ('{"a": NaN}', "finite"),
        ('{"a": Infinity}', "finite"),
        ('{"a": 1e999}', "a:"),
        ('{"a": 1, "a": "x"}', "a:"),
        ("\x00", "not valid JSON"),
    ],
)
async def test_the_error_of_hostile_arguments_is_short(text: str, reason: str) -> None:
    result = await ask(add, text)
    assert result.status == "error"
    assert reason in str(result.content)
    assert len(result.content) < 1_000
    json.dumps(result.content).encode()


async def test_thousands_of_problems_are_counted_not_listed() -> None:
    @tool
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = await ask(total, {"numbers": ["x"] * 5_000})
    assert "5000 problems" in str(result.content)
    assert "and 4980 more" in str(result.content)
    assert len(result.content) < 6_000


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda data: data.decode("latin-1")))
def test_no_arguments_text_makes_a_call_raise(text: str) -> None:
    result = asyncio.run(ask(add, text))
    assert result.status in ("success", "error")


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(JSON)
def test_any_json_value_has_a_result_that_can_be_sent(value: Any) -> None:
    @tool
    async def echo(value: Any) -> Any:
        return value

    text = json.dumps({"value": value})
    result = asyncio.run(ask(echo, text))
    if result.ok:
        assert isinstance(result.content, str)
        result.content.encode()


async def test_the_context_and_the_dependencies_reach_the_function() -> None:
    @tool
    async def who(user: str, ctx: ToolContext[dict[str, str]], *, again: ToolContext | None = None) -> str:
        return f"{ctx.deps['name']} {user} {ctx.run_id} {ctx.call_id} {ctx.attempt}"

    result = await ask(who, {"user": "u"}, context(deps={"name": "Ann"}))
    assert result.content == "Ann u run call 1"
    assert (await ask(who, {"user": "u", "ctx": 5})).status == "error"


async def test_a_model_cannot_supply_the_context_through_open_kwargs() -> None:
    @tool
    async def who(ctx: ToolContext, /, **more: Any) -> str:
        return f"{type(ctx).__name__} {sorted(more)}"

    assert (await ask(who, {"x": 1})).content == "ToolContext ['x']"
    result = await ask(who, {"ctx": "forged"})
    assert "forged" not in str(result.value)


async def test_positional_only_and_var_args_arrive_in_order() -> None:
    @tool
    async def odd(a: int, /, b: int = 2, *rest: int, c: int = 3, **named: int) -> Any:
        return [a, b, rest, c, named]

    assert (await ask(odd, {"a": 1})).value == [1, 2, (), 3, {}]
    assert (await ask(odd, {"a": 1, "rest": [5, 6], "c": 7, "z": 8})).value == [1, 2, (5, 6), 7, {"z": 8}]


async def test_defaults_from_a_pydantic_field_are_filled_in() -> None:
    from pydantic import Field

    @tool
    async def page(n: int = Field(default=4, ge=1), tags: list[str] = Field(default_factory=list)) -> Any:  # noqa: B008
        return [n, tags]

    assert (await ask(page)).value == [4, []]


async def test_the_idempotency_key_is_stable_and_separates_runs_and_calls() -> None:
    key = ToolContext(None, "run", "call").idempotency_key
    assert key == ToolContext("other deps", "run", "call", attempt=3).idempotency_key
    assert len(key) == 32
    others = [("run", "call2"), ("run2", "call"), ("runc", "all"), ("", "runcall"), ("1:", "x")]
    assert len({key, *(ToolContext(None, *ids).idempotency_key for ids in others)}) == 6


# Effects of a tool on its caller


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad city"), "boom failed: ValueError: bad city"),
        (KeyError("x"), "boom failed: KeyError: 'x'"),
        (StopIteration(4), None),
        (StopAsyncIteration(4), None),
        (Mute(), "boom failed: Mute"),
        (
            ExceptionGroup("two", [ValueError("a"), TypeError("b")]),
            "boom failed: ExceptionGroup: two (2 sub-exceptions); ValueError: a; TypeError: b",
        ),
        (RecursionError("deep"), "boom failed: RecursionError: deep"),
        (TimeoutError("its own"), "boom failed: TimeoutError: its own"),
        (ToolArgumentError("other", []), None),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), None),
        (ValueError("\ud800"), "boom failed: ValueError: \ufffd"),
    ],
)
@pytest.mark.parametrize("where", ["coroutine", "thread"])
async def test_any_exception_becomes_a_readable_error(where: str, error: BaseException, text: str | None) -> None:
    if where == "coroutine":

        async def boom() -> None:
            await asyncio.sleep(0)
            raise error
    else:

        def boom() -> None:  # type: ignore[misc]
            raise error

    for policy in ({}, {"timeout": 5.0}):
        result = await ask(Tool(boom, **policy))  # type: ignore[arg-type]
        assert result.status == "error"
        assert text is None or result.content == text
        assert "Traceback" not in str(result.content)
        json.dumps(result.content).encode()


async def test_a_thread_may_even_raise_keyboard_interrupt_or_cancellation() -> None:
    for error in (KeyboardInterrupt("no"), asyncio.CancelledError("no")):

        def boom() -> None:
            raise error  # noqa: B023

        result = await ask(Tool(boom))
        assert result.status in ("error", "cancelled")


async def test_an_interrupt_in_the_event_loop_is_the_users_and_passes() -> None:
    @tool
    async def boom() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ask(boom)


async def test_a_very_long_error_is_cut() -> None:
    @tool
    async def boom() -> None:
        raise ValueError("x" * 1_000_000)

    assert len((await ask(boom)).content) < 3_000


async def test_a_cancellation_by_the_tool_is_a_result() -> None:
    @tool
    async def stop() -> None:
        raise asyncio.CancelledError

    assert (await ask(stop)).status == "cancelled"
    assert (await ask(stop.with_changes(timeout=LONG))).status == "cancelled"


@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_cancellation_from_outside_is_raised(timeout: float | None) -> None:
    begun, ended = asyncio.Event(), list[str]()

    @tool(timeout=timeout)
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("yes")

    task = asyncio.ensure_future(ask(wait))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["yes"]


@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_a_tool_that_ignores_cancellation_cannot_keep_the_run_alive(timeout: float | None) -> None:
    begun = asyncio.Event()

    @tool(timeout=timeout)
    async def stubborn() -> str:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        return "I am still here"

    async def run() -> None:
        await call_tools([ToolCall("c1", "stubborn")], {"stubborn": stubborn}, lambda call: ToolContext(None))

    task = asyncio.ensure_future(run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("canceller", ["asyncio", "anyio"])
async def test_a_single_call_that_ignores_its_cancellation_is_abandoned(timeout: float | None, canceller: str) -> None:
    """anyio repeats its cancellation in each step of the loop, so its time cannot be controlled."""
    over = False

    @tool(timeout=timeout)
    async def stubborn() -> None:
        while not over:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)

    if canceller == "anyio":
        with anyio.move_on_after(0.1) as scope:
            await ask(stubborn)
        assert scope.cancelled_caught
    else:
        with controlled_time() as clock:
            task = asyncio.ensure_future(ask(stubborn))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert 2 <= clock.seconds < 3
    over = True


async def test_a_single_call_runs_in_the_task_of_the_caller() -> None:
    tasks: list[object] = []

    @tool(timeout=None)
    async def fails() -> None:
        raise ValueError("wrong")

    @tool(timeout=None)
    async def note() -> None:
        tasks.append(asyncio.current_task())

    await ask(note)
    await ask(note.with_changes(timeout=30.0))
    assert tasks == [asyncio.current_task()] * 2
    assert (await ask(fails)).status == "error"


@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_a_tool_may_cancel_its_run(timeout: float | None) -> None:
    @tool(timeout=timeout)
    async def stop() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(30)
        return "never"

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(ask(stop))


async def test_a_call_during_the_handling_of_a_cancellation_ends_normally() -> None:
    @tool(timeout=0.01)
    async def hang() -> None:
        await asyncio.sleep(30)

    async def clean_up() -> ToolResult:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return await ask(hang)
        raise AssertionError

    task = asyncio.ensure_future(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    assert (await task).status == "timeout"


@pytest.mark.parametrize("where", ["at once", "later", "thread", "late"])
async def test_objects_of_a_failed_call_are_freed_with_its_result(where: str) -> None:
    class Large:
        pass

    held: list[weakref.ref[Large]] = []

    def fail() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise ValueError

    async def fail_later() -> None:
        await asyncio.sleep(0)
        fail()

    async def fail_at_once() -> None:
        fail()

    async def fail_late() -> None:
        large = Large()
        held.append(weakref.ref(large))
        await asyncio.sleep(30)

    functions: dict[str, Any] = {"at once": fail_at_once, "later": fail_later, "thread": fail, "late": fail_late}
    gc.collect()
    gc.disable()
    try:
        result = await ask(Tool(functions[where], timeout=0.02 if where == "late" else 30.0))
        assert result.status == ("timeout" if where == "late" else "error")
        del result
        for _ in range(2_000):  # the loop and the thread release it later
            if held[0]() is not None:
                await asyncio.sleep(0.001)
        assert held[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "policy", [PolicyOptions(), PolicyOptions(repair=True), PolicyOptions(max_consecutive_failures=3)]
)
async def test_rejected_arguments_are_freed_immediately(policy: PolicyOptions) -> None:
    """Without the garbage collector: they can be five million characters."""
    held: list[weakref.ref[Any]] = []

    class Large:
        """A local variable of a frame that the traceback of the error refers to."""

    def reject(value: Any) -> Any:
        large = Large()
        held.append(weakref.ref(large))
        raise LookupError

    def take(n: Any) -> None: ...

    take.__annotations__["n"] = Annotated[Any, BeforeValidator(reject)]
    made = Tool(take, **policy)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ToolArgumentError):
            made.validate({"n": "x"})
        assert [one() for one in held] == [None] * len(held)
        result = await ask(made, {"n": "x"})
        assert isinstance(result.error, ToolArgumentError)
        freed = weakref.ref(result.error)
        del result
        for _ in range(2_000):  # the loop and the thread release it later
            if freed() is not None or held[-1]() is not None:
                await asyncio.sleep(0.001)
        assert [one() for one in (*held, freed)] == [None] * (len(held) + 1)
    finally:
        gc.enable()


async def test_a_cancellation_abandons_a_thread_and_counts_it(
    own_threads: None, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = threading.Event(), threading.Event()

    @tool
    def wait() -> None:
        begun.set()
        release.wait(600)

    task = asyncio.ensure_future(ask(wait))
    await asyncio.to_thread(begun.wait, LONG)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert abandoned_threads() == 1
    release.set()
    while abandoned_threads():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert caplog.records == []


# Time limits


async def test_a_tool_that_hangs_ends_in_a_timeout() -> None:
    cleaned: list[int] = []

    @tool(timeout=0.02)
    async def hang() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            cleaned.append(1)

    task = asyncio.current_task()
    assert task is not None
    result = await ask(hang)
    assert (result.status, result.content) == (
        "timeout",
        "hang did not end within 0.02 seconds. It may still have had an effect.",
    )
    assert isinstance(result.error, TimeoutError)
    assert cleaned == [1]
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # no cancellation remains


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_tool_that_can_never_be_cancelled_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_tools.calling.deadline._GRACE", 0.02)

    @tool(timeout=0.02)
    async def hang() -> None:
        while True:
            try:
                await asyncio.sleep(30)
            except BaseException:
                continue

    task = asyncio.current_task()
    assert task is not None
    assert (await ask(hang)).status == "timeout"
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_result_during_the_cancellation_still_counts() -> None:
    @tool(timeout=0.02)
    async def late() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "what I have so far"
        return ""

    assert (await ask(late)).content == "what I have so far"
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_time_limits_nest() -> None:
    @tool(timeout=LONG)
    async def outer() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)
        except TimeoutError:
            await asyncio.sleep(0.01)
            return "inner limit"
        return ""

    assert (await ask(outer)).content == "inner limit"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await ask(outer.with_changes(timeout=LONG))
            await asyncio.sleep(30)


async def test_task_groups_work_inside_a_limited_tool() -> None:
    @tool(timeout=0.05)
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(30))
            tasks.create_task(asyncio.sleep(30))

    assert (await ask(group)).status == "timeout"


async def test_a_sync_tool_that_hangs_is_abandoned_counted_and_forgotten(own_threads: None) -> None:
    release = threading.Event()
    begun: list[int] = []

    @tool
    def hang() -> str:
        begun.append(1)
        release.wait(600)
        return "too late"

    timeout = 0.1
    while not begun:  # a busy machine may not even start them in time
        results = await asyncio.gather(ask(hang.with_changes(timeout=timeout)), ask(hang.with_changes(timeout=timeout)))
        assert [result.status for result in results] == ["timeout", "timeout"]
        timeout *= 2
    while abandoned_threads() != len(begun):
        await asyncio.sleep(0.01)
    release.set()
    while abandoned_threads():
        await asyncio.sleep(0.01)


async def test_if_too_many_sync_tools_hang_other_sync_calls_are_unavailable_and_async_tools_work(
    own_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_threads._tools, "limit", 2)
    release = threading.Event()

    @tool(timeout=0.05)
    def hang() -> None:
        release.wait(600)

    @tool
    def quick() -> str:
        return "quick"

    @tool
    async def free() -> str:
        return "free"

    while abandoned_threads() < 2:
        await ask(hang)
    refused = await ask(quick)
    assert refused.status == "error" and "hold their threads" in str(refused.content)
    assert (await ask(free)).content == "free"
    release.set()
    while abandoned_threads():
        await asyncio.sleep(0.01)
    assert (await ask(quick)).content == "quick"


def test_a_tool_has_a_time_limit_by_default() -> None:
    assert tool(lambda: None, name="plain", description="x").policy.timeout == 60


def test_an_abandoned_thread_does_not_keep_the_process_alive() -> None:
    code = """
import asyncio, time
from agentkit.prompts import ToolCall
from agentkit.tools import ToolContext, tool

@tool(timeout=0.05)
def hang():
    time.sleep(60)

print(asyncio.run(hang.call(ToolCall("1", "hang"), ToolContext(None))).status)
"""
    root = ROOT
    path = ":".join(str(root / name) for name in ("prompts", "tools"))
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}, timeout=LONG
    )
    assert found.stdout.strip() == "timeout"


# Threads


async def test_sync_tools_run_in_threads_and_at_the_same_time() -> None:
    barrier = threading.Barrier(3)

    @tool
    def meet() -> str:
        barrier.wait(LONG)
        return threading.current_thread().name

    results = await asyncio.gather(*(ask(meet) for _ in range(3)))
    assert [result.content for result in results] == ["agentkit-tool"] * 3


async def test_context_variables_are_seen_but_not_changed() -> None:
    variable = contextvars.ContextVar("variable", default="outside")

    @tool
    def look() -> str:
        before = variable.get()
        variable.set("inside")
        return before

    variable.set("mine")
    assert (await ask(look)).content == "mine"
    assert variable.get() == "mine"


async def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    def indirect(a: int) -> Any:
        return add(a)

    assert (await ask(Tool(indirect), {"a": 1})).content == "2"
    assert (await ask(Tool(indirect, timeout=LONG), {"a": 1})).content == "2"


async def test_a_tool_may_start_a_separate_event_loop_and_call_a_tool() -> None:
    @tool
    def outer() -> str:
        return str(asyncio.run(ask(inner)).content)

    @tool
    def inner() -> str:
        return "reached"

    assert (await ask(outer)).content == "reached"


async def test_nested_sync_tools_do_not_starve_when_every_thread_is_taken(
    own_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_threads._tools, "limit", 2)

    @tool
    def inner() -> str:
        return "in"

    @tool
    def outer() -> str:
        time.sleep(0.01)
        return str(asyncio.run(ask(inner)).content)

    results = await asyncio.wait_for(asyncio.gather(*(ask(outer) for _ in range(8))), LONG)
    assert [result.content for result in results] == ["in"] * 8


async def test_a_full_pool_delays_calls_and_cancelled_calls_never_start(
    own_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_threads._tools, "limit", 1)
    release = threading.Event()

    @tool(timeout=None)
    def hang() -> None:
        release.wait(600)

    @tool
    def quick() -> str:
        return "done at last"

    blocker = asyncio.ensure_future(ask(hang))
    await asyncio.sleep(0.1)
    started: list[int] = []
    result = await ask(Tool(lambda: started.append(1), name="never", timeout=0.02))
    assert result.status == "timeout"
    waiting = asyncio.ensure_future(ask(quick))
    release.set()
    await blocker
    assert (await waiting).content == "done at last"
    assert started == []


async def test_many_tools_that_hang_simultaneously_abandon_no_more_threads_than_few(own_threads: None) -> None:
    most = tool_threads._MAX_TOOLS
    release, begun = threading.Event(), list[int]()

    @tool(timeout=0.5)
    def hang() -> None:
        begun.append(1)
        release.wait(600)

    while abandoned_threads() < most:  # a busy machine may not even start them in time
        results = await asyncio.gather(*(ask(hang) for _ in range(256)))
        assert {result.status for result in results} <= {"timeout", "error"}
    assert len(begun) == abandoned_threads() == most
    assert "hold their threads" in str((await ask(hang)).content)
    release.set()
    while abandoned_threads():
        await asyncio.sleep(0.01)
    assert (await ask(hang)).ok


async def test_at_most_64_threads_are_abandoned_by_tools_and_recalls_together(own_threads: None) -> None:
    release = threading.Event()

    async def abandon_thread(*, is_recall: bool) -> bool:
        """Start a call that hangs, and stop waiting for it; return True if it started."""
        begun = threading.Event()

        def hang() -> None:
            begun.set()
            release.wait(30)

        call = asyncio.ensure_future(tool_threads.run_in_thread(hang, is_recall=is_recall))
        while not begun.is_set() and not call.done():
            await asyncio.sleep(0.001)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return begun.is_set()

    for is_recall in (False, True):
        while await abandon_thread(is_recall=is_recall):
            pass
    assert abandoned_threads() == 64
    release.set()
    while abandoned_threads():
        await asyncio.sleep(0.01)


async def test_a_call_that_waits_for_a_thread_is_refused_if_no_thread_will_be_free(
    own_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_threads._tools, "limit", 1)
    release, begun = threading.Event(), list[int]()

    @tool
    def hang() -> None:
        begun.append(1)
        release.wait(600)

    @tool(timeout=None)
    def quick() -> str:
        return "quick"

    first = asyncio.ensure_future(ask(hang))
    while not begun:
        await asyncio.sleep(0.01)
    waiting = asyncio.ensure_future(ask(quick))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    first.cancel()
    refused = await waiting
    assert refused.status == "error" and "hold their threads" in str(refused.content)
    release.set()
    while abandoned_threads():
        await asyncio.sleep(0.01)


async def test_the_place_of_an_abandoned_call_is_used_by_a_waiting_call(
    own_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_threads._tools, "limit", 2)
    left, held = threading.Event(), threading.Event()
    begun = list[str]()

    @tool(timeout=0.5)
    def leave() -> None:
        begun.append("leave")
        left.wait(600)

    @tool(timeout=None)
    def hold() -> None:
        begun.append("hold")
        held.wait(600)

    @tool(timeout=None)
    def quick() -> str:
        return "quick"

    while "leave" not in begun:
        assert (await ask(leave)).status == "timeout"
    holding = asyncio.ensure_future(ask(hold))
    while "hold" not in begun:
        await asyncio.sleep(0.01)
    waiting = asyncio.ensure_future(ask(quick))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    left.set()
    assert (await waiting).content == "quick"
    held.set()
    await holding


async def test_consecutive_calls_have_the_same_thread(own_threads: None) -> None:
    @tool
    def thread_id() -> int:
        return id(threading.current_thread())

    first = (await ask(thread_id)).value
    while tool_threads.busy_threads():
        await asyncio.sleep(0.001)
    assert (await ask(thread_id)).value == first


async def test_threads_of_recalls_are_busy_too(own_threads: None) -> None:
    release = threading.Event()
    call = asyncio.ensure_future(tool_threads.run_in_thread(release.wait, is_recall=True))
    while not tool_threads.busy_threads():
        await asyncio.sleep(0.001)
    release.set()
    assert await call == (True, None)


async def test_an_idle_thread_ends_and_a_new_thread_starts(own_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_threads._tools, "idle", 0.02)

    @tool
    def quick() -> str:
        return "ok"

    assert (await ask(quick)).ok
    while tool_threads._tools._threads:
        await asyncio.sleep(0.01)
    assert (await ask(quick)).ok


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_tool_that_kills_its_thread_still_answers() -> None:
    import ctypes

    @tool
    def die() -> None:
        me = ctypes.c_ulong(threading.get_ident())
        ctypes.pythonapi.PyThreadState_SetAsyncExc(me, ctypes.py_object(SystemExit))
        for _ in range(1_000_000):
            pass

    result = await asyncio.wait_for(ask(die), LONG)
    assert result.status == "error"

    @tool
    def fine() -> str:
        return "ok"

    assert (await ask(fine)).ok


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_idle_thread_that_is_killed_is_replaced(own_threads: None) -> None:
    import ctypes

    @tool
    def fine() -> int:
        return threading.get_ident()

    victim = (await ask(fine)).value
    while tool_threads.busy_threads():  # Python 3.14: a thread that is killed in a lock keeps it forever
        await asyncio.sleep(0.001)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(victim), ctypes.py_object(SystemExit))
    for _ in range(3):
        assert (await asyncio.wait_for(ask(fine), LONG)).ok


def test_a_closed_loop_does_not_affect_the_thread(own_threads: None, caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()

    @tool(timeout=0.02)
    def hang() -> None:
        release.wait(600)

    assert asyncio.run(ask(hang)).status == "timeout"
    release.set()
    while abandoned_threads():
        time.sleep(0.01)
    assert caplog.records == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tools_run_in_a_forked_child() -> None:
    @tool
    def quick() -> str:
        return "ok"

    assert asyncio.run(ask(quick)).ok
    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(asyncio.wait_for(ask(quick), LONG)).ok else 1)
    assert os.waitpid(child, 0)[1] == 0


# Results


@dataclasses.dataclass
class Point:
    x: float
    y: set[str]


@dataclasses.dataclass
class Lookup(Mapping[str, int]):
    size: int

    def __getitem__(self, key: str) -> int:
        return {"other": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["other"])

    def __len__(self) -> int:
        return 1


@dataclasses.dataclass
class Queue(collections.deque[int]):
    size: int


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        ("a\ud800b", "a\ufffdb"),
        (None, "null"),
        (True, "true"),
        (3.5, "3.5"),
        ({"b": 1, "a": "é"}, '{"b": 1, "a": "é"}'),
        ([1, (2, 3)], "[1, [2, 3]]"),
        ({"c", "a", "b"}, '["a", "b", "c"]'),
        (Point(1.0, {"z", "y"}), '{"x": 1.0, "y": ["y", "z"]}'),
        (Lookup(5), '{"size": 5}'),
        (Queue(5), '{"size": 5}'),
        (Home(zip="1"), '{"zip": "1"}'),
        ([Home(zip="1"), dt.date(2030, 1, 1)], '[{"zip": "1"}, "2030-01-01"]'),
        ({dt.date(2030, 1, 1): 1}, '{"2030-01-01": 1}'),
        (float("nan"), '"NaN"'),
        (b"bytes", "bytes"),
        (bytearray(b"bytes"), "bytes"),
        (b"\xff\xfe", (File(b"\xff\xfe"),)),
        (Image(b"png"), (Image(b"png"),)),
        (["see", Image(b"png"), {"n": 1}], (Text("see"), Image(b"png"), Text('{"n": 1}'))),
        ([Image(b"png"), b"\xff"], (Image(b"png"), File(b"\xff"))),
    ],
)
async def test_the_value_of_a_tool_becomes_content(value: Any, content: Any) -> None:
    async def give() -> Any:
        return value

    result = await ask(Tool(give))
    assert (result.status, result.content) == ("success", content)
    assert result.value is value
    assert result.message.content == content


async def test_a_str_subclass_becomes_plain_text() -> None:
    class Shout(str):
        def __str__(self) -> str:
            return "NOT THIS"

    @tool
    async def give() -> str:
        return Shout("this")

    content = (await ask(give)).content
    assert type(content) is str
    assert content == "this"


async def test_a_function_without_a_result_is_reported_as_done() -> None:
    @tool
    async def save() -> None: ...

    @tool
    async def find() -> str | None:
        return None

    assert (await ask(save)).content == "done"
    assert (await ask(find)).content == "null"


async def test_a_value_without_a_text_form_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (object(), loop, deep, 10**5_000, {"x": object()}, open):

        async def give() -> Any:
            return value  # noqa: B023

        result = await ask(Tool(give))
        assert result.status == "error"
        assert "cannot be shown" in str(result.content)


async def test_a_long_result_is_cut_with_a_note_and_stored_completely() -> None:
    @tool(max_result_chars=10)
    async def read() -> str:
        return "x" * 10_000_000

    result = await ask(read)
    assert (result.status, result.ok) == ("too_large", True)
    assert result.content == "xxxxxxxxxx\n[The result has 10,000,000 characters; only the first 10 are shown.]"
    assert result.whole == "x" * 10_000_000
    assert (await ask(read.with_changes(max_result_chars=None))).status == "success"


async def test_long_text_among_parts_is_cut_too() -> None:
    @tool(max_result_chars=10)
    async def read() -> Any:
        return [Text("x" * 8), Image(b"png"), Text("y" * 8), Text("z")]

    result = await ask(read)
    assert result.status == "too_large"
    assert result.content == (
        Text("x" * 8),
        Image(b"png"),
        Text("yy\n[The result has 17 characters; only the first 10 are shown.]"),
    )


async def test_generators_are_collected() -> None:
    @tool
    async def words() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    @tool
    def numbers() -> Iterator[int]:
        yield 1
        yield 2

    assert (await ask(words)).content == "ab"
    assert (await ask(words.with_changes(timeout=LONG))).content == "ab"
    assert (await ask(numbers)).content == "[1, 2]"


async def test_an_endless_generator_stops_at_the_size_limit() -> None:
    @tool(max_result_chars=100)
    def flood() -> Iterator[str]:
        while True:
            yield "x" * 30

    @tool(max_result_chars=100)
    async def aflood() -> AsyncIterator[int]:
        while True:
            yield 12345

    assert (await ask(flood)).status == "too_large"
    assert (await ask(aflood)).status == "too_large"


async def test_a_tool_may_return_a_tool_result_or_an_error() -> None:
    @tool
    async def own() -> ToolResult:
        return ToolResult("", "", "not today", "denied")

    @tool
    async def sorry() -> Exception:
        return ValueError("sorry")

    result = await ask(own)
    assert (result.call_id, result.name, result.status, result.content) == ("c1", "own", "denied", "not today")
    result = await ask(sorry)
    assert (result.status, result.content) == ("error", "sorry failed: ValueError: sorry")


async def test_a_tool_with_much_output_only_prints(capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def chatter() -> str:
        print("x" * 10_000_000)
        return "ok"

    assert (await ask(chatter)).content == "ok"
    capsys.readouterr()


# Policy


async def test_approval_is_denied_until_it_is_given() -> None:
    ran: list[int] = []

    @tool(approval="always")
    async def drop(table: str) -> str:
        ran.append(1)
        return "dropped"

    call = ToolCall("c", "drop", '{"table": "t"}')
    assert await drop.needs_approval(call, context())
    result = await drop.call(call, context())
    assert (result.status, ran) == ("denied", [])
    assert "approval" in str(result.content)
    assert not await drop.needs_approval(call, context(approved=True))
    assert (await drop.call(call, context(approved=True))).content == "dropped"
    assert not await drop.needs_approval(ToolCall("c", "drop", "{}"), context())


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_predicate_sees_validated_arguments(kind: str) -> None:
    async def later(arguments: Any, ctx: ToolContext[Any]) -> bool:
        return bool(arguments["n"] > ctx.deps)

    def now(arguments: Any, ctx: ToolContext[Any]) -> bool:
        return bool(arguments["n"] > ctx.deps)

    @tool(approval=later if kind == "async" else now)
    async def spend(n: int) -> str:
        return "spent"

    assert (await ask(spend, {"n": "5"}, context(deps=10))).ok
    assert (await ask(spend, {"n": "50"}, context(deps=10))).status == "denied"
    assert await spend.needs_approval(ToolCall("c", "spend", '{"n": 50}'), context(deps=10))


def test_a_predicate_with_another_signature_is_refused_before_it_is_called() -> None:
    def pay(amount: int) -> str:
        """Pay an amount."""
        return "paid"

    class Rule:
        def __call__(self, arguments: Any, context: Any) -> bool:
            return True

        def one(self, arguments: Any) -> bool:
            return True

    async def later(call: Any) -> bool:
        return True

    refused: list[Any] = [
        lambda call: True,
        lambda: True,
        lambda arguments, context, more: True,
        lambda arguments, *, context: True,
        partial(lambda arguments, context: True, 1),
        Rule().one,
        Rule,
        later,
    ]
    for approval in refused:
        for make in (ToolPolicy, lambda **policy: tool(**policy)(pay), Tool(pay).with_changes, Toolset([pay]).approved):
            with pytest.raises(ToolDefinitionError):
                make(approval=approval)
    allowed: list[Any] = [
        lambda arguments, context: True,
        lambda *both: True,
        lambda arguments, context=None: True,
        partial(lambda more, arguments, context: True, 1),
        Rule(),
        max,
    ]
    for approval in allowed:
        assert ToolPolicy(approval=approval).approval is approval


async def test_a_predicate_that_fails_or_changes_its_arguments_allows_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(arguments: Any, ctx: ToolContext[Any]) -> bool:
        raise RuntimeError("down")

    def greedy(arguments: Any, ctx: ToolContext[Any]) -> bool:
        arguments["n"] = 0
        return False

    @tool(approval=broken)
    async def spend(n: int) -> int:
        return n

    result = await ask(spend, {"n": 1})
    assert result.status == "denied"
    assert "down" in str(result.content)
    assert await spend.needs_approval(ToolCall("c", "spend", '{"n": 1}'), context())
    assert "RuntimeError: down" in caplog.text
    assert (await ask(spend.with_changes(approval=greedy), {"n": 1})).value == 1


async def test_a_decision_about_approval_ends_at_the_time_limit_of_the_call() -> None:
    async def undecided(arguments: object, context: object) -> bool:
        await asyncio.sleep(60)
        return False

    @tool(approval=undecided, timeout=0.05)
    def pay() -> str:
        return "paid"

    result = await ask(pay, {})
    assert result.status == "denied"
    assert "could not be decided" in str(result.content)


async def test_retries_repeat_named_exceptions_with_the_original_arguments_and_one_key() -> None:
    seen: list[Any] = []

    @tool(retries=2, retry_on=(ConnectionError,), backoff=0)
    async def flaky(items: list[int], ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.idempotency_key, list(items)))
        items.append(99)
        if ctx.attempt < 3:
            raise ConnectionError("again")
        return "at last"

    assert (await ask(flaky, {"items": [1]})).content == "at last"
    key = context().idempotency_key
    assert seen == [(1, key, [1]), (2, key, [1]), (3, key, [1])]


async def test_other_exceptions_and_wrong_arguments_are_not_retried() -> None:
    seen: list[int] = []

    @tool(retries=5, retry_on=(ConnectionError,), backoff=0)
    async def flaky(n: int) -> None:
        seen.append(n)
        raise ValueError("no")

    assert (await ask(flaky, {"n": 1})).status == "error"
    assert (await ask(flaky, {"n": "x"})).status == "error"
    assert seen == [1]


async def test_a_timeout_can_be_retried_and_retries_end() -> None:
    seen: list[int] = []

    @tool(retries=1, retry_on=(TimeoutError,), backoff=0, timeout=0.01)
    async def slow() -> None:
        seen.append(1)
        await asyncio.sleep(30)

    assert (await ask(slow)).status == "timeout"
    assert seen == [1, 1]


async def test_concurrency_is_limited_in_each_loop() -> None:
    running, most = 0, 0

    @tool(concurrency=2)
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    await asyncio.gather(*(ask(work) for _ in range(6)))
    assert most == 2
    await asyncio.to_thread(lambda: asyncio.run(ask(work)))


async def test_calls_per_run_are_counted_in_the_run() -> None:
    @tool(max_calls=2)
    async def search() -> str:
        return "ok"

    one: dict[str, int] = {}
    statuses = [(await ask(search, "{}", context(calls=one))).status for _ in range(3)]
    assert statuses == ["success", "success", "denied"]
    assert (await ask(search, "{}", context(calls={}))).ok


@pytest.mark.parametrize(
    "policy",
    [
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"retries": -1},
        {"retries": 1.5},
        {"retry_on": ValueError},
        {"retry_on": ("ValueError",)},
        {"backoff": -1},
        {"backoff": None},
        {"sequential": "yes"},
        {"concurrency": 0},
        {"concurrency": True},
        {"max_calls": -1},
        {"max_result_chars": 0},
        {"approval": "sometimes"},
        {"approval": None},
        {"repair": 1},
    ],
)
def test_an_invalid_policy_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool(add.function, **policy)
    assert caught.value.names == tuple(policy)


def test_all_unknown_options_are_named() -> None:
    with pytest.raises(ToolDefinitionError) as made:
        Tool(add.function, timout=3, zzz=1)  # type: ignore[call-arg]
    assert made.value.names == ("timout", "zzz")
    with pytest.raises(ToolDefinitionError) as changed:
        add.with_changes(retris=3)  # type: ignore[call-arg]
    assert changed.value.names == ("retris",)


def test_the_error_of_an_unknown_tool_names_similar_tools() -> None:
    result = unknown_tool(ToolCall("c", "serch"), ["search", "fetch"])
    assert (result.status, result.call_id) == ("error", "c")
    assert "search" in str(result.content)
    assert "fetch" in str(unknown_tool(ToolCall("c", "zzzz"), ["search", "fetch"]).content)
    assert "no tools" in str(unknown_tool(ToolCall("c", "zzzz"), []).content)
    assert len(unknown_tool(ToolCall("c", "\ud800" * 10_000), [str(n) for n in range(10_000)]).content) < 1_000


async def test_the_problem_of_an_argument_can_be_sent_for_any_value_of_a_validator() -> None:
    async def count(value: Annotated[int, BeforeValidator(lambda value: "\ud800")]) -> int:
        return value

    result = await ask(Tool(count), {"value": 1})
    assert result.status == "error"
    assert b"value: expected text of Unicode characters" in str(result.content).encode()
