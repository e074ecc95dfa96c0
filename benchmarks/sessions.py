"""W4: cost of a session of 1,000 turns.

The model has no latency and builds the payload of each request. The limit encodes the whole history as JSON in each
turn, as a client of a model does. `by hand` only appends to a list, and, if the session is stored, inserts rows into
SQLite with the module of the standard library. Growth is the cost of 1,000 turns over the cost of 500.

`turns` measures single turns of one long session of each library.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Figure, Samples, Work, figures, main, median_of_ratios
from peer_agents import PEERS, Run

from agentkit import Agent, Composition, Limits, Message, Reply, ScriptedModel, Session, tool
from agentkit.memory import Memory
from agentkit.prompts import AdditionalInfoPrompt, KnowledgePrompt, Layers, UserInput, UserInputPrompt, WrapPrompt

SYSTEM = "You are a careful assistant."
POINTS = (10, 100, 300, 1000)
"""Numbers of turns after which single turns are measured."""
NEAR = 5
"""Number of turns of a measurement."""
PEER_SECONDS = 12.0
"""CPU seconds after which the session of another library ends."""


# By hand


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
    """Encode the whole history in every turn, as for a request."""

    async def session() -> None:
        messages: list[dict[str, str]] = []
        for i in range(turns):
            messages.append({"role": "user", "content": f"Remember the number {i}, please."})
            json.dumps(messages)
            messages.append({"role": "assistant", "content": await _answer(messages)})

    asyncio.run(session())


def limit_session_sqlite(turns: int) -> None:
    """Commit two transactions per turn, so that a question is stored if the process is killed before the answer."""

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


# By agentkit


def noting_model() -> ScriptedModel:
    reply = Reply(Message("assistant", "Noted."))

    def answer(sent: Composition) -> Reply:
        sent.to_openai()
        return reply

    return ScriptedModel.repeat(answer, keep=0)


def our_session(turns: int) -> None:
    agent = Agent(noting_model(), SYSTEM)
    session = Session()

    async def talk() -> None:
        for i in range(turns):
            await agent.run(f"Remember the number {i}, please.", session=session)

    asyncio.run(talk())
    assert len(session.conversation) == 2 * turns


@tool
async def look_up(name: str) -> str:
    """Look up a name."""
    return name


def user_agent() -> Agent:
    """Return an agent as users write it: layers with custom templates, a tool, limits and a budget."""
    layers = Layers(
        system=AdditionalInfoPrompt("You keep notes for {{ user }}.", volatility="session"),
        before_input=KnowledgePrompt("{% for fact in knowledge %}* {{ fact.text }}\n{% endfor %}"),
        input=WrapPrompt((UserInputPrompt(),), "Note: {{ wrapped_str }}\nConfirm in one word."),
    )
    limits = Limits(steps=5, tokens=10_000_000, seconds=60)
    return Agent(noting_model(), layers=layers, tools=[look_up], limits=limits, budget=10_000_000)


def user_run(session: Session) -> Run:
    """Return a function that answers one question in a session, with a listener."""
    agent = user_agent()
    events: list[int] = [0]

    def listen(event: object) -> None:
        events[0] += 1

    async def run(text: str) -> Any:
        return await agent.run(UserInput(text, additional_kwargs={"user": "Ada"}), session=session, on_event=listen)

    return run


def our_session_custom(turns: int) -> None:
    session = Session()
    run = user_run(session)

    async def talk() -> None:
        for i in range(turns):
            await run(f"Remember the number {i}, please.")

    asyncio.run(talk())
    assert len(session.conversation) == 2 * turns


def our_session_sync(turns: int) -> None:
    agent = Agent(noting_model(), SYSTEM)
    session = Session()
    for i in range(turns):
        agent.run_sync(f"Remember the number {i}, please.", session=session)
    assert len(session.conversation) == 2 * turns


def our_session_sqlite(turns: int) -> None:
    agent = Agent(noting_model(), SYSTEM)
    with tempfile.TemporaryDirectory() as folder, Memory(folder) as memory:
        session = memory.session("long")

        async def talk() -> None:
            for i in range(turns):
                await agent.run(f"Remember the number {i}, please.", session=session)

        asyncio.run(talk())
        assert len(session.conversation) == 2 * turns


def our_session_sqlite_custom(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Memory(folder) as memory:
        session = memory.session("long")
        run = user_run(session)

        async def talk() -> None:
            for i in range(turns):
                await run(f"Remember the number {i}, please.")

        asyncio.run(talk())
        assert len(session.conversation) == 2 * turns


STORAGES: dict[str, dict[str, Work]] = {
    "in memory": {"by hand": limit_session, "agentkit": our_session, "agentkit, custom": our_session_custom},
    "by run_sync": {"by hand": limit_session_sync, "agentkit": our_session_sync},
    "in SQLite": {
        "by hand": limit_session_sqlite,
        "agentkit": our_session_sqlite,
        "agentkit, custom": our_session_sqlite_custom,
    },
}


def storages(rounds: int) -> Iterator[Figure]:
    """Measure sessions of 1,000 turns, and their growth from 500 turns."""
    rounds = max(3, rounds // 2)
    for storage, works in STORAGES.items():
        full = _whole_sessions({"json each turn": limit_session_json, **works}, 1000, rounds)
        ours = {name: work for name, work in works.items() if name != "by hand"}
        half = _whole_sessions(ours, 500, rounds)
        yield from figures(f"W4 {storage}", full, unit="ms")
        for name, few in half.items():
            ratio, spread = median_of_ratios(full[name].rounds, few.rounds)
            yield Figure(f"W4 {storage}, growth", f"{name}, 500 turns", few * 1e3, "ms")
            yield Figure(f"W4 {storage}, growth", f"{name}, 1,000 turns", full[name] * 1e3, "ms", ratio, spread)


def _whole_sessions(candidates: dict[str, Work], turns: int, rounds: int) -> dict[str, Samples]:
    """Return the CPU seconds of one session of `turns` turns."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.process_time()
            candidates[name](turns)
            samples[name].append(time.process_time() - start)
    return {name: Samples(times) for name, times in samples.items()}


