"""A connection that is lost after a commit: the retried transaction detects that it was stored already."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from agentkit import Approved, Denied
from agentkit.errors import ApprovalError
from agentkit.run.parts.run_inbox import checked_message
from agentkit.runs.run_errors import AttemptEnded
from agentkit.runs.run_record import RunEvent, RunRecord, WaitingCall
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt
from agentkit.runs.worker_rows import WorkerRows

T = TypeVar("T")
RUN = RunRecord(run_id="r", tenant="acme", agent="a", state="queued", created_at=1.0, updated_at=2.0)


class LossyConnection(sqlite3.Connection):
    """A connection that is lost at its next commit, if `loses` is True: after the commit, or before it."""

    loses = False
    before = False

    def commit(self) -> None:
        if LossyConnection.loses and LossyConnection.before:
            self.rollback()
        super().commit()
        if LossyConnection.loses:
            LossyConnection.loses = LossyConnection.before = False
            raise sqlite3.OperationalError("server closed the connection unexpectedly")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    options: dict[str, Any] = {"factory": LossyConnection, "check_same_thread": False}
    return RunStore(sa.create_engine(f"sqlite:///{tmp_path / 'runs.db'}", connect_args=options))


def with_loss(work: Callable[[], T]) -> T:
    """Return the result of an operation whose first commit loses the connection."""
    LossyConnection.loses = True
    result = work()
    assert not LossyConnection.loses
    return result


def test_a_run_is_added_once(store: RunStore) -> None:
    for run in (RUN, replace(RUN, run_id="with key", key="k")):
        assert with_loss(partial(store.add, run, "line\n")) is run
        assert store.journal_text(run.run_id) == "line\n"
    with pytest.raises(IntegrityError):
        store.add(replace(RUN, created_at=3.0))


def test_an_attempt_starts_once_and_may_write(store: RunStore) -> None:
    store.add(RUN)
    store.add(replace(RUN, run_id="w", state="waiting", waiting=(WaitingCall("c", "pay", "{}"),)))
    begun = with_loss(lambda: store.begin_attempt("r"))
    claimed = with_loss(lambda: store.claim("w", {"c": Approved()}))
    for attempt in (begun, claimed):
        assert attempt is not None and store.get(attempt.run_id).state == "running"
        assert store.attempts([attempt.run_id])[attempt.run_id].fence == attempt.fence
        with_loss(partial(store.add_lines, attempt, [("line\n", ())]))
        assert store.journal_text(attempt.run_id) == "line\n"
    assert store.claim("w", {"c": Approved()}) is None


def test_a_message_is_sent_once(store: RunStore) -> None:
    store.add(RUN)
    for key in (None, "k"):
        sent = with_loss(partial(store.messages.send, "r", checked_message("Hi"), key))
        assert store.messages.unread("r")[-1] == sent
    assert len(store.messages.unread("r")) == 2 == store.get("r").unread


def test_an_attempt_ends_once(store: RunStore) -> None:
    waiting = (WaitingCall("c", "pay", "{}"),)
    for number, record in enumerate((replace(RUN, state="finished"), replace(RUN, state="waiting", waiting=waiting))):
        attempt = begun_attempt(store, f"r{number}")
        ended = replace(record, run_id=attempt.run_id)
        event = RunEvent(1, "run_finished", {})
        assert with_loss(partial(store.end_attempt, attempt, ended, events=[event]))
        assert store.get(attempt.run_id).state == record.state and store.events.after(attempt.run_id) == [event]
        assert [call.call_id for call in store.calls(attempt.run_id)] == [call.call_id for call in record.waiting]
        with pytest.raises(AttemptEnded):
            store.end_attempt(attempt, ended)
        with pytest.raises(AttemptEnded):
            store.add_lines(attempt, [("line\n", ())])


def test_a_run_is_cancelled_once(store: RunStore) -> None:
    attempt = begun_attempt(store, "running")
    store.add(replace(RUN, run_id="w", state="waiting", waiting=(WaitingCall("c", "pay", "{}"),)))
    for run_id in ("running", "w"):
        assert with_loss(partial(store.cancel, run_id, "too late"))
        assert (store.get(run_id).state, store.get(run_id).reason) == ("cancelled", "too late")
        assert not store.cancel(run_id, "too late")
    with pytest.raises(AttemptEnded) as ended:
        store.end_attempt(attempt, RUN)
    assert ended.value.is_cancelled


def test_decisions_are_stored_once(store: RunStore) -> None:
    calls = (WaitingCall("c", "pay", "{}"), WaitingCall("d", "pay", "{}"))
    decided: list[tuple[dict[Any, Any], str]] = [
        ({"c": Approved(), "d": Denied("no")}, "queued"),
        ({None: Approved()}, "queued"),
        ({"c": Denied(), None: Approved()}, "queued"),
        ({"d": Approved()}, "waiting"),
    ]
    for number, (decisions, state) in enumerate(decided):
        run_id = f"w{number}"
        store.add(replace(RUN, run_id=run_id, state="waiting", waiting=calls))
        assert with_loss(partial(store.decide, run_id, decisions, "ann")) == state
        assert store.get(run_id).state == state
        assert {call.decided_by for call in store.calls(run_id) if call.decision is not None} == {"ann"}
        with pytest.raises(ApprovalError):
            store.decide(run_id, {"d": Approved()}, "ann")


def test_a_decision_of_an_earlier_pause_is_not_mistaken_for_a_lost_decision(store: RunStore) -> None:
    store.add(replace(RUN, state="waiting", waiting=(WaitingCall("c", "pay", "{}"),)))
    approved: dict[str | None, Approved | Denied] = {None: Approved()}
    attempt = store.claim("r", approved)
    assert attempt is not None
    store.end_attempt(attempt, replace(RUN, state="waiting", waiting=(WaitingCall("d", "pay", "{}"),)))
    LossyConnection.before = True
    assert with_loss(partial(store.decide, "r", approved)) == "queued"
    assert [call.decision for call in store.calls("r")] == [Approved(), Approved()]


def test_events_and_workers_are_stored_once(store: RunStore) -> None:
    events = [RunEvent(1, "text", {"text": "a"}), RunEvent(2, "text", {"text": "b"})]
    with_loss(partial(store.events.add, "r", events))
    assert store.events.after("r") == events
    workers = WorkerRows(store.database, store.database.engine)
    for id, state in (("v", "stopped"), ("w", "dead")):
        with_loss(partial(workers.add, id, [], 1.0, "host", 1))
        assert with_loss(partial(workers.end, id, state, 0))
        assert not workers.end(id, state)
    assert [(worker.id, worker.state) for worker in workers.all()] == [("v", "stopped"), ("w", "dead")]
    for stored in (partial(store.events.add, "r", events), partial(workers.add, "w", [], 1.0, "host", 1)):
        with pytest.raises(IntegrityError):
            stored()


def begun_attempt(store: RunStore, run_id: str) -> Attempt:
    store.add(replace(RUN, run_id=run_id))
    attempt = store.begin_attempt(run_id)
    assert attempt is not None
    return attempt
