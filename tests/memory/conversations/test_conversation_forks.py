"""Forks, pages and tool calls of conversations, and concurrent changes of views."""

from __future__ import annotations

import math
import random
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkit.memory import AlreadyUsed, HeadMoved, InvalidArgument, Memory, NotFound, StoredSession
from agentkit.prompts import Message, MessageError, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.store.records import StoredCall
from tests.effort import tries
from tests.raising import raises


def texts(session: StoredSession) -> list[str]:
    return [message.text for message in session.conversation]


def user(*texts: object) -> list[Message]:
    return [Message("user", str(text)) for text in texts]


def test_a_fork_shows_only_the_messages_of_its_parent_before_the_fork(either: Memory) -> None:
    main = either.session("s")
    main.append(*user(1, 2, 3))
    fork = main.fork("other", at=2)
    assert (fork.id, fork.branch, texts(fork)) == ("s", "other", ["1", "2"])
    main.append(*user(4))
    fork.append(*user("x"))
    assert texts(fork) == ["1", "2", "x"] and texts(main) == ["1", "2", "3", "4"]
    assert texts(either.session("s", branch="other")) == ["1", "2", "x"]
    assert texts(either.session("s")) == ["1", "2", "3", "4"]


def test_a_fork_takes_one_row(memory: Memory) -> None:
    main = memory.session("s")
    main.append(*user(*range(50)))

    def count() -> int:
        return sum(map(len, StoreProbe(memory).dump().values()))

    before = count()
    main.fork("a", at=40)
    assert count() == before + 1


def test_a_fork_of_a_fork_shows_the_messages_before_each_fork(either: Memory) -> None:
    main = either.session("s")
    main.append(*user("a1", "a2", "a3"))
    first = main.fork("first", at=3)
    first.append(*user("b4", "b5"))
    second = first.fork("second", at=4)
    second.append(*user("c5"))
    early = second.fork("early", at=2)
    early.append(*user("d3"))
    empty = early.fork("empty", at=0)
    empty.append(*user("e1"))
    main.append(*user("a4"))
    expected = {
        "main": ["a1", "a2", "a3", "a4"],
        "first": ["a1", "a2", "a3", "b4", "b5"],
        "second": ["a1", "a2", "a3", "b4", "c5"],
        "early": ["a1", "a2", "d3"],
        "empty": ["e1"],
    }
    assert {name: texts(either.session("s", branch=name)) for name in expected} == expected
    assert [(each.name, each.parent, each.fork_seq, each.messages) for each in main.branches()] == [
        ("main", None, 0, 4),
        ("first", "main", 3, 5),
        ("second", "first", 4, 5),
        ("early", "second", 2, 3),
        ("empty", "early", 0, 1),
    ]


@pytest.mark.long
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 3)), max_size=12))
@settings(max_examples=tries(8, 25), deadline=None)
def test_forks_show_the_messages_of_equivalent_copies(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int]]
) -> None:
    with Memory(tmp_path_factory.mktemp("forks")) as memory:
        sessions = [memory.session("s")]
        copies: list[list[str]] = [[]]
        for number, (which, at, more) in enumerate(steps):
            chosen = which % len(sessions)
            at = min(at, len(copies[chosen]))
            sessions.append(sessions[chosen].fork(f"f{number}", at=at))
            copies.append(copies[chosen][:at])
            for each in (chosen, len(sessions) - 1):
                new = [f"{number}.{each}.{index}" for index in range(more)]
                sessions[each].append(*user(*new))
                copies[each] += new
        assert [texts(session) for session in sessions] == copies
        for session, copy in zip(sessions, copies, strict=True):
            assert texts(memory.session("s", branch=session.branch)) == copy
            middle = len(copy) // 2
            assert [each.message.text for each in session.page(after=middle, limit=4)] == copy[middle : middle + 4]
            newest = session.page(before=middle + 1, limit=3)
            assert [each.seq for each in newest] == list(range(max(1, middle - 2), middle + 1))


