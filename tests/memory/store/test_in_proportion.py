"""Work in proportion to its subject: erasing, appending or deleting a message does not read the other messages."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, event

from agentkit.memory import AlreadyUsed, HeadMoved, Memory, NotFound, Scope
from agentkit.prompts import Message, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.database.residue import may_hold, parts_of
from agentkit_memory.index import indexes
from tests.effort import thinned
from tests.forks import Forks
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises


def user_messages(*texts: object) -> list[Message]:
    return [Message("user", str(text)) for text in texts]


def test_an_append_to_an_unread_conversation_reads_no_message(either: Memory) -> None:
    either.session("s").append(*user_messages(1, 2, 3))
    session = either.session("s", load=False)
    with StoreProbe(either).statements() as made:
        longer = session.append(*user_messages(4), key="k")
        again = session.append(*user_messages(5))
        assert len(longer) == 4 and len(again) == 5
        assert not [each for each in made if "messages.body" in each and each.startswith("SELECT")]
        assert [message.text for message in longer] == ["1", "2", "3", "4"]
        assert [each for each in made if "messages.body" in each and each.startswith("SELECT")]
    assert [message.text for message in again] == ["1", "2", "3", "4", "5"]
    assert [message.text for message in longer.append(*user_messages("x"))] == ["1", "2", "3", "4", "x"]
    assert longer == again[:4] and session.conversation == again
    with pytest.raises(AlreadyUsed):
        either.session("s", load=False).append(*user_messages("other"), key="k")
    assert len(either.session("s", load=False).append(*user_messages(4), key="k")) == 5


def test_an_append_without_reading_links_results_and_follows_redactions_rewinds_and_deletions(either: Memory) -> None:
    main = either.session("s")
    main.append(*user_messages("a", "b"), Message("assistant", "", tool_calls=(ToolCall("c", "look", "{}"),)))
    late = either.session("s", load=False)
    late.append({"role": "tool", "tool_call_id": "c", "content": "found"})
    assert [call.result_seq for call in late.tool_calls()] == [4]
    main.refresh()
    main.redact(1)
    assert [message.text for message in late.append(*user_messages("d"))] == ["[redacted]", "b", "", "found", "d"]
    main.refresh()
    main.rewind(2)
    assert [message.text for message in late.append(*user_messages("e"))] == ["[redacted]", "b", "e"]
    with pytest.raises(HeadMoved):
        main.append(*user_messages("f"))
    unread = late.append(*user_messages("g"))
    assert either.delete_session("s")
    for act in (lambda: late.append(*user_messages("h")), lambda: list(unread)):
        with raises(NotFound, name="s", value="deleted"):
            act()


def test_concurrent_writers_without_reads_lose_no_message(home: Path) -> None:
    with Memory(home) as memory:

        def write(name: int) -> None:
            session = memory.session("s", load=False)
            for number in range(20):
                session.append(*user_messages(f"{name} {number}"), key=f"{name} {number}")

        threads = [threading.Thread(target=write, args=[name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        texts = [message.text for message in memory.session("s").conversation]
        for name in range(4):
            assert [text for text in texts if text.startswith(f"{name} ")] == [f"{name} {each}" for each in range(20)]


def test_deleting_a_long_conversation_does_not_block_writers(either: Memory) -> None:
    session, fork = either.session("long"), None
    for start in range(0, 2400, 400):
        session.append(*user_messages(*(f"turn {number}" for number in range(start, start + 400))))
    fork = session.fork("other", at=1200)
    fork.append(*user_messages("forked"))
    either.worker().drain()
    longest = current = 0

    def count(connection: object, cursor: object, statement: str, parameters: object, *_: object) -> None:
        nonlocal current, longest
        if statement.startswith("DELETE FROM items"):
            current += len(parameters) if isinstance(parameters, Sequence) else 1
            longest = max(longest, current)

    def end(connection: object) -> None:
        nonlocal current
        current = 0

    engine = StoreProbe(either).engine
    event.listen(engine, "before_cursor_execute", count)
    event.listen(engine, "commit", end)
    try:
        assert either.delete_session("long")
    finally:
        event.remove(engine, "before_cursor_execute", count)
        event.remove(engine, "commit", end)
    assert 0 < longest <= 600
    kept = StoreProbe(either).dump()
    assert not any(kept[table] for table in ("conversations", "branches", "messages", "items"))
    for gone in (session, fork):
        with raises(NotFound, name="long", value="deleted"):
            gone.append(*user_messages("late"))
    assert len(either.session("long").append(*user_messages("anew"))) == 1
    either.worker().drain()
    assert either.admin.verify().ok and either.admin.verify().points == 1


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="processes are killed by signals")
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_killed_deletion_is_continued_at_the_next_opening(home: Path, step: int, programs: Forks) -> None:
    with Memory(home) as memory:
        memory.session("long").append(*user_messages(*(f"turn {number}" for number in range(900))))
        memory.worker().drain()
    code = "import sys; from agentkit_memory import Memory; Memory(sys.argv[1]).delete_session('long')"
    killed = programs.start("-c", code, home, AGENTKIT_FAILPOINT=f"conversation.step:{step}")
    assert killed.wait() == -signal.SIGKILL
    with Memory(home) as memory:
        kept = StoreProbe(memory).dump()
        assert not any(kept[table] for table in ("conversations", "messages", "items"))
        assert len(memory.session("long").conversation) == 0
        memory.worker().drain()
        assert memory.admin.verify().ok and memory.admin.verify().points == 0


class Caller(Words):
    """Embedder that records the threads of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_by: set[tuple[str, str]] = set()

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self.asked_by |= {(threading.current_thread().name, text) for text in texts}
        return super().embed(texts)


