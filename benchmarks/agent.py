"""W2 and W4: what the loop around a model costs, and what a long session costs.

The model answers at once, from a payload that could be sent. The limit of W2 is an asyncio loop written by hand that
validates arguments with a ready pydantic validator; ours runs with events listened to, timeouts and idempotency keys
on. The limit of W4 appends to a list, and, where the session is kept, inserts into SQLite through the driver of the
standard library.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import itertools
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from harness import Figure, Work, figures, interleave, kib_each, main
from peer_agents import PEERS
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from agentkit import Agent, Composition, InMemorySession, Message, Reply, ScriptedModel, Tool, ToolCall, tool
from agentkit.memory import Memory

SYSTEM = "You are a careful assistant. Use the tools for arithmetic."
AT_ONCE = 100
VARIANTS = 64
"""How many different tool calls there are, so that nobody can answer from a cache of the last one."""


# The tools


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def add_later(a: int, b: int) -> int:
    """Add two numbers, when others had their turn."""
    await asyncio.sleep(0)
    return a + b


async def multiply_later(a: int, b: int) -> int:
    """Multiply two numbers, when others had their turn."""
    await asyncio.sleep(0)
    return a * b


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in an async one, as decorators that log or trace do."""

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
    """Ten functions nobody has seen before, so that no schema is found in a cache."""

    def search(query: str, limit: int = 10, *, tags: list[str] | None = None, exact: bool = False) -> str:
        """Search the archive."""
        return query

    return [_copy(search, f"search_{i}") for i in range(10)]


def _copy(function: Any, name: str) -> Callable[..., Any]:
    made = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = dict(function.__kwdefaults__)
    made.__annotations__ = dict(function.__annotations__)
    made.__doc__ = function.__doc__
    return made


# W2, by hand


class Numbers(TypedDict):
    """The arguments of both tools."""

    a: int
    b: int


_numbers = TypeAdapter(Numbers).validator


class HandModel:
    """Two parallel tool calls, then the answer."""

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
    """The least an agent can be."""

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


def limit_run(n: int) -> None:
    agent = HandAgent(HandModel(), SYSTEM, [add, multiply])
    asyncio.run(_one_by_one(agent.run, n))


def limit_run_waiting(n: int) -> None:
    agent = HandAgent(HandModel(), SYSTEM, [add_later, multiply_later])
    agent.tools = {"add": add_later, "multiply": multiply_later}
    asyncio.run(_one_by_one(agent.run, n))


def limit_at_once(n: int) -> None:
    agent = HandAgent(HandModel(), SYSTEM, [add, multiply])
    asyncio.run(_at_once(agent.run, n))


def limit_construct(n: int) -> None:
    model, functions = HandModel(), [add, multiply]
    for _ in range(n):
        HandAgent(model, SYSTEM, functions)


def limit_construct_from_functions(n: int) -> None:
    """Per function, a validator of its arguments and their JSON Schema."""
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


# W2, ours


TIMED = [tool(timeout=30.0)(add), tool(timeout=30.0)(multiply)]
TIMED_LATER = [tool(name="add", timeout=30.0)(add_later), tool(name="multiply", timeout=30.0)(multiply_later)]
"""Tools that have to wait: here a time limit is armed and taken back."""


DECORATED = [tool(timeout=30.0)(logged(add)), tool(timeout=30.0)(logged(multiply))]
DECORATED_SYNC = [
    tool(name="add", timeout=30.0)(logged(sync_add)),
    tool(name="multiply", timeout=30.0)(logged(sync_multiply)),
]
"""Async wrappers around sync functions: they are awaited, and need no thread."""


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
        sent.to_openai()  # what a real model would put on the wire; the loop by hand has it ready too
        return done if len(sent.intermediate) else next(replies)

    return ScriptedModel.repeat(answer, keep=0)


def noting_model() -> ScriptedModel:
    noted = Reply(Message("assistant", "Noted."))

    def answer(sent: Composition) -> Reply:
        sent.to_openai()
        return noted

    return ScriptedModel.repeat(answer, keep=0)