def test_a_fork_knows_only_the_keys_used_before_the_fork(either: Memory) -> None:
    main = either.session("s")
    main.append(*user(1), key="one")
    fork = main.fork("f")
    main.append(*user(2), key="two")
    assert texts(fork) == ["1"] and len(fork.append(*user(1), key="one")) == 1
    assert texts(either.session("s", branch="f").fork("deeper")) == ["1"]
    with raises(AlreadyUsed, name="one", value=1):
        fork.append(*user("other"), key="one")
    assert not fork.append_now(*user("other"), key="one")
    fork.append(*user("mine"), key="two")
    assert texts(either.session("s", branch="f")) == ["1", "mine"]


def test_an_invalid_number_of_a_message_is_refused(either: Memory) -> None:
    session = either.session("s")
    session.append(*user(1, 2, 3))
    wrong: Any
    for wrong in (1.5, "2", True, math.nan):
        for act in (
            lambda number: session.fork("other", at=number),
            lambda number: session.page(after=number),
            lambda number: session.page(before=number),
            session.redact,
        ):
            with pytest.raises(InvalidArgument):
                act(wrong)
    assert [branch.name for branch in session.branches()] == ["main"]
    assert texts(session) == ["1", "2", "3"]


def test_invalid_forks_and_unknown_branches_are_typed_errors(either: Memory) -> None:
    main = either.session("chat")
    main.append(*user(1))
    main.fork("second-try")
    with raises(AlreadyUsed, name="branch", value="second-try"):
        main.fork("second-try")
    with raises(NotFound, name="at", value=2):
        main.fork("x", at=2)
    with raises(NotFound, name="at", value=-1):
        main.fork("x", at=-1)
    for name in ("", "a\0", "x" * 256):
        with pytest.raises(InvalidArgument):
            main.fork(name)
    with raises(NotFound, name="branch", value="secnd-try"):
        either.session("chat", branch="secnd-try")
    assert len(main.branches()) == 2


def test_pages_are_read_without_reading_the_conversation(either: Memory) -> None:
    either.session("s").append(*user(*range(1, 101)))
    StoreProbe(either).execute("UPDATE messages SET body = '{' WHERE seq = 50")  # a read of it would fail
    session = either.session("s", load=False)
    assert [each.seq for each in session.page(limit=3)] == [98, 99, 100]
    assert [each.seq for each in session.page(before=98, limit=3)] == [95, 96, 97]
    assert [each.seq for each in session.page(after=0, limit=3)] == [1, 2, 3]
    assert [each.seq for each in session.page(after=3, before=6)] == [4, 5]
    assert session.page(after=100) == session.page(before=1) == ()
    assert [each.message.text for each in session.page(after=10, limit=1)] == ["11"]
    for limit in (0, -1, True, 2.5):
        with raises(InvalidArgument, name="limit"):
            session.page(limit=limit)  # type: ignore[arg-type]


def test_an_unread_session_is_read_if_its_messages_are_needed(either: Memory) -> None:
    either.session("s").append(*user(1))
    late = either.session("s", load=False)
    either.session("s").append(*user(2))
    assert not late.append_now(*user(3))  # the read can be slow
    assert texts(late) == ["1", "2"]
    assert len(either.session("s", load=False).append(*user(3))) == 3


def test_messages_with_an_explicit_time_keep_it(home: Path) -> None:
    now = iter([1000.0, 900.0, 800.0, 700.0])  # a clock that was set back
    with Memory(home, clock=lambda: next(now, 600.0)) as memory:
        session = memory.session("s")
        session.append(*user("a"))
        session.append(*user("b"), said_at=5.0)
        session.append(*user("c"))
        page = session.page()
        assert [each.message.text for each in page] == ["a", "b", "c"]
        assert page[1].said_at == 5.0 and 1000.0 >= page[0].said_at == page[0].stored_at > page[2].stored_at >= 600.0
        for wrong in (math.nan, math.inf, "yesterday"):
            with raises(InvalidArgument, name="said_at"):
                session.append(*user("d"), said_at=wrong)  # type: ignore[arg-type]


def call(number: str, name: str = "look", arguments: str = '{"at": 1}') -> Message:
    return Message("assistant", "", tool_calls=(ToolCall(number, name, arguments),))


