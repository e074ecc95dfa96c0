"""W4: cost of a long session, measured by `agent.py`.

The model has no latency. The limit appends to a list, and, if the session is stored, inserts rows into SQLite with the
module of the standard library.
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

from harness import Figure, Work, figures

from agentkit import Agent, Composition, Message, Reply, ScriptedModel, Session
from agentkit.memory import Memory

__all__ = ["session_workload"]

SYSTEM = "You are a careful assistant."


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


def session_workload(rounds: int) -> Iterator[Figure]:
    """Measure sessions of 1,000 turns, and their growth from 500 turns."""
    for storage, goal, candidates in (
        ("in memory", 0.04, {"by hand": limit_session, "agentkit": our_session}),
        ("by run_sync", 0.1, {"by hand": limit_session_sync, "agentkit": our_session_sync}),
        ("in SQLite", 0.5, {"by hand": limit_session_sqlite, "agentkit": our_session_sqlite}),
    ):
        full, half = _whole_sessions(candidates, 1000, rounds), _whole_sessions(candidates, 500, rounds)
        for figure in figures(f"W4 {storage}", full, unit="ms"):
            if figure.who == "agentkit":
                figure = figure.with_goal(f"at most {goal * 1000:g} ms", full["agentkit"] <= goal)
            yield figure
        growth = full["agentkit"] / half["agentkit"]
        yield Figure(f"W4 {storage}, 1000 over 500", "agentkit", growth, "times", None, "at most 2.2", growth <= 2.2)
    seconds = _whole_sessions({"json each turn": limit_session_json}, 1000, 3)
    yield from figures("W4 in memory", seconds, unit="ms")


def _whole_sessions(candidates: dict[str, Work], turns: int, rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of one session of `turns` turns."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        for name in list(candidates)[:: 1 if number % 2 else -1]:
            gc.collect()
            start = time.process_time()
            candidates[name](turns)
            samples[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in samples.items()}