def our_agent(tools: list[Tool] = TIMED) -> Callable[[str], Any]:
    agent = Agent(our_model(), SYSTEM, tools=tools)
    heard: list[int] = [0]

    def listen(event: object) -> None:
        heard[0] += 1

    async def run(text: str) -> str:
        return (await agent.run(text, on_event=listen)).output

    return run


def our_run(n: int) -> None:
    asyncio.run(_one_by_one(our_agent(), n))


def our_run_waiting(n: int) -> None:
    asyncio.run(_one_by_one(our_agent(TIMED_LATER), n))


def our_run_decorated(n: int) -> None:
    asyncio.run(_one_by_one(our_agent(DECORATED), n))


def our_run_decorated_sync(n: int) -> None:
    asyncio.run(_one_by_one(our_agent(DECORATED_SYNC), n))


def peer_run(name: str) -> Work:
    run = PEERS[name](SYSTEM, [add, multiply], [call_text(i) for i in range(VARIANTS)])
    return lambda n: asyncio.run(_one_by_one(run, n))


def our_at_once(n: int) -> None:
    asyncio.run(_at_once(our_agent(), n))


def our_construct(n: int) -> None:
    model = our_model()
    for _ in range(n):
        Agent(model, SYSTEM, tools=TIMED)


def our_construct_from_functions(n: int) -> None:
    model = our_model()
    for _ in range(n):
        agent = Agent(model, SYSTEM, tools=ten_functions())
        for spec in agent.specs:
            assert spec.parameters


def agent_workload(rounds: int) -> Iterator[Figure]:
    """W2."""
    runs: dict[str, Work] = {"by hand": limit_run, "agentkit": our_run, **{name: peer_run(name) for name in PEERS}}
    yield from figures("W2 run", interleave(runs, 300, rounds), goals={"agentkit": 5})
    runs = {"by hand": limit_run_waiting, "agentkit": our_run_waiting}
    yield from figures("W2 run, tools that wait", interleave(runs, 300, rounds), goals={"agentkit": 5})
    runs = {"by hand": limit_run, "agentkit": our_run_decorated, "around sync": our_run_decorated_sync}
    goals = {"agentkit": 5.0, "around sync": 5.0}
    yield from figures("W2 run, decorated functions", interleave(runs, 300, rounds), goals=goals)
    at_once = interleave({"by hand": limit_at_once, "agentkit": our_at_once}, 1000, rounds)
    for name, seconds in at_once.items():
        ours = name == "agentkit"
        goal, met = ("at least 10,000", 1 / seconds >= 10_000) if ours else ("", None)
        yield Figure("W2 100 at once", name, 1 / seconds, "runs/s", None, goal, met)
    ready = interleave({"by hand": limit_construct, "agentkit": our_construct}, 2000, rounds)
    for figure in figures("W2 construct, tools ready", ready):
        ours = figure.who == "agentkit"
        yield _with_goal(figure, "at most 5 µs", figure.value <= 5) if ours else figure
    built = {"by hand": limit_construct_from_functions, "agentkit": our_construct_from_functions}
    yield from figures("W2 construct, 10 functions", interleave(built, 5, rounds), unit="ms", goals={"agentkit": 1.1})
    hand, ours = HandModel(), our_model()
    yield Figure("W2 memory per agent", "by hand", kib_each(lambda: HandAgent(hand, SYSTEM, [add, multiply])), "KiB")
    each = kib_each(lambda: Agent(ours, SYSTEM, tools=TIMED))
    yield Figure("W2 memory per agent", "agentkit", each, "KiB", None, "at most 1.6 KiB", each <= 1.6)


def _with_goal(figure: Figure, goal: str, met: bool) -> Figure:
    return Figure(figure.workload, figure.who, figure.value, figure.unit, figure.ratio, goal, met)


# W4, by hand


async def _answer(messages: list[dict[str, str]]) -> str:
    return "Noted."


def limit_session(turns: int) -> None:
    async def session() -> None:
        messages: list[dict[str, str]] = []
        for i in range(turns):
            messages.append({"role": "user", "content": f"Remember the number {i}, please."})
            messages.append({"role": "assistant", "content": await _answer(messages)})

    asyncio.run(session())


