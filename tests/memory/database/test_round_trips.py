"""PostgreSQL over a network: few round trips, and no failed call after a restart of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from agentkit.memory import Memory
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from tests.memory.database.round_trips import Proxy, proxied
from tests.postgres import restart
from tests.waiting import LONG

_MAX_TRIPS = 8


class Boats:
    """An embedder of two directions."""

    model = "boats"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float("boat" in text)] for text in texts]


@pytest.fixture
def proxy(fresh_postgres: str) -> Iterator[Proxy]:
    with proxied(fresh_postgres) as opened:
        yield opened


@pytest.mark.long
@pytest.mark.parametrize(
    ("embedder", "waiting", "crowded"),  # each pair of values
    [(None, False, False), (None, True, True), (Boats(), False, True), (Boats(), True, False)],
)
def test_recalls_and_searches_of_facts_take_few_round_trips(
    proxy: Proxy, tmp_path: Path, embedder: Boats | None, waiting: bool, crowded: bool
) -> None:
    with Memory(proxy.url, index=tmp_path / "index", embedder=embedder, keep_recalls=0) as memory:
        memory.session("s").append(*[Message("user", f"The heron eats eel {number}.") for number in range(9)])
        memory.facts.add("The heron is a bird.")
        if crowded:
            memory.session("copies").append(*[Message("user", "A boat and a heron.")] * 200)
        memory.worker().drain()
        memory.recall("boat heron", limit=3)  # opens the connections and the index
        StoreProbe(memory).pause()  # without other clients of the server
        time.sleep(0.3)
        taken: dict[str, list[int]] = {"recall": [], "facts": []}
        for number in range(14):
            if waiting:
                memory.facts.add(f"A heron is bird {number}.")
                memory.session("s").append(Message("user", f"The heron rests {number}."))
            before = proxy.trips
            recall = memory.recall("boat heron", limit=3)
            taken["recall"].append(proxy.trips - before)
            assert len({each.text for each in recall}) == 3
            before = proxy.trips
            assert memory.facts.search("boat heron", limit=3)
            taken["facts"].append(proxy.trips - before)
        assert all(min(each) >= 2 and median(each) <= _MAX_TRIPS for each in taken.values()), taken
        assert max(taken["recall"]) <= _MAX_TRIPS, taken
        # The sixth time it is executed, a statement is prepared: one trip more, once in a connection.
        assert max(taken["facts"]) <= _MAX_TRIPS + 1, taken
        proxy.delay = 0.001
        assert memory.recall("boat heron")


READS: dict[str, Callable[[Memory], object]] = {
    "facts.list": lambda memory: memory.facts.list(),
    "facts.get": lambda memory: memory.facts.get("no such"),
    "documents.list": lambda memory: memory.documents.list(),
    "documents.get": lambda memory: memory.documents.get("heron.txt"),
    "documents.chunks": lambda memory: memory.documents.chunks("heron.txt"),
    "session": lambda memory: memory.session("s"),
    "fork": lambda memory: memory.session("s", branch="fork"),
    "page": lambda memory: memory.session("s", load=False).page(limit=2),
    "tool_calls": lambda memory: memory.session("s", load=False).tool_calls(),
    "sessions": lambda memory: memory.sessions(),
    "newest_sessions": lambda memory: memory.newest_sessions(),
    "recall_logs": lambda memory: memory.recall_logs(),
    "usage": lambda memory: memory.admin.usage(),
}


@pytest.mark.long
def test_all_other_reads_take_few_round_trips(proxy: Proxy, tmp_path: Path) -> None:
    with Memory(proxy.url, index=tmp_path / "index") as memory:
        session = memory.session("s")
        session.append(*[Message("user", f"The heron eats eel {number}.") for number in range(9)])
        session.fork("fork", at=3)
        memory.facts.add("The heron is a bird.")
        memory.documents.add("A heron stands in the reeds.", source="heron.txt")
        memory.worker().drain()
        StoreProbe(memory).pause()  # without other clients of the server
        time.sleep(0.3)
        for name, read in READS.items():
            taken = []
            for _ in range(14):
                before = proxy.trips
                read(memory)
                taken.append(proxy.trips - before)
            assert min(taken) >= 1 and max(taken) <= _MAX_TRIPS, (name, taken)


@pytest.mark.long
def test_a_restart_of_the_server_fails_no_call(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index", timeout=LONG) as memory:
        session = memory.session("s")
        session.append(Message("user", "The heron eats eels."))
        memory.worker().drain()
        assert len(memory.recall("heron")) == 1
        for mode in ("fast", "immediate"):
            restart(mode)
            assert len(memory.recall("heron")) == 1
            session.append(Message("user", f"It went on, {mode}."))
        assert len(memory.session("s").conversation) == 3


@pytest.mark.long
def test_reads_of_a_server_are_not_transactions(fresh_postgres: str) -> None:
    database = Database.open(fresh_postgres)
    try:
        with database.read() as connection:
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            with database.read() as beside:
                state = beside.exec_driver_sql(f"SELECT state FROM pg_stat_activity WHERE pid = {pid}")
                assert state.scalar() == "idle"
        with database.write() as connection:
            shown = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar()
            assert shown == "1min"
    finally:
        database.close()
