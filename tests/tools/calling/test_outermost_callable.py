"""The outermost callable determines how a tool runs; the wrapped function determines signature and docstring."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolContext, ToolResult, tool


def place() -> str:
    """Return the place in which the caller runs: on the event loop or in a thread."""
    return "loop" if threading.current_thread() is threading.main_thread() else "thread"


def sync_function(n: int) -> str:
    """Look up."""
    return f"{place()} {n}"


async def async_function(n: int) -> str:
    """Look up."""
    await asyncio.sleep(0)
    return f"{place()} {n}"


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap any function in an async function."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return wrapper


def blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an async function in a sync function that waits for it, as `async_to_sync` does."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return asyncio.run(function(*args, **kwargs))

    return wrapper


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in a sync function that returns its result, like many decorators."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Sync:
    def __call__(self, n: int) -> str:
        """Look up."""
        return sync_function(n)

    def method(self, n: int) -> str:
        """Look up."""
        return sync_function(n)


class Async:
    async def __call__(self, n: int) -> str:
        """Look up."""
        return await async_function(n)

    async def method(self, n: int) -> str:
        """Look up."""
        return await async_function(n)


class Named(Async):
    __name__ = "named"


def add_prefix(prefix: str, n: int) -> str:
    """Look up."""
    return sync_function(n).removeprefix(prefix)


async def add_prefix_later(prefix: str, n: int) -> str:
    """Look up."""
    return (await async_function(n)).removeprefix(prefix)


CALLABLES: dict[str, tuple[Callable[..., Any], str]] = {
    "sync": (sync_function, "thread"),
    "async": (async_function, "loop"),
    "async around sync": (awaited(sync_function), "loop"),
    "async around async": (awaited(async_function), "loop"),
    "async around blocking": (awaited(passing(sync_function)), "loop"),
    "blocking around async": (blocking(async_function), "thread"),
    "passing around sync": (passing(sync_function), "thread"),
    "passing around async": (passing(async_function), "loop"),
    "passing around async around sync": (passing(awaited(sync_function)), "loop"),
    "partial of sync": (functools.partial(add_prefix, "-"), "thread"),
    "partial of async": (functools.partial(add_prefix_later, "-"), "loop"),
    "partial of async around sync": (functools.partial(awaited(add_prefix), "-"), "loop"),
    "partial of blocking around async": (functools.partial(blocking(add_prefix_later), "-"), "thread"),
    "sync object": (Sync(), "thread"),
    "async object": (Async(), "loop"),
    "async object with a name": (Named(), "loop"),
    "partial of an async object": (functools.partial(Async()), "loop"),
    "bound sync method": (Sync().method, "thread"),
    "bound async method": (Async().method, "loop"),
    "async around a bound method": (awaited(Sync().method), "loop"),
    "blocking around a bound method": (blocking(Async().method), "thread"),
    "cached": (functools.lru_cache(sync_function), "thread"),
}


async def ask(made: Tool, **arguments: Any) -> ToolResult:
    return await made.call(ToolCall("c", made.name, '{"n": 7}' if not arguments else "{}"), ToolContext(None))


@pytest.mark.parametrize("name", CALLABLES)
async def test_the_outermost_callable_determines_the_thread_of_the_call(name: str) -> None:
    function, where = CALLABLES[name]
    made = Tool(function, name="look_up")
    assert (await ask(made)).content == f"{where} 7"
    assert made.description == "Look up."
    assert list(made.spec.parameters["properties"]) == ["n"]

    described = Tool.from_json_schema("look_up", "", {"properties": {"n": {"type": "integer"}}}, function)
    assert (await ask(described)).content == f"{where} 7"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="inspect.markcoroutinefunction")
async def test_a_function_that_is_marked_as_a_coroutine_function_is_awaited() -> None:
    places: list[str] = []

    def marked(n: int) -> Any:
        places.append(place())
        return async_function(n)

    made = tool(inspect.markcoroutinefunction(marked))  # type: ignore[attr-defined,unused-ignore]
    assert (await ask(made)).content == "loop 7"
    assert places == ["loop"]


async def test_methods_of_a_class_body_run_as_they_are_written() -> None:
    class Desk:
        @tool
        @blocking
        async def waits(self, n: int) -> str:
            return await async_function(n)

        @tool
        @awaited
        def quick(self, n: int) -> str:
            return sync_function(n)

        @tool
        @staticmethod
        def static(n: int) -> str:
            return sync_function(n)

        @classmethod
        async def of_class(cls, n: int) -> str:
            return await async_function(n)

    desk = Desk()
    contents = [(await ask(made)).content for made in (desk.waits, desk.quick, desk.static, tool(desk.of_class))]
    assert contents == ["thread 7", "loop 7", "thread 7", "loop 7"]


async def items(n: int) -> AsyncIterator[str]:
    for _ in range(n):
        yield "item "


def sync_items(n: int) -> Iterator[str]:
    for _ in range(n):
        yield "item "


@pytest.mark.parametrize("function", [items, sync_items, passing(items), passing(sync_items), awaited(items)])
async def test_items_are_collected_through_wrappers(function: Callable[..., Any]) -> None:
    assert (await ask(Tool(function))).content == "item " * 7


async def test_a_blocking_wrapper_around_an_async_function_is_limited_like_any_sync_function() -> None:
    @blocking
    async def hang(n: int) -> None:
        await asyncio.sleep(0.5)

    assert (await ask(tool(timeout=0.05)(hang))).status == "timeout"
