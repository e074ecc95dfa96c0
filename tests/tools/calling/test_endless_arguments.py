"""Reading any arguments with any schema ends within the time limit, and the loop continues meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, create_model

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolArgumentError, ToolContext, ToolDefinitionError, ToolResult, tool
from tests.waiting import LONG, longer


async def echo(**arguments: Any) -> Any:
    return arguments


async def ask(made: Tool, **arguments: Any) -> ToolResult:
    return await made.call(ToolCall("c", made.name, json.dumps(arguments)), ToolContext(None, "r", "c"))


def doubling(levels: int, option: Any) -> dict[str, Any]:
    defs = {f"d{n}": option({"$ref": f"#/$defs/d{n + 1}"}) for n in range(levels)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, f"d{levels}": {"type": "integer"}}}


@pytest.mark.parametrize(
    "option",
    [
        lambda ref: {"anyOf": [ref, ref]},
        lambda ref: {"oneOf": [ref, ref]},
        lambda ref: {"allOf": [ref, ref]},
        lambda ref: {"anyOf": [{"allOf": [{"type": "string"}, ref]}, {"allOf": [{"type": "string"}, ref]}]},
        lambda ref: {"anyOf": [{"type": "array", "items": ref}, {"type": "array", "items": ref}, ref, ref]},
    ],
)
async def test_alternatives_that_double_are_checked_once_each(option: Any) -> None:
    made = Tool.from_json_schema("t", "", doubling(40, option), echo)
    value: Any = "text"
    assert (await ask(made, x=value)).status == "error"
    for _ in range(20):
        value = [value]
    assert (await ask(made, x=value)).status == "error"


async def test_a_product_of_alternatives_and_items_is_stopped_and_the_reason_is_named() -> None:
    options = [{"type": "object", "required": [f"a{number}"]} for number in range(3_000)]
    made = Tool.from_json_schema("t", "", {"properties": {"x": {"type": "array", "items": {"anyOf": options}}}}, echo)
    asking = asyncio.create_task(ask(made, x=[{}] * 3_000))
    assert await longest_wait(asking) < 2
    assert isinstance(asking.result().error, ToolArgumentError)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ({"enum": [f"value {number}" for number in range(20_000)]}, "none"),
        ({"type": "object", "required": [f"a{number}" for number in range(2_000)]}, {}),
    ],
)
async def test_the_error_of_many_items_with_many_alternatives_is_short(item: Any, value: Any) -> None:
    made = Tool.from_json_schema("t", "", {"properties": {"x": {"type": "array", "items": item}}}, echo, timeout=LONG)
    asking = asyncio.create_task(ask(made, x=[value] * 20_000))
    assert await longest_wait(asking) < 2
    assert isinstance(asking.result().error, ToolArgumentError)
    assert len(str(asking.result().content)) < 100_000


Wide = create_model("Wide", **{f"f{number}": (int, ...) for number in range(30)})  # type: ignore[call-overload]


@pytest.mark.parametrize("count", [2_000, 30_000])
async def test_a_product_of_fields_and_objects_is_stopped_and_the_reason_is_named(count: int) -> None:
    async def take(x: list[Wide]) -> str:  # type: ignore[valid-type]
        return f"{len(x)} taken"

    made = Tool(take, timeout=LONG)
    asking = asyncio.create_task(ask(made, x=[{}] * count))
    assert await longest_wait(asking) < 2
    assert "more than 40,000 fields can be missing" in str(asking.result().content)
    whole = {f"f{number}": number for number in range(30)}
    assert (await ask(made, x=[whole] * 1_000)).content == "1000 taken"


LONE = "\ud800"


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [LONE]},
        {"enum": [LONE, 5]},
        {"const": {"a": [LONE]}},
        {"anyOf": [{"enum": [LONE]}, {"const": LONE}]},
        {"type": "object", "properties": {LONE: {"type": "integer"}}, "required": [LONE]},
        {"type": "object", "required": [LONE]},
        {"type": "string", "pattern": LONE},
        {"$ref": f"#/$defs/{LONE}"},
    ],
)
async def test_a_schema_with_invalid_characters_ends_in_a_result(schema: dict[str, Any]) -> None:
    document = {"type": "object", "properties": {"x": schema}, "$defs": {LONE: {"enum": [LONE]}}}
    try:
        made = Tool.from_json_schema("t", "", document, echo, trust="untrusted")
    except ToolDefinitionError:
        return
    for value in (5, "a", {}, {"a": 1}, [LONE], LONE):
        assert (await ask(made, x=value)).status in ("error", "success")


class Left(BaseModel):
    size: int = 0
    child: Left | Right | int | None = None


class Right(BaseModel):
    size: int = 0
    child: Left | Right | int | None = None


class Listed(BaseModel):
    items: list[Listed] | tuple[Listed, ...] | set[int] | None = None


class Hidden(BaseModel):
    """Its fields have the names of parts of a schema."""

    default: Hidden | Other | None = None
    metadata: Hidden | Other | None = None


class Other(BaseModel):
    default: Hidden | Other | None = None
    metadata: Hidden | Other | None = None


def levels(name: str, count: int, value: Any) -> Any:
    for _ in range(count):
        value = {name: value}
    return value


async def longest_wait(asking: asyncio.Task[Any]) -> float:
    """Return the longest time in seconds of a processor in which the event loop was blocked."""
    longest, last = 0.0, time.process_time()
    while not asking.done():
        await asyncio.sleep(0.005)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    return longest


async def left(x: Left | Right) -> str:
    return "taken"


async def listed(x: Listed | list[Listed]) -> str:
    return "taken"


async def hidden(x: Hidden) -> str:
    return "taken"


async def lists(x: list[int] | list[float] | tuple[bool, ...] | dict[str, int]) -> str:
    return "taken"


Four = [create_model(f"Four{name}", **{name: (int, ...)}) for name in "abcd"]  # type: ignore[call-overload]


async def four(x: list[Four[0] | Four[1] | Four[2] | Four[3]]) -> str:  # type: ignore[valid-type]
    return "taken"


async def scalars(x: list[int | float | bool | date]) -> str:
    return "taken"


async def numbers(x: list[int]) -> str:
    return "taken"


def paired(count: int) -> Any:
    value: Any = {}
    for _ in range(count):
        value = {"items": [value]}
    return value


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("function", "value"),
    [
        (left, levels("child", 40, None)),
        (left, levels("child", 40, "text")),
        (left, levels("child", 40, {"size": "1"})),
        (left, levels("child", 60, {"size": "text"})),
        (listed, paired(40)),
        (listed, [paired(30)] * 20),
        (hidden, levels("default", 40, None)),
        (hidden, levels("metadata", 40, {"default": 5})),
        (lists, ["x"] * 600_000),
        (lists, [1] * 600_000 + ["x"]),
        (numbers, ["x"] * 1_200_000),
        (numbers, ["x"] * 150_000),
        (numbers, "x" * 6_000_000),
        (numbers, {"x": ["x"] * 190_000}),
        (four, [{}] * 9_900),
        (four, ["text"] * 9_900),
        (scalars, [{}] * 9_900),
        (numbers, ["x"] * 39_000),
        (numbers, [[]] * 1_600_000),
    ],
)
async def test_similar_types_and_large_values_end_and_do_not_block_the_loop(function: Any, value: Any) -> None:
    made = Tool(function, timeout=LONG)
    asking = asyncio.create_task(ask(made, x=value))
    await asyncio.sleep(0)
    longest = await longest_wait(asking)
    result = asking.result()
    assert result.status == "error", result.content
    assert isinstance(result.error, ToolArgumentError)
    assert len(result.content) < 20_000
    assert longest < 1  # about 50 ms on an idle machine


async def test_names_and_tags_of_a_model_are_shortened() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    @tool
    async def take(x: dict[str, int], y: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    long = "k" * 100_000
    result = await ask(take, x={long: {long: 1}, f"{long}1": "a"}, y={"kind": long}, **{long: 1})
    assert len(result.content) < 3_000
    assert "'cat', 'dog'" in str(result.content)


async def test_values_with_little_nesting_are_accepted_for_any_types() -> None:
    for function, value in (
        (left, levels("child", 6, 3)),
        (left, levels("child", 6, {"size": "1"})),
        (listed, paired(5)),
        (hidden, levels("default", 5, None)),
        (lists, list(range(2_000))),
        (numbers, list(range(12_000))),
        (numbers, list(range(39_000))),
    ):
        assert (await ask(Tool(function), x=value)).content == "taken"


class Dated(BaseModel):
    on: Annotated[date, Field(strict=True)]
    parts: Annotated[tuple[int, ...], Field(strict=True)] = ()
    then: Dated | Noted | None = None


class Noted(BaseModel):
    note: str
    then: Dated | Noted | None = None


async def test_strict_types_accept_their_json_form_inside_of_recursive_unions() -> None:
    @tool
    async def plan(x: Dated | Noted) -> str:
        inner = x.then
        assert isinstance(inner, Dated)
        return f"{inner.on.year} {inner.parts}"

    value = {"note": "first", "then": {"on": "2026-01-02", "parts": [1, 2]}}
    assert (await ask(plan, x=value)).content == "2026 (1, 2)"


free, where = threading.Event(), list[threading.Thread]()


def slow(value: int = 1) -> int:
    """Take long, and note the thread."""
    where.append(threading.current_thread())
    free.wait(LONG)
    return value


@pytest.fixture
def slowly() -> Iterator[None]:
    """Set the duration of `slow` to the duration of the test."""
    free.clear()
    where.clear()
    yield
    free.set()


class Started(BaseModel):
    n: int = 0

    def model_post_init(self, context: Any) -> None:
        slow()


class Filled(BaseModel):
    n: int = Field(default_factory=slow)


@pytest.mark.parametrize("kind", [Started, Filled])
async def test_code_of_a_model_counts_towards_the_time_limit_and_does_not_block_the_loop(
    kind: Any, slowly: None
) -> None:
    async def take(x: Any) -> str:
        return "taken"

    take.__annotations__["x"] = kind
    assert (await timed_out(Tool(take), x={})) not in (None, threading.current_thread())


async def timed_out(made: Tool, **arguments: Any) -> threading.Thread | None:
    """Call a tool that takes too long; return the thread in which its arguments were read."""
    for seconds in longer(0.1):
        assert (await ask(made.with_changes(timeout=seconds), **arguments)).status == "timeout"
        if where:
            return where[0]
    return None


async def test_a_custom_validator_counts_towards_the_time_limit_and_does_not_block_the_loop(
    slowly: None,
) -> None:
    @tool
    async def take(x: Annotated[int, AfterValidator(slow)]) -> str:
        return "taken"

    assert (await timed_out(take, x=1)) not in (None, threading.current_thread())


@pytest.mark.parametrize("policy", [{"retries": 1}, {"approval": lambda arguments, context: False}])
async def test_the_time_limit_of_reading_applies_under_any_policy(policy: Any, slowly: None) -> None:
    @tool(timeout=0.2, **policy)
    async def take(x: Annotated[int, AfterValidator(slow)]) -> str:
        return "taken"

    assert (await ask(take, x=1)).status == "timeout"
