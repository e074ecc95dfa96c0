"""Rewinds and notes in both databases, with concurrent writers: no lost message, no inconsistent history."""

from __future__ import annotations

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import HeadMoved, InvalidArgument, Memory, StoreCorrupt, StoredSession
from agentkit.prompts import Message, ToolCall
from agentkit.testing import StoreProbe
from tests.memory.interleaving import before
from tests.raising import raises


def turn(name: str) -> list[Message]:
    return [
        Message("user", f"{name} asks"),
        Message("assistant", tool_calls=(ToolCall(name, "look"),)),
        Message("tool", f"{name} seen", tool_call_id=name),
        Message("assistant", f"{name} answered"),
    ]


def texts(session: StoredSession) -> list[str]:
    return [message.text for message in session.conversation]


def stored(memory: Memory) -> set[tuple[int, int, str]]:
    return {tuple(row) for row in StoreProbe(memory).rows("SELECT branch_id, seq, body FROM messages")}


def test_a_rewind_moves_the_head_keeps_the_messages_and_removes_the_items(either: Memory) -> None:
    session, theirs = either.session("s"), either.session("s")
    session.append(*turn("one"), *turn("two"))
    theirs.refresh()
    assert len(either.recall("asks").recalled) == 2
    before = stored(either)
    session.keep_note("colour", {"name": "red"}, at=4)
    session.keep_note("colour", {"name": "blue"})
    session.rewind(4)
    assert stored(either) == before and session.note("colour") == {"name": "red"}
    assert [message.text for message in either.recall("asks", roles=("user",)).recalled] == ["one asks"]
    try:
        theirs.append(Message("user", "late"))
        raise AssertionError("the old end was extended")
    except HeadMoved as error:
        assert error.rewound
    assert texts(theirs) == texts(session) == texts(either.session("s")) and len(texts(session)) == 4
    session.append(*turn("three"))
    assert {message.text for message in either.recall("asks", roles=("user",)).recalled} == {"one asks", "three asks"}
    assert [call.id for call in session.tool_calls()] == ["one", "three"]
    assert either.delete_session("s") and stored(either) == set()


def test_concurrent_appends_rewinds_and_forks_keep_histories_consistent(either: Memory) -> None:
    either.session("s").append(*turn("first"))

    def work(seed: int) -> None:
        random_ = random.Random(seed)
        session = either.session("s")
        for number in range(12):
            try:
                at = random_.randrange(len(session.conversation) // 4 + 1) * 4
                act = random_.choice(["append", "append", "rewind", "edit", "fork"])
                if act == "append":
                    session.append(*turn(f"{seed}.{number}"), key=f"{seed}.{number}")
                elif act == "rewind":
                    session.rewind(at)
                elif act == "edit" and at < len(session.conversation):
                    session.edit(at + 1, f"{seed}.{number} edited")
                    session.append(*turn("x")[1:])
                else:
                    session.fork(f"{seed}.{number}", at=at)
            except HeadMoved:
                session.refresh()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    everything = stored(either)
    main = either.session("s")
    opened = [either.session("s", branch=each.name) for each in main.branches()]
    for each in opened:
        conversation = each.conversation
        assert len(each.page(limit=10_000)) == len(conversation)
        pending = 0
        for message in conversation:  # An append can occur between an edit and the rest of its turn.
            assert message.role != "tool" or pending
            pending = len(message.tool_calls) if message.role == "assistant" else pending
    assert stored(either) == everything
    kept = {body for _, _, body in everything}
    assert len(kept) > 0 and either.admin.verify().ok
    recalled = {message.text for message in either.recall("asks edited", limit=1000).recalled}
    shown = {text for each in opened for text in texts(each)}
    assert recalled <= shown


@pytest.mark.parametrize(
    "body",
    [
        *("{", "", "[" * 200_000, f'{{"a": {"9" * 5000}}}', '{"$type": "path", "value": 5}'),
        *('{"$type": "none", "value": 1}', "[1]", "5", '"a"', '{"$type": "dict", "value": [[1, 2]]}'),
    ],
    ids=lambda body: body[:20],
)
def test_the_error_names_a_damaged_note_and_other_notes_are_read(memory: Memory, home: Path, body: str) -> None:
    session = memory.session("s")
    session.append(*turn("one"))
    session.keep_note("colour", "red")
    session.keep_kwargs({"root": "/srv"})
    connection = sqlite3.connect(home / "memory.db")
    connection.execute("UPDATE branch_notes SET body = ? WHERE name = 'additional_kwargs'", (body,))
    connection.commit()
    connection.close()
    session.refresh()
    assert session.note("colour") == "red"
    with raises(StoreCorrupt, table="branch_notes", row="additional_kwargs", name="body", path="conversation 's'"):
        _ = session.additional_kwargs
    session.keep_kwargs({"root": "/srv"})
    assert session.additional_kwargs == {"root": "/srv"}


def test_a_session_keeps_its_branch_if_another_writer_rewinds_after_it(memory: Memory) -> None:
    session, other = memory.session("s"), memory.session("s")
    session.append(*turn("one"), *turn("two"))

    def rewind_too() -> None:
        other.refresh()
        other.rewind(0)

    with before(memory, "SELECT branches.id, branches.conversation_id", 1, rewind_too):
        session.rewind(4)
    if len(other.branches()) < 3:
        rewind_too()
    with raises(HeadMoved, rewound=True):
        session.append(Message("user", "late"))
    assert texts(session) == texts(other) == [] and len(other.branches()) == 3


def test_an_append_without_a_view_is_not_lost_in_a_rewound_branch(memory: Memory) -> None:
    other = memory.session("s")
    other.append(*turn("one"), *turn("two"))
    session = memory.session("s", load=False)
    other.rewind(4)
    with before(memory, "SELECT branches.head_seq, branches.edits", 2, lambda: other.rewind(0)):
        session.append(Message("user", "late"))
    assert texts(memory.session("s")) == texts(session) == ["late"]


def test_a_note_of_an_outdated_session_is_the_newest(either: Memory) -> None:
    session, outdated = either.session("s"), either.session("s")
    assert len(outdated.conversation) == 0
    session.append(*turn("one"))
    session.keep_kwargs({"by": "session"})
    outdated.keep_kwargs({"by": "outdated"})
    assert outdated.additional_kwargs == either.session("s").additional_kwargs == {"by": "outdated"}
    session.rewind(0)
    outdated.keep_kwargs({"by": "outdated", "after": "rewind"})
    assert len(either.session("s").additional_kwargs) == 2


@pytest.mark.parametrize("at", ["1", 2.5, True, 10**30, []])
def test_the_number_of_a_note_is_checked(memory: Memory, at: Any) -> None:
    session = memory.session("s")
    session.keep_note("colour", "red")
    with raises(InvalidArgument, name="keep_note: at"):
        session.keep_note("colour", "blue", at)
    assert session.note("colour") == "red"


def test_a_rewind_before_an_earlier_rewind_removes_the_remaining_items(either: Memory) -> None:
    session = either.session("s")
    session.append(*turn("one"), *turn("two"), *turn("three"))
    fork = session.fork("fork", 8)
    assert len(either.recall("asks", roles=("user",)).recalled) == 3
    fork.rewind(4)  # The items of the parent branch do not belong to the fork.
    assert len(either.recall("asks", roles=("user",)).recalled) == 3
    session.rewind(8)
    session.rewind(4)
    assert [message.text for message in either.recall("asks", roles=("user",)).recalled] == ["one asks"]
    session.append(*turn("four"))
    assert {message.text for message in either.recall("asks", roles=("user",)).recalled} == {"one asks", "four asks"}
