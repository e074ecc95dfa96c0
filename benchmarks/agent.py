"""W2: cost of the loop around a model.

The model replies without a delay and builds the payload of each request. The limit of W2 is an asyncio loop written by
hand that validates arguments with a prepared pydantic validator; agentkit runs with an event listener, timeouts and
idempotency keys.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from harness import Figure, Work, figures, interleave, kib_each, main
from peer_agents import PEERS
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from agentkit import Agent, Composition, Message, Reply, ScriptedModel, Tool, ToolCall, tool

SYSTEM = "You are a careful assistant. Use the tools for arithmetic."
AT_ONCE = 100
VARIANTS = 64
"""Number of different tool calls, so that no cache of the last call is used."""


# The tools


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def add_later(a: int, b: int) -> int:
    """Add two numbers after other tasks have run."""
    await asyncio.sleep(0)
    return a + b


async def multiply_later(a: int, b: int) -> int:
    """Multiply two numbers after other tasks have run."""
    await asyncio.sleep(0)
    return a * b


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in an async function, like a decorator that logs or traces."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return wrapper


def sync_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sync_multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def call_text(number: int) -> str:
    return json.dumps({"a": number, "b": number + 1})


def ten_functions() -> list[Callable[..., Any]]:
    """Return ten new functions, so that no cached schema is used."""

    def search(query: str, limit: int = 10, *, tags: list[str] | None = None, exact: bool = False) -> str:
        """Search the archive."""
        return query

    return [_copy(search, f"search_{i}") for i in range(10)]


def _copy(function: Any, name: str) -> Callable[..., Any]:
    copy = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = dict(function.__kwdefaults__)
    copy.__annotations__ = dict(function.__annotations__)
    copy.__doc__ = function.__doc__
    return copy


# W2, by hand


class Numbers(TypedDict):
    """The arguments of both tools."""

    a: int
    b: int


_numbers = TypeAdapter(Numbers).validator


class HandModel:
    """A model that sends two parallel tool calls, then the answer."""

    def __init__(self) -> None:
        self._calls = itertools.cycle(
            [
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": f"a{i}", "function": {"name": "add", "arguments": call_text(i)}},
                        {"id": f"b{i}", "function": {"name": "multiply", "arguments": call_text(i)}},
                    ],
                }
                for i in range(VARIANTS)
            ]
        )

    async def request(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"role": "assistant", "content": "Done."} if messages[-1]["role"] == "tool" else next(self._calls)


class HandAgent:
    """A minimal agent."""

    __slots__ = ("model", "system", "tools")

    def __init__(self, model: HandModel, system: str, tools: list[Callable[..., Any]]) -> None:
        self.model = model
        self.system = system
        self.tools = {tool.__name__: tool for tool in tools}

    async def run(self, text: str) -> str:
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}, {"role": "user", "content": text}]
        while True:
            reply = await self.model.request(messages)
            messages.append(reply)
            calls = reply.get("tool_calls")
            if not calls:
                return str(reply["content"])
            messages += await asyncio.gather(*[self._call(call) for call in calls])

    async def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        arguments = _numbers.validate_json(function["arguments"])
        result = await self.tools[function["name"]](**arguments)
        return {"role": "tool", "tool_call_id": call["id"], "content": str(result)}


def hand_agent(**tools: Callable[..., Any]) -> HandAgent:
    """Return an agent by hand, with tools by name."""
    agent = HandAgent(HandModel(), SYSTEM, [])
    agent.tools = tools
    return agent


def runs_of(run: Callable[[str], Any]) -> Work:
    """Return runs one after the other; the agent exists."""
    return lambda n: asyncio.run(_one_by_one(run, n))


def runs_at_once(run: Callable[[str], Any]) -> Work:
    """Return runs, 100 at once; the agent exists."""
    return lambda n: asyncio.run(_at_once(run, n))


def limit_construct() -> Work:
    model, functions = HandModel(), [add, multiply]

    def construct(n: int) -> None:
        for _ in range(n):
            HandAgent(model, SYSTEM, functions)

    return construct


def limit_construct_from_functions(n: int) -> None:
    """Build a validator of the arguments and their JSON Schema for each function."""
    model = HandModel()
    for _ in range(n):
        functions = ten_functions()
        for function in functions:
            TypeAdapter(function).json_schema()
        HandAgent(model, SYSTEM, functions)


async def _one_by_one(run: Callable[[str], Any], n: int) -> None:
    for i in range(n):
        await run(f"What is {i} plus {i + 1}, and their product?")


async def _at_once(run: Callable[[str], Any], n: int) -> None:
    for start in range(0, n, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, n))
        await asyncio.gather(*[run(f"What is {i} plus {i + 1}, and their product?") for i in numbers])


# W2, by agentkit


TIMED = [tool(timeout=30.0)(add), tool(timeout=30.0)(multiply)]
TIMED_LATER = [tool(name="add", timeout=30.0)(add_later), tool(name="multiply", timeout=30.0)(multiply_later)]
"""Tools that wait, so that a time limit is set and cancelled."""


DECORATED = [tool(timeout=30.0)(logged(add)), tool(timeout=30.0)(logged(multiply))]
DECORATED_SYNC = [
    tool(name="add", timeout=30.0)(logged(sync_add)),
    tool(name="multiply", timeout=30.0)(logged(sync_multiply)),
]
"""Async wrappers of sync functions: the wrappers are awaited and need no thread."""


def our_model() -> ScriptedModel:
    replies = itertools.cycle(
        [
            Reply(
                Message(
                    "assistant",
                    tool_calls=(ToolCall(f"a{i}", "add", call_text(i)), ToolCall(f"b{i}", "multiply", call_text(i))),
                ),
                finish_reason="tool_calls",
            )
            for i in range(VARIANTS)
        ]
    )
    done = Reply(Message("assistant", "Done."))

    def answer(sent: Composition) -> Reply:
        sent.to_openai()  # the payload of a request; the loop by hand has one too
        return done if len(sent.intermediate) else next(replies)

    return ScriptedModel.repeat(answer, keep=0)


def our_agent(tools: list[Tool] = TIMED) -> Callable[[str], Any]:
    agent = Agent(our_model(), SYSTEM, tools=tools)
    event_count: list[int] = [0]

    def listen(event: object) -> None:
        event_count[0] += 1

    async def run(text: str) -> str:
        return (await agent.run(text, on_event=listen)).output

    return run


def peer_run(name: str) -> Work:
    return runs_of(PEERS[name](SYSTEM, [add, multiply], [call_text(i) for i in range(VARIANTS)]).run())


def peer_construct(name: str) -> Work:
    peer = PEERS[name](SYSTEM, [add, multiply], [])

    def construct(n: int) -> None:
        for _ in range(n):
            peer.agent()

    return construct


def our_construct() -> Work:
    model = our_model()

    def construct(n: int) -> None:
        for _ in range(n):
            Agent(model, SYSTEM, tools=TIMED)

    return construct


def our_construct_from_functions(n: int) -> None:
    model = our_model()
    for _ in range(n):
        agent = Agent(model, SYSTEM, tools=ten_functions())
        for spec in agent.specs:
            assert spec.parameters


def agent_workload(rounds: int) -> Iterator[Figure]:
    """Measure the runs and the construction of agents."""
    limit = hand_agent(add=add, multiply=multiply).run
    runs: dict[str, Work] = {"by hand": runs_of(limit), "agentkit": runs_of(our_agent())}
    runs |= {name: peer_run(name) for name in PEERS}
    yield from figures("W2 run", interleave(runs, 150, rounds))
    waiting = hand_agent(add=add_later, multiply=multiply_later).run
    runs = {"by hand": runs_of(waiting), "agentkit": runs_of(our_agent(TIMED_LATER))}
    yield from figures("W2 run, tools that wait", interleave(runs, 300, rounds))
    runs = {
        "by hand": runs_of(limit),
        "agentkit": runs_of(our_agent(DECORATED)),
        "around sync": runs_of(our_agent(DECORATED_SYNC)),
    }
    yield from figures("W2 run, decorated functions", interleave(runs, 300, rounds))
    at_once = interleave({"by hand": runs_at_once(limit), "agentkit": runs_at_once(our_agent())}, 1000, rounds)
    yield from figures("W2 100 at once", at_once)
    ready: dict[str, Work] = {"by hand": limit_construct(), "agentkit": our_construct()}
    ready |= {name: peer_construct(name) for name in PEERS}
    yield from figures("W2 construct, tools ready", interleave(ready, 200, rounds))
    constructions = {"by hand": limit_construct_from_functions, "agentkit": our_construct_from_functions}
    yield from figures("W2 construct, 10 functions", interleave(constructions, 5, rounds), unit="ms")
    hand, ours = HandModel(), our_model()
    yield Figure("W2 memory per agent", "by hand", kib_each(lambda: HandAgent(hand, SYSTEM, [add, multiply])), "KiB")
    kib = kib_each(lambda: Agent(ours, SYSTEM, tools=TIMED))
    yield Figure("W2 memory per agent", "agentkit", kib, "KiB")


if __name__ == "__main__":
    main(__doc__, {"agent": agent_workload})
