"""Whatever a schema and the arguments are, reading them ends within the time limit and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolContext, ToolResult, tool


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
async def test_alternatives_that_double_are_looked_at_once_each(option: Any) -> None:
    made = Tool.from_json_schema("t", "", doubling(40, option), echo)
    value: Any = "text"
    assert (await ask(made, x=value)).status == "error"
    for _ in range(20):
        value = [value]
    assert (await ask(made, x=value)).status == "error"


async def test_a_product_of_alternatives_and_items_is_given_up_and_the_reason_is_named() -> None:
    options = [{"type": "object", "required": [f"a{number}"]} for number in range(3_000)]
    made = Tool.from_json_schema("t", "", {"properties": {"x": {"type": "array", "items": {"anyOf": options}}}}, echo)
    result = await ask(made, x=[{}] * 3_000)
    assert result.status == "error"
    assert "too many steps" in str(result.content)


class Left(BaseModel):
    child: Left | Right | int


class Right(BaseModel):
    child: Left | Right | int


async def test_a_recursive_union_of_models_that_are_alike_ends() -> None:
    @tool(timeout=20)
    async def take(x: Left) -> str:
        return "taken"

    value: Any = "text"
    for _ in range(40):
        value = {"child": value}
    assert (await ask(take, x=value)).status in ("error", "timeout")
    assert (await ask(take, x={"child": {"child": 3}})).content == "taken"


def slow(value: int) -> int:
    time.sleep(1)
    return value


async def test_a_validator_of_the_users_own_counts_towards_the_time_limit_and_does_not_block_the_loop() -> None:
    @tool(timeout=0.2)
    async def take(x: Annotated[int, AfterValidator(slow)]) -> str:
        return "taken"

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.02)

    ticking = asyncio.create_task(tick())
    result = await ask(take, x=1)
    ticking.cancel()
    assert result.status == "timeout"
    assert ticks > 3


@pytest.mark.parametrize("policy", [{"retries": 1}, {"approval": lambda arguments, context: False}])
async def test_the_time_limit_of_reading_holds_under_any_policy(policy: Any) -> None:
    @tool(timeout=0.2, **policy)
    async def take(x: Annotated[int, AfterValidator(slow)]) -> str:
        return "taken"

    assert (await ask(take, x=1)).status == "timeout"
