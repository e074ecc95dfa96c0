"""Recall logs: what was asked and found, kept in order, for so long, and for nobody else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agentkit_memory import InvalidArgument, Memory, Scope
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


def write(memory: Memory, *queries: str, logs: RecallLogs | None = None) -> None:
    for query in queries:
        (logs or memory._store.logs).write(memory.scope, None, partial(RecallLog, query, {}, (), 1))


def queries(memory: Memory, **page: int) -> list[str]:
    return [each.query for each in memory.recall_logs(**page)]


def test_a_log_comes_back_as_it_was_written(either: Memory) -> None:
    either._store.database.clock = lambda: 77.0
    either._store.logs.write(either.scope, None, lambda: FULL)
    (written,) = either.recall_logs()
    assert replace(written, id=0, at=0.0) == FULL
    assert (written.at, written.candidates, written.degraded) == (77.0, FULL.candidates, FULL.degraded)
    assert written.id > 0 and written.conversation == "breakfast"


def test_logs_are_read_by_pages_in_the_order_of_writing_whatever_the_clock_says(either: Memory) -> None:
    times = iter(range(1000, 0, -1))
    either._store.database.clock = lambda: float(next(times))
    write(either, *"abcdefg")
    assert queries(either, limit=3) == ["e", "f", "g"]
    first = either.recall_logs(after=0, limit=2)
    assert [each.query for each in first] == ["a", "b"]
    assert queries(either, after=first[-1].id, limit=2) == ["c", "d"]
    assert queries(either, before=first[-1].id) == ["a"]
    with raises(InvalidArgument, name="limit"):
        either.recall_logs(limit=0)


def test_logs_are_those_of_exactly_one_scope(either: Memory) -> None:
    ada = either.within(Scope("local", user="ada"))
    write(either, "shared")
    write(ada, "mine")
    assert (queries(either), queries(ada), queries(either.within("other"))) == (["shared"], ["mine"], [])
    with raises(InvalidArgument, name="scope_ids"):
        either._store.logs.page(None)


def test_hostile_questions_can_be_logged(either: Memory) -> None:
    write(either, "a\0b", "\ud800", "'; DROP TABLE items; --", "x" * 100_000, "")
    assert queries(either) == ["a\ufffdb", "\ufffd", "'; DROP TABLE items; --", "x" * 100_000, ""]


def test_only_so_many_logs_are_kept_of_all_scopes_together(either: Memory) -> None:
    logs = RecallLogs(either._store.database, keep=5)
    other = either.within("other")
    for number in range(130):
        write(either if number % 2 else other, str(number), logs=logs)
    both = (*queries(either, after=0, limit=500), *queries(other, after=0, limit=500))
    assert 5 <= len(both) <= 5 + 64 and {"125", "126", "127", "128", "129"} <= set(both)
    write(either, "130", logs=RecallLogs(either._store.database, keep=5))
    assert queries(either, after=0, limit=500) == ["127", "129", "130"]
    assert queries(other, after=0, limit=500) == ["126", "128"]


def test_no_logs_are_kept_where_none_are_wanted(memory: Memory) -> None:
    write(memory, "a", logs=RecallLogs(memory._store.database, keep=0))
    assert queries(memory) == []
    for keep in (-1, True, "all"):
        with raises(InvalidArgument, name="keep"):
            RecallLogs(memory._store.database, keep=keep)  # type: ignore[arg-type]
