"""W5: cost of building and of calling a tool.

Build: a name, a description, a JSON Schema and a validator are created from a function with a docstring; the limit is
pydantic's `TypeAdapter` of the function and its schema. Invoke: JSON text is validated and the function is called; the
limit is a prepared validator and the call. Call: the same and the tool result. With the default time limit of tools,
the limit is `asyncio.timeout` around the call, and its errors become text; without a time limit, the bare call.
Register: 1,000 tools and 10,000 tools, which may take at most ten times the time and memory; tools from JSON Schema,
whose validators are created by the first call (a separate row: `first call`), and tools from functions.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable
from types import FunctionType
from typing import Any, Literal, NotRequired

from harness import Figure, Work, figures, interleave, main
from peer_tools import BUILDERS, CALLS, Call
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools import Tool, ToolContext

VARIANTS = 64
"""Number of different calls, so that no cache of the last call is used."""


async def search(
    query: str, limit: int = 10, tags: list[str] | None = None, unit: Literal["day", "week"] = "day"
) -> str:
    """Search the archive.

    Args:
        query: What to look for.
        limit: How many hits.
        tags: Only hits with these tags.
        unit: How hits are grouped.
    """
    return query


def fresh(number: int) -> Any:
    """Return a new function, so that no cached schema is used."""
    function = FunctionType(search.__code__, search.__globals__, f"search_{number}", search.__defaults__)
    function.__annotations__ = dict(search.__annotations__)
    function.__doc__ = search.__doc__
    return function


TEXTS = [
    json.dumps({"query": f"query {n}", "limit": n, "tags": ["a", f"b{n}"], "unit": "week"}) for n in range(VARIANTS)
]


class Arguments(TypedDict):
    """The arguments of `search`, by hand."""

    query: str
    limit: NotRequired[int]
    tags: NotRequired[list[str] | None]
    unit: NotRequired[Literal["day", "week"]]


# Build


def build(rounds: int) -> Iterable[Figure]:
    """Build the schema and the validator of a function."""
    numbers = itertools.count()

    def by_hand(n: int) -> None:
        for _ in range(n):
            adapter: TypeAdapter[Any] = TypeAdapter(fresh(next(numbers)))
            adapter.json_schema()

    def ours(n: int) -> None:
        for _ in range(n):
            Tool(fresh(next(numbers)))

    candidates: dict[str, Work] = {"TypeAdapter by hand": by_hand, "agentkit": ours}
    candidates |= {name: _repeat(builder(), numbers) for name, builder in BUILDERS.items()}
    yield from figures("W5 build", interleave(candidates, 100, rounds))


def _repeat(make: Callable[[Any], object], numbers: Iterable[int]) -> Work:
    fresh_numbers = iter(numbers)

    def work(n: int) -> None:
        for _ in range(n):
            make(fresh(next(fresh_numbers)))

    return work


# Invoke and call


def invoke(rounds: int) -> Iterable[Figure]:
    """Validate JSON text and await the function."""
    validate = TypeAdapter(Arguments).validator.validate_json
    tool = Tool(search)
    read, function = tool.validate, tool.function

    async def by_hand(n: int) -> None:
        for i in range(n):
            await search(**validate(TEXTS[i % VARIANTS]))

    async def ours(n: int) -> None:
        for i in range(n):
            await function(**read(TEXTS[i % VARIANTS]))

    candidates: dict[str, Work] = {"by hand": _run(by_hand), "agentkit": _run(ours)}
    if (peer := BUILDERS.get("pydantic-ai")) is not None:
        schema: Any = peer()(search)
        check = schema.function_schema.validator.validate_json

        async def pydantic_ai(n: int) -> None:
            for i in range(n):
                await search(**check(TEXTS[i % VARIANTS]))

        candidates["pydantic-ai"] = _run(pydantic_ai)
    yield from figures("W5 invoke", interleave(candidates, 20_000, rounds))


def call(rounds: int) -> Iterable[Figure]:
    """Execute the call of a model and build the tool result."""
    validate = TypeAdapter(Arguments).validator.validate_json
    limited = Tool(search)
    unlimited = limited.with_changes(timeout=None)
    calls = [ToolCall(f"call_{n}", "search", text) for n, text in enumerate(TEXTS)]

    def message(call_id: str, text: str) -> dict[str, str]:
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    async def bare(n: int) -> None:
        for i in range(n):
            tool_call = calls[i % VARIANTS]
            text = await search(**validate(tool_call.arguments))
            message(tool_call.id, text)

    async def by_hand(n: int) -> None:
        for i in range(n):
            tool_call = calls[i % VARIANTS]
            try:
                async with asyncio.timeout(60.0):
                    text = await search(**validate(tool_call.arguments))
            except Exception as error:
                text = f"error: {error}"
            message(tool_call.id, text)

    def through(tool: Tool) -> Work:
        async def ours(n: int) -> None:
            for i in range(n):
                tool_call = calls[i % VARIANTS]
                await tool.call(tool_call, ToolContext(None, "run", tool_call.id))

        return _run(ours)

    candidates: dict[str, Work] = {"by hand": _run(by_hand), "agentkit": through(limited)}
    candidates |= {name: _run(_peer_calls(peer(search), calls)) for name, peer in CALLS.items()}
    yield from figures("W5 call", interleave(candidates, 2_000, rounds))
    unlimited_calls: dict[str, Work] = {"by hand": _run(bare), "agentkit": through(unlimited)}
    yield from figures("W5 call without a time limit", interleave(unlimited_calls, 10_000, rounds))


def _peer_calls(call: Call, calls: list[ToolCall]) -> Callable[[int], Coroutine[Any, Any, None]]:
    async def peer(n: int) -> None:
        for i in range(n):
            tool_call = calls[i % VARIANTS]
            await call(tool_call.id, tool_call.arguments)

    return peer


def threads(rounds: int) -> Iterable[Figure]:
    """Call a sync function, which runs in a thread; the limit is `asyncio.to_thread`."""

    def quick(query: str, limit: int = 10) -> str:
        return query

    validate = TypeAdapter(Arguments).validator.validate_json
    tool = Tool(quick, name="search", timeout=30.0)
    calls = [ToolCall(f"call_{n}", "search", f'{{"query": "query {n}", "limit": {n}}}') for n in range(VARIANTS)]

    async def by_hand(n: int) -> None:
        for i in range(n):
            await asyncio.to_thread(quick, **validate(calls[i % VARIANTS].arguments))

    async def ours(n: int) -> None:
        for i in range(n):
            tool_call = calls[i % VARIANTS]
            await tool.call(tool_call, ToolContext(None, "run", tool_call.id))

    yield from figures("W5 sync call", interleave({"to_thread": _run(by_hand), "agentkit": _run(ours)}, 2_000, rounds))


def _run(work: Callable[[int], Coroutine[Any, Any, None]]) -> Work:
    return lambda n: asyncio.run(work(n))


# Register

REGISTER = """
import gc, sys, time, tracemalloc
from types import FunctionType
from agentkit_tools import Tool
from agentkit_tools.toolsets.toolset import by_name

