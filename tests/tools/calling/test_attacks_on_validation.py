"""Hostile schemas of a server and hostile arguments of a model: the cost of their validation."""

from __future__ import annotations

import asyncio
import json
import time
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import AfterValidator, Field

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolArgumentError, ToolContext, ToolDefinitionError, ToolResult
from agentkit_prompts.schemas.pattern_size import pattern_size
from tests.waiting import LONG

_PRIME = 2**61 - 1
"""Numbers that differ by this have the same hash."""


async def echo(**arguments: Any) -> Any:
    return "taken"


async def ask(made: Tool, arguments: Any) -> ToolResult:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return await made.call(ToolCall("c", made.name, text), ToolContext(None, "r", "c"))


async def answered(made: Tool, arguments: Any) -> tuple[ToolResult, float]:
    """Return the result of a call, and the longest time in seconds of a processor in which the loop was blocked."""
    longest, last = 0.0, time.process_time()
    asking = asyncio.create_task(ask(made, arguments))
    while not asking.done():
        await asyncio.sleep(0.005)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    return asking.result(), longest


def taking(kind: Any) -> Tool:
    async def take(x: Any) -> str:
        return "taken"

    take.__annotations__["x"] = kind
    return Tool(take, timeout=LONG)


def described(**properties: Any) -> Tool:
    return Tool.from_json_schema("described", "", {"properties": properties}, echo, timeout=LONG)


COLLIDING = [number * _PRIME for number in range(60_000)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (set[int], COLLIDING),
        (frozenset[int | str], COLLIDING),
        (set[Decimal], COLLIDING),
        (set[Any], COLLIDING),
        (set[tuple[int, int]], [[number, 1] for number in COLLIDING]),
        (set[UUID], [str(UUID(int=number)) for number in COLLIDING]),
        (dict[int, int], {str(number): 1 for number in COLLIDING}),
        (dict[Annotated[int, Field(gt=-1)], int], {str(number): 1 for number in COLLIDING}),
        (list[dict[int, int] | None], [{str(number): 1 for number in COLLIDING}]),
    ],
)
async def test_numbers_of_equal_hashes_are_refused_before_they_are_hashed(kind: Any, value: Any) -> None:
    result, longest = await answered(taking(kind), {"x": value})
    assert result.status == "error"
    assert "more than 4,000 values" in str(result.content) or "more than 2,000 values" in str(result.content)
    assert longest < 5


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (set[int], list(range(3_000))),
        (set[str], [str(number) for number in range(30_000)]),
        (dict[str, int], {str(number): number for number in range(30_000)}),
        (dict, {str(number): number for number in range(30_000)}),
        (dict[Annotated[str, AfterValidator(str.lower)], int], {str(number): number for number in range(30_000)}),
        (list[int], list(range(30_000))),
    ],
)
async def test_ordinary_collections_can_be_larger(kind: Any, value: Any) -> None:
    assert (await ask(taking(kind), {"x": value})).content == "taken"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(\\w|\\d){1,60}x$".replace("\\\\", "\\"), "a1" * 500_000),
        ("^(a|b){1,5000}$", "ab" * 1_000_000),
        ("[ab]*a[ab]{1,900}c", "abbab" * 400_000),
    ],
)
async def test_a_text_is_checked_with_a_large_pattern_only_if_the_check_is_short(pattern: str, text: str) -> None:
    made = described(x={"type": "string", "pattern": pattern})
    result, longest = await answered(made, {"x": text})
    assert result.status == "error"
    assert longest < 5


async def test_patterns_that_take_long_to_compile_are_not_compiled() -> None:
    word = r"^\w{1,400}$"
    made = described(**{f"x{number}": {"type": "string", "pattern": word} for number in range(2_000)})
    result, longest = await answered(made, {"x1": "a"})
    assert result.content == "taken"
    assert longest < 5


async def test_a_validator_that_takes_long_to_create_is_created_in_a_thread() -> None:
    made = described(**{f"x{number}": {"enum": [{"n": one} for one in range(40)]} for number in range(2_000)})
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    before = ticks
    assert (await ask(made, {"x1": {"n": 2}})).content == "taken"
    assert ticks > before + 3
    ticking.cancel()


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("", 0),
        ("a{3}", 3),
        ("a{2,5}b", 6),
        ("(ab){10}", 20),
        ("((a{10}){10}){10}", 1_000),
        (r"\d{3}-\d{4}", 7 * 102 + 1),
        ("[a-z]{4}", 20),
        (r"(\p{L}{1,10}){48}", 480 * 105),
        ("[)(]{2}", 8),
        ("a{0}", 1),
        (")", 1),
        ("(", 0),
        ("a{99999999999999}", 999_999_999),
    ],
)
def test_the_size_of_a_pattern_includes_its_repetitions(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "number", "multipleOf": 1e-300}, 0, None),
        ({"type": "integer", "multipleOf": 0.5}, 10**400, None),
        ({"type": "integer", "multipleOf": 7}, 7 * 10**400, 7 * 10**400 + 1),
        ({"type": "number", "multipleOf": 0.1}, 0.3, 0.35),
        ({"type": "string", "minLength": 10**30}, None, "x"),
        ({"type": "string", "maxLength": 10**30}, "x", None),
        ({"type": "array", "minItems": 10**30}, None, [1]),
        ({"type": "string", "pattern": r"^\d{3}$"}, "123", "1234"),
    ],
)
async def test_bounds_of_any_size_are_checked_exactly(schema: Any, good: Any, bad: Any) -> None:
    made = described(x=schema)
    if good is not None:
        assert (await ask(made, {"x": good})).content == "taken"
    if bad is not None:
        result = await ask(made, {"x": bad})
        assert (result.status, "cannot be read" in str(result.content)) == ("error", False)


@pytest.mark.parametrize("wrong", [True, False, {"type": "array"}])
def test_parameters_that_are_not_an_object_are_refused(wrong: Any) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool.from_json_schema("t", "", wrong, echo)
    assert caught.value.tool == "t"


def test_a_mapping_that_json_cannot_contain_is_an_error_of_the_arguments() -> None:
    made = Tool.from_json_schema("t", "", {"properties": {"v": {}}}, echo)
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    circular: list[Any] = []
    circular.append(circular)
    for value in (10**20_000, deep, circular, object(), {1}, {(1,): 2}):
        with pytest.raises(ToolArgumentError, match="JSON"):
            made.validate({"v": value})
