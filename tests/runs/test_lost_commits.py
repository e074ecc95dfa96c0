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

from agentkit import Approved
from agentkit.run.parts.run_inbox import checked_message
from agentkit.runs.run_record import RunRecord, WaitingCall
from agentkit.runs.run_store import RunStore

T = TypeVar("T")
RUN = RunRecord(run_id="r", tenant="acme", agent="a", state="queued", created_at=1.0, updated_at=2.0)


class LossyConnection(sqlite3.Connection):
    """A connection that is lost after its next commit, if `loses` is True."""

    loses = False

    def commit(self) -> None:
        super().commit()
        if LossyConnection.loses:
            LossyConnection.loses = False
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
        with_loss(partial(store.add_lines, attempt, [("line\n", ())]))
        assert store.journal_text(attempt.run_id) == "line\n"
    assert store.claim("w", {"c": Approved()}) is None


def test_a_message_is_sent_once(store: RunStore) -> None:
    store.add(RUN)
    for key in (None, "k"):
        sent = with_loss(partial(store.messages.send, "r", checked_message("Hi"), key))
        assert store.messages.unread("r")[-1] == sent
    assert len(store.messages.unread("r")) == 2 == store.get("r").unread