def result(number: str) -> Message:
    return Message("tool", "seen", tool_call_id=number, name="look")


def test_tool_calls_are_listed_with_the_number_of_their_result(either: Memory) -> None:
    session = either.session("s")
    session.append(*user("look"))
    session.append(call("a"))
    assert session.tool_calls() == (StoredCall(2, 0, "a", "look", '{"at": 1}', None),)
    session.append(result("a"))
    session.append(call("a", "again"), result("a"))  # some models count the ids from the start in each turn
    two = Message("assistant", "", tool_calls=(ToolCall("b", "x"), ToolCall("c", "y", "{\0")))
    session.append(two)
    session.append(result("c"))
    calls = [(each.seq, each.position, each.id, each.name, each.result_seq) for each in session.tool_calls()]
    assert calls == [(2, 0, "a", "look", 3), (4, 0, "a", "again", 5), (6, 0, "b", "x", None), (6, 1, "c", "y", 7)]
    assert [each.seq for each in session.tool_calls(after=4)] == [6, 6]
    assert session.conversation[5] == two  # the message is unchanged


def test_calls_with_ids_too_long_for_an_index_find_their_results(either: Memory) -> None:
    begin = "".join(random.Random(1).choices(string.ascii_letters, k=9000))  # compressible text would be shorter
    asked = Message("assistant", "", tool_calls=(ToolCall(f"{begin}1", "look"), ToolCall(f"{begin}2", "listen")))
    session = either.session("s")
    session.append(*user("hello"), asked)
    session.append(result(f"{begin}2"), result(f"{begin}1"))
    calls = session.tool_calls()
    assert [(each.name, each.result_seq) for each in calls] == [("look", 4), ("listen", 3)]
    assert calls[0].id != calls[1].id
    assert all(each.id.startswith(begin[:64]) and len(each.id) < 200 for each in calls)
    assert either.session("s").conversation[1] == asked


def test_a_result_without_a_call_is_not_listed(either: Memory) -> None:
    session = either.session("s")
    session.append(result("nobody"))
    assert session.tool_calls() == ()


def test_a_fork_between_a_call_and_its_result_has_its_own_result(either: Memory) -> None:
    main = either.session("s")
    main.append(*user("look"), call("a"))
    fork = main.fork("f")
    deeper = fork.fork("g")
    main.append(*user("wait"), result("a"))
    fork.append(result("a"))
    assert [each.result_seq for each in main.tool_calls()] == [4]
    assert [each.result_seq for each in fork.tool_calls()] == [3]
    assert [each.result_seq for each in deeper.tool_calls()] == [None]
    fork.append(call("a"), result("a"))
    fork.append(result("a"))  # a second answer to an answered call
    assert [(each.seq, each.result_seq) for each in fork.tool_calls()] == [(2, 3), (4, 5)]


def test_a_fork_does_not_separate_calls_from_their_stored_results(either: Memory) -> None:
    two = Message("assistant", "", tool_calls=(ToolCall("a", "x"), ToolCall("b", "y")))
    stale = either.session("s")
    other = either.session("s")
    stale.append(*user("look"))
    other.refresh()
    other.append(two, result("a"), result("b"), Message("assistant", "ok"))
    branch = other.fork("branch")
    sessions = (stale, other, branch, either.session("s", load=False), either.session("s", branch="branch"))
    for number, session in enumerate(sessions):
        for at in range(6):
            if at in (2, 3):
                with pytest.raises(MessageError) as caught:
                    session.fork(f"{number}{at}", at=at)
                assert caught.value.value == at
            else:
                assert len(session.fork(f"{number}{at}", at=at).conversation) == at


def test_only_appends_with_tool_messages_write_tool_calls(memory: Memory) -> None:
    session = memory.session("s")
    session.append(*user(1), Message("assistant", "2"))
    assert StoreProbe(memory).rows("SELECT * FROM tool_calls") == []


def test_a_failed_append_leaves_no_tool_calls(either: Memory) -> None:
    mine, theirs = either.session("s"), either.session("s")
    theirs.append(*user(1))
    with pytest.raises(HeadMoved):
        mine.append(call("a"))
    assert mine.tool_calls() == ()