async def answer(**arguments): return ""
async def search(q: str, n: int = 1) -> str: return q

parameters = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}}

def described(number):
    return Tool.from_json_schema(f"tool_{number:05}", "A tool.", parameters, answer)

def written(number):
    function = FunctionType(search.__code__, search.__globals__, f"tool_{number:05}", search.__defaults__)
    function.__annotations__ = search.__annotations__
    return Tool(function)

def register():
    return by_name(map(globals()[sys.argv[2]], range(int(sys.argv[1]))))

start = time.process_time()
tools = register()
registered = time.process_time()
for tool in tools.values():
    tool.validate('{"q": "a"}')
called = time.process_time()
del tools, tool
gc.collect()  # empties the free lists, whose objects tracemalloc does not count
tracemalloc.start()
tools = register()
gc.collect()
print(registered - start, tracemalloc.get_traced_memory()[0] / 2**20, called - registered)
"""


def register(rounds: int) -> Iterable[Figure]:
    """Register 1,000 tools and 10,000 tools by name, each time in a new process."""
    for kind, title in (("described", "register"), ("written", "functions")):
        rows_by_count: dict[int, list[list[float]]] = {1_000: [], 10_000: []}
        for _ in range(max(1, rounds // 2)):
            for count, rows in rows_by_count.items():
                command = [sys.executable, "-c", REGISTER, str(count), kind]
                output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                rows.append([float(number) for number in output.split()])
        for column, quantity, unit in ((0, "time", "s"), (1, "memory", "MiB"), (2, "first call", "s")):
            few, many = (statistics.median([row[column] for row in rows]) for rows in rows_by_count.values())
            yield Figure(f"W5 {title}, {quantity}", "1,000 tools", few, unit)
            yield Figure(f"W5 {title}, {quantity}", "10,000 tools", many, unit, many / few)


if __name__ == "__main__":
    main(__doc__, {"build": build, "invoke": invoke, "call": call, "threads": threads, "register": register})
