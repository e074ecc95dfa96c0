"""The cost of lists of runs grows with their rows, not with the number of other stored runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from agentkit.runs.run_queue import NewRun, RunQueue
from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore

LISTS: list[dict[str, Any]] = [
    {},
    {"state": "waiting"},
    {"state": "finished"},
    {"session": "s"},
    {"tag": "rare"},
    {"tag": "frequent", "before": "old-100"},
    {"tenant": "acme"},
    {"tenant": "acme", "state": "waiting"},
    {"tenant": "acme", "state": "waiting", "agent": "old"},
    {"tenant": "acme", "session": "s", "user": "ada", "state": "waiting"},
    {"tenant": "acme", "user": "ada"},
    {"tenant": "acme", "user": "ada", "state": "waiting"},
    {"tenant": "acme", "user": "ada", "state": "waiting", "agent": "old"},
    {"schedule": "nightly"},
    {"tenant": "acme", "schedule": "daily", "state": "finished"},
    {"tenant": "acme", "agent": "old"},
    {"tenant": "acme", "tag": "rare"},
    {"tenant": "acme", "tag": "frequent"},
    {"tenant": "acme", "tag": "rare", "state": "waiting"},
    {"tenant": "acme", "tag": "ended", "state": "finished"},
    {"tag": "ended", "state": "finished"},
    {"tenant": "acme", "tag": "rare", "agent": "old"},
    {"tenant": "acme", "tag": "rare", "order": "cost", "ids": ["old-1", "old-2", "old-3"]},
    {"tenant": "acme", "order": "cost"},
    # After a run in the middle of the old runs.
    *[
        {"tenant": "acme", "before": "old-100", **filters}
        for filters in (
            {},
            {"state": "waiting"},
            {"user": "ada"},
            {"user": "ada", "state": "waiting"},
            {"tag": "frequent"},
        )
    ],
]


def stored(store: RunStore, name: str, count: int, **values: Any) -> None:
    def record(at: int) -> RunRecord:
        new = RunRecord(run_id=f"{name}-{at}", agent=name, state="queued", created_at=1.0, updated_at=1.0)
        tags = ("rare", "frequent") if at < 5 else ("frequent",)
        return replace(new, **{"tenant": "acme", "tags": tags, **values})

    queue = RunQueue(store.database, lambda connection, leg: None)
    queue.add([NewRun(record(at), "{}\n", "{}") for at in range(count)])


def costs(store: RunStore) -> list[int]:
    """Return the instructions of SQLite in tens, or the rows that PostgreSQL reads, for a page of each list."""
    statements: list[tuple[str, Any]] = []
    instructions = [0]

    def count() -> int:
        instructions[0] += 1
        return 0

    def start(connection: Any, *_: object) -> None:
        connection.set_progress_handler(count, 10)

    def note(connection: object, cursor: object, statement: str, parameters: Any, *_: object) -> None:
        statements.append((statement, parameters))

    engine = store.database.engine
    if store.database.is_sqlite:
        event.listen(engine, "checkout", start)
    else:
        event.listen(engine, "before_cursor_execute", note)
    results: list[int] = []
    for wanted in LISTS:
        statements.clear()
        instructions[0] = 0
        assert len(store.page(RunsWanted(limit=3, **wanted))) == 3, wanted
        results.append(instructions[0])
        if not store.database.is_sqlite:
            results[-1] = rows_read(engine, list(statements))
    if store.database.is_sqlite:
        event.remove(engine, "checkout", start)
    else:
        event.remove(engine, "before_cursor_execute", note)
    return results


def rows_read(engine: sa.Engine, statements: Sequence[tuple[str, Any]]) -> int:
    """Return the number of rows that PostgreSQL reads for statements."""
    with engine.connect() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
            for statement, parameters in statements
        ]
    return sum(rows_of(plan["Plan"]) for (plan,) in plans)


def rows_of(node: Any) -> int:
    rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return int(rows) + sum(rows_of(inner) for inner in node.get("Plans", ()))


def analyze(store: RunStore) -> None:
    if not store.database.is_sqlite:
        store.database.work(lambda connection: connection.exec_driver_sql("ANALYZE"))


def test_a_page_of_old_runs_costs_the_same_after_many_newer_runs(store: RunStore) -> None:
    stored(store, "old", 200, state="waiting", session="s", user="ada", schedule="nightly")
    stored(store, "ended", 200, state="finished", tags=("ended",), schedule="daily")
    analyze(store)
    few = costs(store)
    stored(store, "new", 500, state="finished", user="bob", tags=())
    stored(store, "newest", 500, state="finished", user="ada", tags=())
    stored(store, "evil", 200, tenant="evil")
    analyze(store)
    # A deeper index costs a few instructions more.
    problems = [
        f"{json.dumps(wanted)}: {before} before, {after} after"
        for wanted, before, after in zip(LISTS, few, costs(store), strict=True)
        if after > before + 40
    ]
    assert not problems, "\n".join(problems)


def test_tags_are_deleted_with_their_runs(store: RunStore) -> None:
    stored(store, "old", 3)
    record = RunRecord(run_id="r", tenant="acme", agent="a", state="queued", created_at=1.0, updated_at=1.0)
    store.add(replace(record, tags=("rare", "rare", "x")))
    wanted = RunsWanted(tenant="acme", tag="rare")
    assert [run.run_id for run in store.page(wanted)] == ["r", "old-2", "old-1", "old-0"]
    store.delete("r", "old-0", "old-2")
    assert [run.run_id for run in store.page(wanted)] == ["old-1"]
    tags = sa.text("SELECT run, tag FROM agentkit_tags ORDER BY tag")
    assert store.database.work(lambda c: [*map(tuple, c.execute(tags))]) == [("old-1", "frequent"), ("old-1", "rare")]
