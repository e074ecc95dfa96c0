"""PostgreSQL: locks of killed or stopped clients are released, and other clients continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentkit.memory import StoreUnavailable
from agentkit_memory.database.engine import Database
from agentkit_memory.store.outbox import hold_spaces
from tests.waiting import LONG

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are killed and stopped by signals")

HOLDS = """
import sys, time
from agentkit_memory.database.engine import Database
from agentkit_memory.store.outbox import hold_spaces
database = Database.open(sys.argv[1])
with database.write() as connection:
    if len(sys.argv) > 2:
        connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = {sys.argv[2]}")
    hold_spaces(connection, change=True)
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has the lock of the spaces in a transaction."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def take(address: str, timeout: float) -> None:
    database = Database.open(address, timeout=timeout)
    try:
        with database.write() as connection:
            hold_spaces(connection, change=True)
    finally:
        database.close()


@pytest.mark.long
def test_locks_of_a_killed_client_are_released(fresh_postgres: str) -> None:
    with holder(fresh_postgres) as process:
        with pytest.raises(StoreUnavailable):
            take(fresh_postgres, 2)
        process.kill()
        process.wait()
        take(fresh_postgres, LONG)


@pytest.mark.long
def test_locks_of_a_stopped_client_are_released_after_the_time_limit(fresh_postgres: str) -> None:
    with holder(fresh_postgres, "1000") as process:
        process.send_signal(signal.SIGSTOP)
        take(fresh_postgres, LONG)


@pytest.mark.long
def test_each_connection_has_a_time_limit_for_locks_and_for_idle_transactions(fresh_postgres: str) -> None:
    database = Database.open(fresh_postgres, timeout=7)
    with database.read() as connection:
        shown = [
            connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("lock_timeout", "idle_in_transaction_session_timeout")
        ]
    database.close()
    assert shown == ["7s", "1min"]
