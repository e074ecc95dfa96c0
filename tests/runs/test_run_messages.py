"""Messages to stored runs: each is in the journal once, for any number of attempts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from agentkit.durable import DurableError
from agentkit.errors import RunEnded
from agentkit.run.journal.journal_lines import entry_line
from agentkit.run.journal.journal_steps import Entry
from agentkit.run.parts.run_inbox import checked_message
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore


def test_a_message_is_received_once_by_the_attempts_of_a_run(store: RunStore) -> None:
    """A process that is killed after it read a message, and before or after its line was stored."""
    store.add(RunRecord(run_id="r", agent="a", state="queued", created_at=0, updated_at=0), "{}\n")
    store.messages.send("r", checked_message("b?"))
    first = store.begin_attempt("r")
    assert first is not None
    (read,) = store.messages.unread("r")
    store.requeue_interrupted()
    second = store.begin_attempt("r")
    assert second is not None
    assert (first.unread, second.unread, store.messages.unread("r")) == (1, 1, [read])
    line = entry_line(Entry("Receive", (read,)))
    with pytest.raises(DurableError):
        store.add_lines(first, [(line, ())])
    store.add_lines(second, [(line, ())])
    assert (second.unread, store.messages.unread("r")) == (0, [])
    store.requeue_interrupted()
    third = store.begin_attempt("r")
    assert third is not None
    assert third.unread == 0
    record = store.get("r")
    store.messages.send("r", checked_message("c?"))
    finished = replace(record, state="finished")
    assert not store.end_attempt(third, finished)
    assert store.end_attempt(third, replace(record, state="failed"))
    assert len(store.messages.unread("r")) == 1


def test_a_run_that_waits_for_weeks_has_a_bounded_number_of_messages(store: RunStore) -> None:
    store.add(RunRecord(run_id="r", agent="a", state="waiting", created_at=0, updated_at=0), "{}\n")
    with pytest.raises(DurableError) as full:
        for number in range(1_000):
            store.messages.send("r", checked_message(str(number)))
    assert full.value.value == len(store.messages.unread("r"))
    store.delete("r")
    assert store.messages.unread("r") == []


def test_messages_of_simultaneous_senders_are_all_received_or_refused(store: RunStore) -> None:
    store.add(RunRecord(run_id="r", agent="a", state="queued", created_at=0, updated_at=0), "{}\n")
    attempt = store.begin_attempt("r")
    assert attempt is not None
    finished = replace(store.get("r"), state="finished")

    def send(number: int) -> bool:
        try:
            # Each message is sent twice with its key, such as after a lost answer.
            store.messages.send("r", checked_message(str(number)), key=str(number))
            store.messages.send("r", checked_message(str(number)), key=str(number))
        except RunEnded:
            return False
        return True

    received: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, number) for number in range(12)]
        while not store.end_attempt(attempt, finished):
            unread = tuple(store.messages.unread("r"))
            received += [sent.message.text for sent in unread]
            store.add_lines(attempt, [(entry_line(Entry("Receive", unread)), ())])
    heard = [str(number) for number, sent in enumerate(sending) if sent.result()]
    assert sorted(received) == sorted(heard)
    assert store.messages.unread("r") == []