def test_a_call_does_not_embed_the_backlog_of_other_scopes(home: Path, docs: Path) -> None:
    (docs / "a.md").write_text("zebra")
    embedder = Caller()
    with Memory(home, embedder=embedder) as memory:
        memory.worker().drain()
        StoreProbe(memory).pause()  # the backlog stays in the queue
        other = memory.within("other")
        for number in range(5):
            other.facts.add(f"backlog {number}")
        memory.session("s").append(*user_messages("hello"))
        embedder.calls.clear()
        memory.delete_session("s")
        memory.admin.expire()
        memory.within(Scope("local", user="ada")).facts.add("heron")
        proof = memory.erase(Scope("local", user="ada"))
        assert (proof.complete, embedder.asked) == (True, [])
        assert memory.ingest(docs).pending == 5
        assert embedder.asked == ["zebra"]
        assert memory.recall("zebra", policy="dense")[0].text == "zebra"


def test_a_batch_of_a_long_backlog_takes_no_more_steps_than_a_batch_of_a_short_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "WORTH_INDEXING", 20)
    steps: list[int] = []
    for waiting in (100, 1000):
        with Memory(home / str(waiting)) as memory:
            memory.session("s").append(*user_messages(*range(waiting)))
            worker = memory.worker()
            while worker.step("turns"):
                pass
            worker.step("index")
            ticks: list[int] = []

            def tick(ticks: list[int] = ticks) -> None:
                ticks.append(1)

            def count(connection: Connection, *_: object, tick: Callable[[], None] = tick) -> None:
                driver = connection.connection.driver_connection
                assert isinstance(driver, sqlite3.Connection)
                driver.set_progress_handler(tick, 10)

            event.listen(StoreProbe(memory).engine, "before_cursor_execute", count)
            assert worker.step("index")
            steps.append(len(ticks))
    assert steps[1] < 1.5 * steps[0]


def interleave(home: Path, seed: int) -> list[Scope]:
    """Make a store with pages that were split and merged often."""
    draw = random.Random(seed)
    owners = [Scope("local", user=f"user {number}") for number in range(30)]
    with Memory(home) as memory:
        sessions = [memory.within(owner).session("s", load=False) for owner in owners]
        for number in range(700):
            at = draw.randrange(len(owners))
            sessions[at].append(*user_messages(f"secret-{at:03d} of this owner " + "x" * draw.randrange(10, 500)))
            if number % 50 == 0:
                memory.worker().drain()
    return owners


@pytest.mark.long
@pytest.mark.parametrize("seed", thinned([1, 2, 3], 3))
def test_an_erasure_leaves_no_copy_and_rewrites_the_file_only_if_necessary(
    home: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = interleave(home, seed)
    rewritten = []
    with Memory(home) as memory:
        compact = Database.compact
        monkeypatch.setattr(Database, "compact", lambda self: rewritten.append(1) or compact(self))
        erased = owners[::4]
        for owner in erased:
            proof = memory.erase(owner)
            assert (proof.complete, proof.compacted, proof.note) == (True, True, "")
            data = b"".join(each.read_bytes() for each in home.glob("memory.db*"))
            assert f"secret-{owners.index(owner):03d}".encode() not in data
        assert len(rewritten) < len(erased)
        assert memory.within(owners[1]).session("s").conversation[0].text.startswith("secret-001")


def test_copies_in_the_gaps_of_a_page_are_found(tmp_path: Path) -> None:
    path, found, draw = tmp_path / "x.db", set(), random.Random(3)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA synchronous=OFF")
        file.execute("PRAGMA secure_delete=ON")
        file.execute("CREATE TABLE t (a INTEGER, b INTEGER, c TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID")
        for number in range(3000):
            owner = draw.randrange(60)
            text = f"secret {owner:02d} " + "x" * draw.randrange(10, 600)
            file.execute("INSERT INTO t VALUES (?, ?, ?)", (owner, number, text))
        for owner in range(60):
            file.execute("DELETE FROM t WHERE a = ?", (owner,))
            mark = f"secret {owner:02d}".encode()
            there = mark in path.read_bytes()
            if there or owner % 12 == 0:
                assert may_hold(path, {mark}) is there
                found.add(there)
    assert found == {True, False}  # SQLite leaves copies in free space
    assert not may_hold(path, set()) and may_hold(tmp_path / "nothing", {b"secret 01"})
    text = "a text that is longer than that"
    assert parts_of(["short", text]) == {text[:24].encode(), text[-24:].encode()}
