"""Conversations in SQL: no lost, repeated or interleaved messages."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from agentkit.memory import AlreadyUsed, HeadMoved, InvalidArgument, Memory, StoreClosed, StoreCorrupt, StoreError
from agentkit.prompts import Image, Message, Text, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.errors import StoreVersion
from tests.effort import tries
from tests.raising import raises

HELLO = Message("user", "hello")
HI = Message("assistant", "hi")
TURN = (
    Message("user", (Text("What is this?"), Image(Path("cat.png")), Image("https://example.org/cat.png"))),
    Message("assistant", "", tool_calls=(ToolCall("1", "look", '{"at": "é\\u0000"}'),)),
    Message("tool", "a cat \0 \N{CAT FACE}", tool_call_id="1", name="look"),
    Message("assistant", "A cat."),
)


def test_a_conversation_is_read_as_it_was_written(either: Memory) -> None:
    session = either.session("s")
    session.append(*TURN[:1])
    assert session.append(*TURN[1:]) == session.conversation
    again = either.session("s")
    assert again.id == "s"
    assert list(again.conversation) == list(TURN)


def test_conversations_of_the_same_name_in_two_scopes_are_separate(either: Memory) -> None:
    either.session("s").append(HELLO)
    assert len(either.within("other").session("s").conversation) == 0


def test_earlier_views_do_not_change(memory: Memory) -> None:
    session = memory.session("s")
    before = session.append(HELLO)
    session.append(HI)
    assert list(before) == [HELLO]


def test_an_append_to_an_outdated_view_writes_nothing_and_refreshes_the_view(either: Memory) -> None:
    mine, theirs = either.session("s"), either.session("s")
    theirs.append(HELLO, HI)
    with raises(HeadMoved, name="s") as caught:
        mine.append(Message("user", "mine"))
    assert (caught.value.expected, caught.value.actual) == (0, 2)
    assert list(mine.conversation) == [HELLO, HI]
    assert [message.text for message in mine.append(Message("user", "mine"))] == ["hello", "hi", "mine"]


def test_refresh_reads_the_messages_of_other_writers(either: Memory) -> None:
    mine, theirs = either.session("s"), either.session("s")
    assert len(mine.refresh()) == 0
    theirs.append(HELLO)
    assert list(mine.refresh()) == [HELLO]


def test_a_repeated_append_with_the_same_key_is_stored_once(either: Memory) -> None:
    mine, theirs = either.session("s"), either.session("s")
    mine.append(HELLO, HI, key="run:1")
    assert list(mine.append(HELLO, HI, key="run:1")) == [HELLO, HI]
    assert list(theirs.append(HELLO, HI, key="run:1")) == [HELLO, HI]  # its view was outdated
    mine.append(HELLO, key="run:2")
    assert len(mine.append(HELLO, HI, key="run:1")) == 3
    assert len(either.session("s").conversation) == 3


def test_a_key_of_other_messages_is_refused(either: Memory) -> None:
    session = either.session("s")
    session.append(HELLO, key="k")
    with raises(AlreadyUsed, name="k", value=1):
        session.append(HI, key="k")
    assert list(either.session("s").conversation) == [HELLO]


def test_an_append_without_messages_has_no_effect(memory: Memory) -> None:
    session = memory.session("s")
    assert len(session.append()) == 0


def test_an_append_with_text_that_is_not_unicode_is_refused_completely(memory: Memory) -> None:
    session = memory.session("s")
    with raises(InvalidArgument, name="s"):
        session.append(HELLO, Message("user", "\ud800"))
    assert len(memory.session("s").conversation) == len(session.conversation) == 0


def test_a_message_of_a_newer_format_is_an_error_that_requests_an_upgrade(memory: Memory) -> None:
    memory.session("s").append(HELLO)
    StoreProbe(memory).execute("UPDATE messages SET format = 99")
    with raises(StoreVersion, name="format", path="conversation 's', message 1", value=99):
        memory.session("s")


def test_the_error_names_a_damaged_message(memory: Memory) -> None:
    memory.session("s").append(HELLO, HI)
    StoreProbe(memory).execute("UPDATE messages SET body = '{' WHERE seq = 2")
    with raises(StoreCorrupt, table="messages", row="2", name="body", path="conversation 's'"):
        memory.session("s")


def test_a_deleted_conversation_is_a_typed_error(memory: Memory) -> None:
    session = memory.session("s")
    StoreProbe(memory).execute("DELETE FROM conversations")
    for act in (session.refresh, lambda: session.append(HELLO)):
        with raises(StoreError, name="s", value="deleted"):
            act()


def test_a_closed_memory_is_a_typed_error(home: Path) -> None:
    memory = Memory(home)
    session = memory.session("s")
    memory.close()
    memory.close()
    for act in (lambda: session.append(HELLO), session.refresh, lambda: memory.recall("x")):
        with raises(StoreClosed, name="memory"):
            act()


def keep_appending(target: str, index: str | None, writer: str, times: int) -> None:
    """Append `times` messages, and retry after each concurrent append."""
    with Memory(target, index=index, timeout=30) as memory:
        session = memory.session("shared")
        for number in range(times):
            while True:
                try:
                    session.append(Message("user", f"{writer} {number}"), key=f"{writer}:{number}")
                    break
                except HeadMoved:
                    continue


def check_shared(memory: Memory, writers: int, times: int) -> None:
    said = [message.text for message in memory.session("shared").conversation]
    assert sorted(said) == sorted(f"{writer} {number}" for writer in range(writers) for number in range(times))
    for writer in range(writers):
        mine = [text for text in said if text.startswith(f"{writer} ")]
        assert mine == [f"{writer} {number}" for number in range(times)]


@pytest.mark.long
def test_processes_that_write_one_conversation_lose_no_message(home: Path) -> None:
    context = multiprocessing.get_context("spawn")
    times = tries(12, 20)
    workers = [context.Process(target=keep_appending, args=(str(home), None, str(name), times)) for name in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    with Memory(home) as memory:
        check_shared(memory, 2, times)


def test_threads_that_write_one_conversation_lose_no_message(either: Memory) -> None:
    def work(writer: str) -> None:
        session = either.session("shared")
        for number in range(25):
            while True:
                try:
                    session.append(Message("user", f"{writer} {number}"), key=f"{writer}:{number}")
                    break
                except HeadMoved:
                    continue

    threads = [threading.Thread(target=work, args=(str(name),)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_shared(either, 4, 25)


def test_a_short_append_without_contention_is_immediate(memory: Memory) -> None:
    session = memory.session("s")
    session.append(HELLO)
    view = session.conversation
    assert session.append_now(HI, key="k") and list(session.conversation) == [HELLO, HI]
    assert session.append_now() and len(view) == 1
    assert list(memory.session("s").conversation) == [HELLO, HI]


def test_append_now_returns_false_instead_of_a_wait_for_another_process(memory: Memory, home: Path) -> None:
    session = memory.session("s")
    session.append(HELLO)
    file = next(home.rglob("*.db"))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not session.append_now(HI)  # a call that waits raises StoreUnavailable
        other.execute("ROLLBACK")
    assert list(session.conversation) == [HELLO] and session.append_now(HI)


def test_append_now_returns_false_instead_of_a_wait_for_another_thread(memory: Memory) -> None:
    session = memory.session("s")
    session.append(HELLO)
    with StoreProbe(memory).transaction(), ThreadPoolExecutor(1) as pool:
        assert not pool.submit(session.append_now, HI).result()
    assert session.append_now(HI) and len(session.conversation) == 2


def test_append_now_returns_false_for_a_conflict_and_refuses_an_invalid_key(memory: Memory) -> None:
    session, other = memory.session("s"), memory.session("s")
    other.append(HELLO, key="k")
    assert not session.append_now(HI) and not session.append_now(HELLO, key="k")
    assert session.append(HELLO, key="k") == other.conversation
    with pytest.raises(InvalidArgument):
        session.append_now(HI, key="k\0")


@pytest.mark.parametrize("big", [Message("user", "a" * 100_000), TURN[0]])
def test_append_now_returns_false_for_long_messages_and_media(memory: Memory, big: Message) -> None:
    session = memory.session("s")
    session.append(HELLO)
    assert not session.append_now(big) and list(session.conversation) == [HELLO]


def test_append_now_returns_false_on_a_server(fresh_postgres: str, tmp_path: Path) -> None:
    with Memory(fresh_postgres, index=tmp_path / "index") as memory:
        session = memory.session("s")
        session.append(HELLO)
        assert not session.append_now(HI) and list(session.conversation) == [HELLO]


def test_immediate_appends_keep_the_log_below_a_limit(memory: Memory, home: Path) -> None:
    StoreProbe(memory).pause()  # without other writers
    session = memory.session("s")
    waited = 0
    for number in range(3000):
        if not session.append_now(Message("user", str(number))):
            session.append(Message("user", str(number)))
            waited += 1
    assert 5 < waited < 30
    assert next(home.rglob("*.db-wal")).stat().st_size < 20_000_000
    assert [message.text for message in memory.session("s").conversation] == [str(number) for number in range(3000)]
