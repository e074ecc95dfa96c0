"""A connection to PostgreSQL that is lost during a commit: an operation has one effect, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import psycopg
import pytest

from agentkit import Approved
from agentkit.models.model import Usage
from agentkit.run.parts.run_inbox import checked_message
from agentkit.runs.run_record import RunEvent, RunRecord, WaitingCall
from agentkit.runs.run_store import RunStore
from agentkit.runs.worker_rows import WorkerRows
from tests.runs.conftest import Opened

T = TypeVar("T")
RUN = RunRecord(run_id="r", tenant="acme", agent="a", state="queued", created_at=1.0, updated_at=2.0)
SLOW_COMMIT = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON agentkit_{0} DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow();
"""
"""A commit after a change of a table takes 0.2 seconds."""


@pytest.mark.parametrize("opened", ["postgres"], indirect=True)
@pytest.mark.parametrize("outcome", ["committed", "in progress", "rolled back"])
def test_an_operation_has_one_effect_and_its_result(
    opened: Opened, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit.runs.run_database._PAUSE", 0.01)
    store = opened()
    with_loss = partial(lossy, store, outcome, monkeypatch)
    with_loss("runs", lambda: store.add(RUN, "line\n"))
    attempt: Any = with_loss("runs", lambda: store.begin_attempt("r"))
    with_loss("runs", lambda: store.add_lines(attempt, [("next\n", ())]))
    assert store.journal_text("r") == "line\nnext\n"
    sent = with_loss("messages", lambda: store.messages.send("r", checked_message("Hi")))
    assert [*store.messages.unread("r")] == [sent]
    event = RunEvent(1, "text", {"text": "a"})
    with_loss("events", lambda: store.events.add("r", [event]))
    assert [*store.events.after("r")] == [event]
    waits = replace(RUN, state="waiting", waiting=(WaitingCall("c", "pay", "{}"),))
    assert with_loss("runs", lambda: store.end_attempt(attempt, waits))
    assert with_loss("runs", lambda: store.decide("r", {"c": Approved()})) == "queued"
    assert with_loss("runs", lambda: store.cancel("r"))
    assert not store.cancel("r")
    workers = WorkerRows(store.database, store.database.engine)
    with_loss("workers", lambda: workers.add("w", [], 1.0, "host", 1))
    assert with_loss("workers", lambda: workers.end("w", "dead", 0))
    for runs in (1, 2):  # the first adds the row of the day
        with_loss("usage", lambda: store.usage.add("acme", "2026-01-01", Usage(10, 5), 1))
        day = store.usage.of("acme")["2026-01-01"]
        assert (day.runs, day.usage) == (runs, Usage(10 * runs, 5 * runs))


def lossy(store: RunStore, outcome: str, monkeypatch: pytest.MonkeyPatch, table: str, work: Callable[[], T]) -> T:
    """Return the result of an operation on a table whose first commit loses the connection."""
    engine = store.database.engine
    original: Any = engine.dialect.do_commit
    if outcome == "in progress":
        with engine.begin() as connection:
            connection.exec_driver_sql(SLOW_COMMIT.format(table))

    def lose(connection: Any) -> None:
        monkeypatch.setattr(engine.dialect, "do_commit", original)
        client: psycopg.Connection = connection.driver_connection
        if outcome == "committed":
            original(connection)
        elif outcome == "in progress":
            client.pgconn.send_query(b"COMMIT")
            client.pgconn.flush()
        client.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(engine.dialect, "do_commit", lose)
    try:
        result = work()
    finally:
        assert engine.dialect.do_commit == original
        if outcome == "in progress":
            with engine.begin() as connection:
                connection.exec_driver_sql("DROP FUNCTION slow CASCADE")
    return result
