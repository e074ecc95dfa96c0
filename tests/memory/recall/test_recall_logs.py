"""Recall logs: questions and results, in order, with a limit, in separate scopes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentkit.memory import InvalidArgument, Memory, Scope
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_memory.store.records import Candidate, RecallLog
from tests.raising import raises

FULL = RecallLog(
    "how hot?",
    {"name": "default", "weights": [1, 0.5]},
    (
        Candidate("1", "chunk", 0.9, True, "best", "documents", {"sparse": 1.5, "dense": 0.25}),
        Candidate("2", "turn", 0.1, False, "same text as 1"),
    ),
    1234,
    "breakfast",
    ("the index is busy",),
)


def ask(memory: Memory, *questions: str) -> None:
    for question in questions:
        memory.recall(question)


def queries(memory: Memory, **page: int) -> list[str]:
    return [each.query for each in memory.recall_logs(**page)]


def test_a_log_is_read_as_it_was_written(either: Memory, database: Database) -> None:
    logs = RecallLogs(database)
    user = either.within(Scope("local", user="local"))
    logs.write(user.scope, StoreProbe(user).scope_number, lambda: FULL)
    database.deferred.settle()
    (written,) = either.recall_logs()
    assert replace(written, id=0, at=0.0) == FULL and written.id > 0
    with raises(InvalidArgument, name="scope_ids"):
        logs.page(None)


def test_logs_are_read_by_pages_in_the_order_of_writing_with_any_clock(either: Memory) -> None:
    times = iter(range(1000, 0, -1))
    StoreProbe(either).set_clock(lambda: float(next(times)))
    ask(either, *"abcdefg")
    assert queries(either, limit=3) == ["e", "f", "g"]
    first = either.recall_logs(after=0, limit=2)
    assert [each.query for each in first] == ["a", "b"]
    assert 1 <= first[1].at < first[0].at <= 1000
    assert queries(either, after=first[-1].id, limit=2) == ["c", "d"]
    assert queries(either, before=first[-1].id) == ["a"]
    with raises(InvalidArgument, name="limit"):
        either.recall_logs(limit=0)


def test_logs_belong_to_exactly_one_scope(either: Memory) -> None:
    ada = either.within(Scope("local", user="ada"))
    ask(either, "shared")
    ask(ada, "mine")
    assert (queries(either), queries(ada), queries(either.within("other"))) == (["shared"], ["mine"], [])


def test_hostile_questions_can_be_logged(either: Memory) -> None:
    ask(either, "a\0b", "\ud800", "'; DROP TABLE items; --", "x" * 100_000, "")
    assert queries(either) == ["a\ufffdb", "\ufffd", "'; DROP TABLE items; --", "x" * 100_000, ""]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_limit_of_logs_applies_to_all_scopes_together(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    target = tmp_path / "store" if kind == "sqlite" else request.getfixturevalue("fresh_postgres")
    with Memory(target, index=tmp_path / "index", keep_recalls=5) as memory:
        other = memory.within("other")
        for number in range(130):
            ask(memory if number % 2 else other, str(number))
        both = (*queries(memory, after=0, limit=500), *queries(other, after=0, limit=500))
        assert 5 <= len(both) <= 5 + 64 and {"125", "126", "127", "128", "129"} <= set(both)
    with Memory(target, index=tmp_path / "index", keep_recalls=5) as memory:
        ask(memory, "130")
        assert queries(memory, after=0, limit=500) == ["127", "129", "130"]
        assert queries(memory.within("other"), after=0, limit=500) == ["126", "128"]


def test_a_limit_of_zero_keeps_no_logs(home: Path) -> None:
    with Memory(home, keep_recalls=0) as memory:
        ask(memory, "a")
        assert queries(memory) == []
    for keep in (-1, True, "all"):
        with raises(InvalidArgument, name="keep"):
            Memory(home, keep_recalls=keep)  # type: ignore[arg-type]
