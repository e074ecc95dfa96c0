"""Results in items, and results that take long to write: they end, and omitted data is reported."""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, model_serializer

from agentkit.prompts import Image, ToolCall
from agentkit.tools import Tool, ToolContext, ToolResult, tool
from tests.waiting import LONG, longer


async def ask(made: Tool) -> ToolResult:
    return await made.call(ToolCall("c", made.name), ToolContext(None, "run", "c"))


# Generators


def lines() -> Iterator[str]:
    for number in range(1_000):
        yield f"line {number}\n"


async def lines_later() -> AsyncIterator[str]:
    for line in lines():
        yield line


@pytest.mark.parametrize("function", [lines, lines_later])
async def test_items_of_a_generator_beyond_the_limit_are_stored_completely(function: Callable[..., Any]) -> None:
    result = await ask(Tool(function, max_result_chars=100))
    everything = "".join(lines())
    assert result.status == "too_large"
    assert result.whole == everything
    assert f"has {len(everything):,} characters; only the first 100" in str(result.content)


async def test_media_are_counted_by_their_bytes() -> None:
    made = 0

    @tool(max_result_chars=1_000)
    def pictures() -> Iterator[Image]:
        nonlocal made
        while True:
            made += 1
            yield Image(b"x" * 100_000)

    result = await ask(pictures)
    assert not result.ok or result.status == "too_large"
    assert made == 10


async def test_items_are_counted_by_their_size_and_a_longer_result_is_reported() -> None:
    made = 0

    @tool(max_result_chars=1_000)
    def rows() -> Iterator[dict[str, str]]:
        nonlocal made
        while True:
            made += 1
            yield {"text": "x" * 100_000}

    result = await ask(rows)
    assert result.status == "too_large"
    assert made == 10
    assert "and is longer; only the first 1,000 are shown" in str(result.content)


@pytest.mark.parametrize("item", ["", Image(b"x" * 10_000), [], b""])
async def test_items_without_text_end_too(item: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_tools.calling.result_content._MAX_READ", 20_000)

    @tool(max_result_chars=1_000)
    async def never_waits() -> AsyncIterator[Any]:
        while True:
            yield item

    async with asyncio.timeout(30):
        result = await ask(never_waits)
    assert result.status == "too_large"
    content = str(result.content)
    assert "goes on" in content or "only the first" in content


async def test_a_generator_that_is_stopped_cleans_up_before_the_end_of_the_call() -> None:
    closed: list[str] = []

    @tool
    async def later() -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 1_000
        finally:
            await asyncio.sleep(0)
            closed.append("later")

    @tool
    def now() -> Iterator[str]:
        try:
            while True:
                yield "x" * 1_000
        finally:
            closed.append("now")

    await ask(later)
    await ask(now)
    assert closed == ["later", "now"]


# Iterators in results


async def test_a_returned_iterator_is_a_list_and_may_be_endless() -> None:
    @tool
    def some() -> Any:
        return map(str, [1, 2])

    @tool
    async def some_later() -> Any:
        return iter([1, 2])

    @tool(max_result_chars=100)
    def endless() -> Any:
        return itertools.cycle([1])

    @tool(max_result_chars=100)
    async def endless_later() -> Any:
        return itertools.count()

    assert (await ask(some)).content == '["1", "2"]'
    assert (await ask(some_later)).content == "[1, 2]"
    for one in (endless, endless_later):
        result = await ask(one)
        assert result.status == "too_large"
        assert "is longer" in str(result.content)


class Other(collections.UserDict[Any, Any]):
    """A mapping that is not a dict."""


@pytest.mark.parametrize(
    "inside",
    [
        lambda found: {"rows": found},
        lambda found: {"rows": [found]},
        lambda found: {("a", 1): found},
        lambda found: Other({"rows": found}),
        lambda found: collections.deque([found]),
    ],
)
async def test_iterators_inside_of_a_result_are_read_once_and_never_endlessly(inside: Callable[[Any], Any]) -> None:
    @tool
    def some() -> Any:
        return inside(iter([1, 2]))

    @tool
    def endless() -> Any:
        return inside(itertools.count())

    assert "[1, 2]" in str((await ask(some)).content)
    result = await ask(endless)
    assert result.status == "error"
    assert "count) has more than 100,000 items" in str(result.content)


async def test_views_and_ranges_are_lists() -> None:
    row = {"a": 1}
    for value, content in (
        (row.keys(), '["a"]'),
        (row.values(), "[1]"),
        (row.items(), '[["a", 1]]'),
        (range(3), "[0, 1, 2]"),
        ({"rows": range(2)}, '{"rows": [0, 1]}'),
        ([row.keys(), collections.UserList([1])], '[["a"], [1]]'),
    ):
        assert (await ask(Tool(lambda value=value: value, name="some", description="Some."))).content == content
    for endless in (range(10**30), [range(10**30)]):
        made = Tool(lambda value=endless: value, name="some", description="Some.", max_result_chars=100)
        assert (await ask(made)).status in ("too_large", "error")


async def test_an_iterator_next_to_numbers_without_a_json_form_is_read_only_once() -> None:
    @tool
    def rows() -> Any:
        return {"rows": (n for n in [1, 2]), "mean": math.nan, (1, 2): -math.inf, "text": "\ud800", None: 1.5}

    content = json.loads(str((await ask(rows)).content))
    assert content == {"rows": [1, 2], "mean": "NaN", "1,2": "-Infinity", "text": "\ufffd", "None": 1.5}


# Results that take long


class Slow(BaseModel):
    """Takes long to be written, until it is `free`, and notes its thread in `where`."""

    free: ClassVar = threading.Event()
    where: ClassVar = list[threading.Thread]()

    @model_serializer
    def write(self) -> dict[str, Any]:
        self.where.append(threading.current_thread())
        self.free.wait(LONG)
        return {}


async def test_a_result_that_takes_long_to_write_is_written_in_the_thread_and_the_time_of_the_tool() -> None:
    @tool
    def slow() -> Slow:
        return Slow()

    for seconds in longer(0.1):
        assert (await ask(slow.with_changes(timeout=seconds))).status == "timeout"
        if Slow.where:
            break
    Slow.free.set()
    assert (await ask(slow)).content == "{}"
    assert threading.current_thread() not in Slow.where