def limit_session_sync(turns: int) -> None:
    messages: list[dict[str, str]] = []
    with asyncio.Runner() as runner:
        for i in range(turns):
            messages.append({"role": "user", "content": f"Remember the number {i}, please."})
            messages.append({"role": "assistant", "content": runner.run(_answer(messages))})


def limit_session_json(turns: int) -> None:
    """What sending the history costs those who encode all of it on every turn."""

    async def session() -> None:
        messages: list[dict[str, str]] = []
        for i in range(turns):
            messages.append({"role": "user", "content": f"Remember the number {i}, please."})
            json.dumps(messages)
            messages.append({"role": "assistant", "content": await _answer(messages)})

    asyncio.run(session())


def limit_session_sqlite(turns: int) -> None:
    """Two transactions a turn, as a run that may be killed between question and answer needs them."""

    async def session(database: sqlite3.Connection) -> None:
        messages: list[dict[str, str]] = []
        for i in range(turns):
            messages.append({"role": "user", "content": f"Remember the number {i}, please."})
            _insert(database, messages)
            messages.append({"role": "assistant", "content": await _answer(messages)})
            _insert(database, messages)

    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder) / "limit.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("CREATE TABLE message (seq INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        asyncio.run(session(database))
        database.close()


def _insert(database: sqlite3.Connection, messages: list[dict[str, str]]) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute("INSERT INTO message VALUES (?, ?)", (len(messages), json.dumps(messages[-1])))
    database.execute("COMMIT")


# W4, ours


def our_session(turns: int) -> None:
    agent = Agent(noting_model(), SYSTEM)
    session = InMemorySession()

    async def talk() -> None:
        for i in range(turns):
            await agent.run(f"Remember the number {i}, please.", session=session)

    asyncio.run(talk())
    assert len(session.conversation) == 2 * turns


def our_session_sync(turns: int) -> None:
    agent = Agent(noting_model(), SYSTEM)
    session = InMemorySession()
    for i in range(turns):
        agent.run_sync(f"Remember the number {i}, please.", session=session)
    assert len(session.conversation) == 2 * turns


def our_session_sqlite(turns: int) -> None:
    agent = Agent(noting_model(), SYSTEM)
    with tempfile.TemporaryDirectory() as folder, Memory.open(folder) as memory:
        session = memory.session("long")

        async def talk() -> None:
            for i in range(turns):
                await agent.run(f"Remember the number {i}, please.", session=session)

        asyncio.run(talk())
        assert len(session.conversation) == 2 * turns


def session_workload(rounds: int) -> Iterator[Figure]:
    """W4."""
    for where, goal, candidates in (
        ("in memory", 0.04, {"by hand": limit_session, "agentkit": our_session}),
        ("by run_sync", 0.1, {"by hand": limit_session_sync, "agentkit": our_session_sync}),
        ("in SQLite", 0.5, {"by hand": limit_session_sqlite, "agentkit": our_session_sqlite}),
    ):
        full, half = _whole_sessions(candidates, 1000, rounds), _whole_sessions(candidates, 500, rounds)
        for figure in figures(f"W4 {where}", full, unit="ms"):
            ours = figure.who == "agentkit"
            yield _with_goal(figure, f"at most {goal * 1000:g} ms", full["agentkit"] <= goal) if ours else figure
        growth = full["agentkit"] / half["agentkit"]
        yield Figure(f"W4 {where}, 1000 over 500", "agentkit", growth, "times", None, "at most 2.2", growth <= 2.2)
    encoded = _whole_sessions({"json each turn": limit_session_json}, 1000, 3)
    yield from figures("W4 in memory", encoded, unit="ms")


def _whole_sessions(candidates: dict[str, Work], turns: int, rounds: int) -> dict[str, float]:
    """Return median CPU seconds of one session of so many turns."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.process_time()
            candidates[name](turns)
            taken[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in taken.items()}


if __name__ == "__main__":
    main(__doc__, {"agent": agent_workload, "session": session_workload})
