"""A restart of a PostgreSQL server fails no call: reads are repeated, an append is stored once."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from agentkit.memory import HeadMoved, Memory, StoreUnavailable
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from tests.postgres import restart
from tests.waiting import LONG

pytestmark = pytest.mark.long


def end_others(memory: Memory) -> None:
    """End all other connections of the server, as a restart does."""
    StoreProbe(memory).rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid != pg_backend_pid() AND datname = current_database()"
    )


def wait_for_each(added: dict[str, list[str]], problems: list[BaseException], threads: int) -> None:
    """Wait until each thread has completed two more calls, so that no call is interrupted by two restarts."""
    before = {name: len(each) for name, each in added.items()}
    until = time.monotonic() + LONG
    while time.monotonic() < until and not problems:
        if len(added) == threads and all(len(each) >= before.get(name, 0) + 2 for name, each in added.items()):
            return
        time.sleep(0.005)


def texts(memory: Memory, session: str) -> list[str]:
    return [each.text for each in memory.session(session).conversation]


def test_a_restart_fails_no_append_and_no_recall_in_flight(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index", timeout=LONG) as memory:
        memory.facts.add("The heron is a bird.")
        memory.worker().drain()
        done, problems = threading.Event(), list[BaseException]()
        added: dict[str, list[str]] = {}

        def append(name: str) -> None:
            said = added.setdefault(name, [])
            try:
                session = memory.session(name, load=name < "s2")
                while not done.is_set():
                    line = f"{name} {len(said)}"
                    session.append(Message("user", line), key=line if name in ("s0", "s2") else None)
                    said.append(line)
            except BaseException as error:
                problems.append(error)

        def recall(name: str) -> None:
            recalled = added.setdefault(name, [])
            try:
                while not done.is_set():
                    assert len(memory.recall("heron").knowledge) == len(memory.facts.search("heron")) == 1
                    recalled.append("heron")
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=append, args=(f"s{number}",)) for number in range(4)]
        threads += [threading.Thread(target=recall, args=(f"recall {number}",)) for number in range(2)]
        for each in threads:
            each.start()
        for mode in ("fast", "immediate", "fast"):
            wait_for_each(added, problems, len(threads))
            restart(mode)
        wait_for_each(added, problems, len(threads))
        done.set()
        for each in threads:
            each.join(120)
        assert problems == []
        assert all(texts(memory, name) == said for name, said in added.items() if name.startswith("s"))


@pytest.mark.parametrize("load", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_an_append_is_stored_once_if_its_connection_is_lost_at_its_end(
    fresh_postgres: str, tmp_path: Path, load: bool, committed: bool
) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index") as memory:
        session = memory.session("s", load=load)
        session.append(Message("user", "first"))
        lost: list[Any] = []

        def lose(connection: Any) -> None:
            if not lost:
                lost.append(connection)
                if committed:
                    connection.connection.driver_connection.commit()
                end_others(memory)

        event.listen(StoreProbe(memory).engine, "commit", lose)
        session.append(Message("user", "second"), Message("assistant", "third"))
        assert lost
        session.append(Message("user", "fourth"))
        assert texts(memory, "s") == ["first", "second", "third", "fourth"]


def test_a_retried_append_after_another_writer_is_refused(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index") as memory:
        mine, other = memory.session("s"), memory.session("s")
        lost: list[Any] = []

        def lose(connection: Any) -> None:
            if not lost:
                lost.append(connection)
                end_others(memory)
                other.append(Message("user", "of another writer"))

        event.listen(StoreProbe(memory).engine, "commit", lose)
        with pytest.raises(HeadMoved):
            mine.append(Message("user", "mine"))
        mine.append(Message("user", "mine"))
        assert texts(memory, "s") == ["of another writer", "mine"]


def test_a_write_fails_if_its_connection_is_lost_twice(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index") as memory:
        session = memory.session("s")
        event.listen(StoreProbe(memory).engine, "commit", lambda connection: end_others(memory))
        with pytest.raises(StoreUnavailable) as caught:
            session.append(Message("user", "mine"))
        assert isinstance(caught.value.__cause__, OperationalError)