def turns(_: int) -> Iterator[Figure]:
    """Measure turns of one long session of each library, which keeps the whole conversation."""
    messages: list[dict[str, str]] = []

    async def by_json(text: str) -> None:
        messages.append({"role": "user", "content": text})
        json.dumps(messages)
        messages.append({"role": "assistant", "content": "Noted."})

    agent, session = Agent(noting_model(), SYSTEM), Session()

    async def ours(text: str) -> None:
        await agent.run(text, session=session)

    runs: dict[str, Run] = {"json each turn": by_json, "agentkit": ours, "agentkit, custom": user_run(Session())}
    runs |= {name: peer(SYSTEM, [], []).session() for name, peer in PEERS.items()}
    limits: dict[int, float] = {}
    for name, run in runs.items():
        for point, seconds in asyncio.run(_turn_costs(run)).items():
            limit = limits.setdefault(point, seconds)
            ratio = None if name == "json each turn" else seconds / limit
            yield Figure(f"W4 turn after {point:,} turns", name, seconds * 1e6, "µs", ratio)


async def _turn_costs(run: Run) -> dict[int, float]:
    """Return the median CPU seconds of a turn after each number of turns that is reached in time."""
    start = time.process_time()
    seconds: list[float] = []
    for number in range(POINTS[-1] + NEAR):
        turn_start = time.process_time()
        await run(f"Remember the number {number}, please.")
        end = time.process_time()
        seconds.append(end - turn_start)
        if end - start > PEER_SECONDS:
            break
    costs = {point: seconds[point - NEAR : point + NEAR] for point in POINTS}
    return {point: statistics.median(near) for point, near in costs.items() if len(near) == 2 * NEAR}


if __name__ == "__main__":
    main(__doc__, {"storages": storages, "turns": turns})
