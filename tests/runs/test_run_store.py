"""Runs in a store, on SQLite and PostgreSQL: listed, attempted, decided, deleted."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from agentkit import Approved, Denied, Journal
from agentkit.errors import ApprovalError, JournalError
from agentkit.models.model import Usage
from agentkit.prompts import PromptContext, UserInput
from agentkit.runs import conversions, run_reader, run_store
from agentkit.runs.run_errors import AttemptEnded, DatabaseDamaged, DatabaseUnavailable, RunNotFound, RunStoreError
from agentkit.runs.run_matching import matches, sort_value
from agentkit.runs.run_record import RunError, RunEvent, RunRecord, RunsWanted, WaitingCall
from agentkit.runs.run_retention import Retention
from agentkit.runs.run_store import RunStore
from agentkit.runs.sqlite_engine import sqlite_engine
from agentkit.server import RunStore as PublicRunStore
from tests.raising import raises


def run(run_id: str = "r", **changes: Any) -> RunRecord:
    return replace(
        RunRecord(run_id=run_id, tenant="acme", agent="a", state="queued", created_at=1.0, updated_at=2.0), **changes
    )


def listed(store: RunStore, **wanted: Any) -> list[str]:
    return [one.run_id for one in store.page(RunsWanted(**wanted))]


@pytest.mark.parametrize("text", ["a \ud800 b", "a \x00 b", 'é\u2028"', ""])
def test_a_run_is_read_as_it_was_stored(store: RunStore, text: str) -> None:
    asked = UserInput(text, additional_kwargs={"n": [1.5, None, text]})
    error = RunError("ModelError", text)
    whole = run(
        input=asked, output={"text": text}, session="s", error=error, key="k", usage=Usage(1, 2, 3, 0.5), steps=3
    )
    assert store.add(whole) == whole
    stored = replace(whole, key=None)  # a key has its own row
    assert store.get("r") == store.find("acme", "", "k") == stored
    assert store.add(replace(whole, run_id="other")) == stored  # the same key is the same run
    assert (
        store.find("evil", "", "k") is None
        and store.find("acme", "ada", "k") is None
        and listed(store, tenant="evil") == []
    )
    with raises(RunNotFound, run_id="r"):
        store.get("r", tenant="evil")


def test_runs_are_selected_and_the_newest_are_first(store: RunStore) -> None:
    for run_id, tenant, session in (("a", "acme", "s"), ("b", "acme", "s"), ("c", "acme", None), ("d", "evil", "s")):
        store.add(run(run_id, tenant=tenant, session=session))
    assert listed(store) == ["d", "c", "b", "a"] and listed(store, tenant="acme", limit=2) == ["c", "b"]
    assert listed(store, tenant="acme", before="c") == ["b", "a"]
    assert listed(store, tenant="acme", ids={"a", "b", "c", "d", "none"}) == ["c", "b", "a"]
    assert listed(store, tenant="acme", ids={"a", "c"}, session="s") == ["a"] and listed(store, ids=()) == []
    with raises(RunNotFound, run_id="d"):
        listed(store, tenant="acme", before="d")
    store.delete("b")
    store.delete("none")
    assert listed(store, tenant="acme") == ["c", "a"]


def test_lists_are_filtered_sorted_and_read_in_parts(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The filters and orders of SQL and of Python are the same."""
    questions = ("Where is my parcel?", "100 % STRASSE", "Straße_7", "Where is it?", "")
    records = [
        run(
            f"r{at}",
            agent="ab"[at % 2],
            user="ada" if at % 3 else "",
            session="s" if at % 4 == 0 else None,
            state=("finished", "failed", "waiting")[at % 3],
            updated_at=1.0 + at % 5,
            error=RunError("ModelError", "x") if at % 3 == 1 else None,
            usage=Usage(at * 7 % 10, 1, 0, at * 3 % 10 / 4 or None),
            input=UserInput(questions[at % 5]),
            tags=(("vip", "VIP_7"), ("Straße",), ())[at % 3],
        )
        for at in range(20)
    ]
    for record in (*records, run("evil", tenant="evil")):
        store.add(record)
    monkeypatch.setattr(run_reader, "MAX_EXAMINED", 3)
    cases: list[dict[str, Any]] = [
        {},
        {"state": "failed"},
        {"error": "ModelError", "agent": "a"},
        {"error": "ModelErro"},
        {"user": "ada", "text": "WHERE"},
        {"user": ""},
        {"session": "s"},
        {"text": "strasse"},
        {"text": "%"},
        {"text": "_"},
        {"text": "is where"},
        {"text": "ada/s"},
        {"text": "r17"},
        *[{"tag": tag} for tag in ("vip", "VIP", "vi", "VIP_7", "VIP%7", "Straße", "Strasse", "", "\0", "vip\nVIP_7")],
        {"tag": "vip", "order": "tokens", "state": "finished", "limit": 2},
        {"text": "vip_7 straße"},
        {"text": "vip_7 where"},
        {"text": "\0"},
        {"state": "failed", "order": "cost", "agent": "b"},
        *[
            {"order": order, "limit": limit}
            for order in ("newest", "longest", "tokens", "cost")
            for limit in (1, 3, 50)
        ],
        {"user": "ada", "state": "failed", "agent": "b"},
        {"session": "s", "state": "finished", "user": "ada", "agent": "a"},
        {"session": "s", "state": "failed", "order": "cost"},
        {"ids": {"r1", "r2", "none"}, "session": "s"},
        {"ids": {"r0", "r4"}, "session": "s", "limit": 1},
    ]
    for case in cases:
        wanted = RunsWanted(tenant="acme", **{"limit": 4, **case})
        ids, parts = list[str](), 0
        part = store.listed(wanted)
        while True:
            ids, parts = ids + [one.run_id for one in part.runs], parts + 1
            assert len(part.runs) <= wanted.limit and parts < 30, case
            if part.older is None:
                break
            part = store.listed(replace(wanted, before=part.older))
        known = [one for one in reversed(records) if matches(one, wanted)]
        known.sort(key=lambda one: sort_value(one, wanted.order), reverse=True)
        assert ids == [one.run_id for one in known], case
    figures = store.figures("a", tenant="acme", user="ada", limit=2)
    assert [(one.state, one.tokens, one.seconds, one.cost) for one in figures] == [
        ("failed", 3, 1, 2),
        ("waiting", 9, 0, 0.5),
    ]


def test_the_columns_of_lists_are_written_when_runs_end(store: RunStore) -> None:
    for run_id in ("ends", "cancelled"):
        store.add(run(run_id, created_at=store.database.time() - 100))
    attempt = store.begin_attempt("ends")
    assert attempt is not None
    store.end_attempt(attempt, run("ends", state="failed", error=RunError("ModelError", "x"), usage=Usage(5, 6)))
    store.cancel("cancelled")
    assert [one.run_id for one in store.listed(RunsWanted(error="ModelError")).runs] == ["ends"]
    assert [round(one.seconds, -1) for one in store.figures("a", tenant="acme", limit=9)] == [100, 100]


def test_one_attempt_at_a_time_stores_lines_and_the_end_of_a_run(store: RunStore) -> None:
    store.add(run())
    assert store.journal("r") is None
    first = store.begin_attempt("r")
    assert first is not None and store.begin_attempt("r") is None and store.get("r").state == "running"
    journal = Journal("a", "r", PromptContext(user_input="Hi")).dumps()
    store.add_lines(first, [(journal, ())])
    assert [one.run_id for one in store.requeue_interrupted()] == ["r"]
    second = store.begin_attempt("r")
    assert second is not None and store.get("r").attempts == 2
    with raises(AttemptEnded, is_cancelled=False):
        store.add_lines(first, [("x\n", ())])
    with raises(AttemptEnded, is_cancelled=False):
        store.end_attempt(first, run(state="failed"))
    assert store.journal_text("r") == journal
    ended = run(state="finished", output="Hm.", usage=Usage(3, 1), steps=1, finish_reason="stop")
    store.end_attempt(second, ended)
    stored = store.get("r")
    # The clock of the database decides when a run ended.
    assert stored == replace(ended, attempts=2, updated_at=stored.updated_at) and stored.updated_at > ended.updated_at
    assert store.requeue_interrupted() == [] and not store.cancel("r")
    with raises(AttemptEnded, is_cancelled=False):
        store.end_attempt(second, ended)


def test_only_runs_of_stopped_workers_are_abandoned(store: RunStore) -> None:
    for run_id, worker in (("own", None), ("alive", "w1"), ("stopped", "w2")):
        store.add(run(run_id, updated_at=time.time()))
        assert store.begin_attempt(run_id, worker=worker) is not None
    assert [one.run_id for one in store.requeue_abandoned(["w1"], ["a"])] == ["stopped"]
    # The worker of the file has stopped too: the server that executes `own` has none, and may still work.
    assert [one.run_id for one in store.requeue_abandoned([], ["a"])] == ["alive"]
    assert store.get("own").state == "running" and store.get("stopped").state == "queued"


def test_a_cancelled_run_stores_no_more_lines(store: RunStore) -> None:
    store.add(run())
    attempt = store.begin_attempt("r")
    assert attempt is not None and store.cancel("r") and not store.cancel("r")
    with raises(AttemptEnded, is_cancelled=True):
        store.add_lines(attempt, [("x\n", ())])
    assert store.get("r").state == "cancelled" and store.journal_text("r") == ""


def waiting(store: RunStore, *calls: str, timeout: float | None = None) -> None:
    """Add a run that waits with calls."""
    store.add(run())
    attempt = store.begin_attempt("r")
    assert attempt is not None
    asked = tuple([WaitingCall(call, "pay", '{"n": 1}', "clerk") for call in calls])
    store.end_attempt(attempt, run(state="waiting", waiting=asked), timeout=timeout)


def test_a_run_is_queued_when_no_decision_is_missing(store: RunStore) -> None:
    waiting(store, "a", "d/\ud800\0")
    assert [call.call_id for call in store.get("r").waiting] == ["a", "d/\ud800\0"]
    assert store.decide("r", {"a": Denied("no\0")}, by="ada") == "waiting"
    assert [call.call_id for call in store.get("r").waiting] == ["d/\ud800\0"]
    assert store.decide("r", {None: Approved({"n": 2})}, by="bob") == "queued"
    assert store.get("r").state == "queued" and store.get("r").waiting == ()
    first, second = store.calls("r")
    assert (first.decision, first.decided_by, first.agent) == (Denied("no\0"), "ada", "clerk")
    assert (second.decision, second.decided_by, second.expires_at) == (Approved({"n": 2}), "bob", None)
    journal = Journal("a", "r", PromptContext(user_input="Hi"))
    assert store.decisions("r", journal) == {"a": Denied("no\0"), "d/\ud800\0": Approved({"n": 2})}


def test_a_claim_stores_decisions_and_starts_the_attempt_at_once(store: RunStore) -> None:
    waiting(store, "a", "b")
    assert store.claim("r", {"x": Approved()}) is None
    assert store.claim("r", {"a": Approved()}) is None  # the other call waits
    states: list[str] = []

    @sa.event.listens_for(store.database.engine, "commit")
    def commit(connection: sa.Connection) -> None:
        states.append(str(connection.execute(sa.text("SELECT state FROM agentkit_runs WHERE run_id = 'r'")).scalar()))

    attempt = store.claim("r", {"b": Denied()}, worker="w")
    sa.event.remove(store.database.engine, "commit", commit)
    assert attempt is not None and store.begin_attempt("r") is None
    assert (store.get("r").worker, set(states)) == ("w", {"running"})  # no process finds the run queued
    assert store.claim("r", {"b": Approved()}) is None


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        ({"a": Approved(), "x": Approved()}, "x"),
        ({"b": Approved(), "a": Approved()}, "b"),
        ({None: Approved({"n": 2})}, None),
    ],
)
def test_decisions_are_stored_together_or_not_at_all(store: RunStore, made: Any, problem: str | None) -> None:
    waiting(store, "a", "b", "c")
    store.decide("r", {"b": Approved()}, by="ada")
    with pytest.raises(ApprovalError) as error:
        store.decide("r", made)
    assert error.value.value == problem
    assert [call.call_id for call in store.get("r").waiting] == ["a", "c"]
    store.cancel("r")
    with raises(ApprovalError, value="nothing waits"):
        store.decide("r", {"a": Approved()})
    with raises(RunNotFound, run_id="none"):
        store.decide("none", {"a": Approved()})


def test_an_error_names_the_earlier_decisions(store: RunStore) -> None:
    waiting(store, "a", "b", "c")
    decisions: dict[str, Approved | Denied] = {"a": Approved({"n": 2}), "b": Denied("no")}
    store.decide("r", decisions, by="ada")
    with pytest.raises(ApprovalError, match="a was approved already by ada; b was denied already by ada; nothing"):
        store.decide("r", decisions)


def test_of_two_simultaneous_decisions_one_is_first(opened: Any) -> None:
    waiting(opened(), "a")
    decided: list[object] = []

    def decide(by: str) -> None:
        try:
            decided.append(opened().decide("r", {"a": Approved()}, by))
        except ApprovalError:
            decided.append(None)

    threads = [threading.Thread(target=decide, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(decided, key=str) == [None, "queued"] and len(opened().calls("r")) == 1


def test_another_tenant_cannot_read_an_inner_agent_of_a_run(store: RunStore) -> None:
    store.add(run(executor="dbos"))
    attempt = store.begin_attempt("r")
    assert attempt is not None
    store.add_lines(attempt, [(Journal("clerk", "inner", PromptContext(user_input="Hi")).dumps(), ("c1",))])
    for tenant, around in (("acme", "r"), (None, "r"), ("evil", None)):
        with raises(RunNotFound, run_id="inner", around=around):
            store.get("inner", tenant=tenant)


@pytest.mark.parametrize("text", ["a\0", "a\ud800"])
def test_an_id_that_no_database_stores_is_an_unknown_run(store: RunStore, text: str) -> None:
    store.add(run())
    with raises(RunNotFound, run_id=text):
        store.get(text)
    for tenant in ("acme", None):
        with raises(RunNotFound, run_id=text):
            listed(store, tenant=tenant, before=text)


def test_a_run_is_queued_if_its_last_two_decisions_are_simultaneous(store: RunStore) -> None:
    waiting(store, "a", "b")
    both, states = threading.Barrier(2), list[str]()

    def meet(_: object) -> None:
        with suppress(threading.BrokenBarrierError):  # the second transaction waits for the first
            both.wait(0.9)

    event.listen(store.database.engine, "commit", meet)
    deciders = [
        threading.Thread(target=lambda call=call: states.append(store.decide("r", {call: Approved()})))
        for call in ("a", "b")
    ]
    for decider in deciders:
        decider.start()
    for decider in deciders:
        decider.join()
    event.remove(store.database.engine, "commit", meet)
    assert sorted(states) == ["queued", "waiting"] and store.get("r").state == "queued"


def test_events_and_usage_are_stored(store: RunStore) -> None:
    store.add(run())
    events = [
        RunEvent(1, "text_delta", {"text": "a\ud800\0"}),
        RunEvent(1_001, "run_finished", {"money": float("nan")}),
    ]
    store.events.add("r", events)
    assert store.events.after("r", limit=1) == events[:1] and store.events.last("r") == 1_001
    assert store.events.after("r", 1) == [RunEvent(1_001, "run_finished", {"money": None})]
    store.delete("r")
    assert store.events.after("r") == [] and store.events.last("r") == 0
    for day in ("2026-11-21", "2026-11-22", "2026-11-22"):
        store.usage.add("acme", day, Usage(2, 1, 0, 0.5))
    store.usage.add("acme", "2026-11-22", Usage(1), runs=0)
    assert store.usage.of("acme", since="2026-11-22") == {"2026-11-22": (2, Usage(5, 2, 0, 1.0))}
    assert [*store.usage.of("acme")] == ["2026-11-21", "2026-11-22"] and store.usage.of("evil") == {}


def test_a_damaged_run_affects_no_other_run(store: RunStore) -> None:
    for run_id in ("good", "bad"):
        store.add(run(run_id))
    store.database.work(lambda c: c.execute(sa.text("UPDATE agentkit_runs SET usage = 'x' WHERE run_id = 'bad'")))
    bad, good = store.page(RunsWanted())
    assert good == run("good") and bad.error == ("RunStoreError", "the stored data of this run is corrupt")
    assert [one.run_id for one in store.requeue_interrupted()] == ["good"]
    assert store.cancel("bad")
    store.add(run("late"), "x\ny\nz\n")
    texts = [store.journal_text("late", lines) for lines in (None, 2, 0)]
    assert texts == ["x\ny\nz\n", "x\ny\n", ""]
    with pytest.raises(JournalError):
        store.journal("late")


def test_the_oldest_runs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(RunStore()) as store:
        store.retention = Retention(runs=10)
        for at in range(400):
            store.add(run(str(at), state="finished"))
        assert listed(store, limit=500) == [str(at) for at in range(399, 389, -1)]
    monkeypatch.setattr(run_store, "_MAX_IN_MEMORY", 10_000)
    with closing(RunStore()) as store:
        for at in range(100):
            store.add(run(str(at), state="finished"), "x" * 1000 + "\n")
        kept = listed(store, limit=200)
        assert kept[0] == "99" and 4 <= len(kept) <= 11
        assert store.journal_text("99") == "x" * 1000 + "\n"


def test_a_database_of_another_format_or_with_other_content_is_refused(tmp_path: Path) -> None:
    RunStore(tmp_path / "runs.db").close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file, file:
        file.execute("UPDATE agentkit_store SET format = 99")
    with raises(RunStoreError, path=str(tmp_path / "runs.db"), value=99):
        RunStore(tmp_path / "runs.db")
    for number, table in enumerate(("run_store", "agentkit_approvals")):  # a format before 0.1
        with closing(sqlite3.connect(tmp_path / f"old-{number}.db")) as file, file:
            file.execute(f"CREATE TABLE {table} (format INTEGER)")
        with raises(RunStoreError, path=str(tmp_path / f"old-{number}.db"), value="old"):
            RunStore(tmp_path / f"old-{number}.db")
    first = PublicRunStore(tmp_path / "other.db")
    with raises(RunStoreError, value="busy"):
        RunStore(tmp_path / "other.db")
    first.close()
    RunStore(tmp_path / "other.db").close()
    (tmp_path / "text.db").write_text("not a database" * 100)
    with raises(RunStoreError, path=str(tmp_path / "text.db")):
        RunStore(tmp_path / "text.db")


def test_a_full_database_is_reported_as_unavailable(tmp_path: Path) -> None:
    first = RunStore(tmp_path / "runs.db")
    first.add(run("waits", state="waiting", waiting=(WaitingCall("a", "send", "{}"),)))
    first.add(run("queued"))
    first.close()
    engine = sqlite_engine(str(tmp_path / "runs.db"))
    # SQLite refuses every page beyond the present size, as on a full disk.
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    store, large = RunStore(engine), "x" * 100_000
    attempt = store.begin_attempt("queued")
    assert attempt is not None
    changes: dict[str, Callable[[], object]] = {
        "add": lambda: store.add(run("new"), large),
        "add with a key": lambda: store.add(run("new", key="k"), large),
        "add_lines": lambda: store.add_lines(attempt, [(large, ())]),
        "end_attempt": lambda: store.end_attempt(attempt, run("queued", state="finished", output={"text": large})),
        "decide": lambda: store.decide("waits", {"a": Denied(large)}),
        "events": lambda: store.events.add("queued", [RunEvent(1, "text", {"text": large})]),
    }
    for name, change in changes.items():
        with raises(DatabaseUnavailable, name="database"):
            print(name, change())
    assert listed(store) == ["queued", "waits"] and store.journal_text("queued") == ""
    engine.dispose()


def test_the_next_format_converts_a_store_once(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().add(run())
    target = opened().database.engine
    converted: list[int] = []

    def convert(connection: sa.Connection) -> None:
        connection.execute(sa.text("UPDATE agentkit_runs SET agent = 'renamed'"))
        converted.append(1)

    monkeypatch.setattr(conversions, "FORMAT", 2)
    monkeypatch.setattr(conversions, "CONVERSIONS", {1: convert})
    for _ in range(2):
        assert RunStore(target).get("r").agent == "renamed"
    assert converted == [1]
    monkeypatch.setattr(conversions, "FORMAT", 1)
    with raises(RunStoreError, value=2):
        RunStore(target)


def test_the_newest_runs_of_a_tenant_are_read_by_an_index(tmp_path: Path) -> None:
    RunStore(tmp_path / "runs.db").close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as file:
        query = "EXPLAIN QUERY PLAN SELECT * FROM agentkit_runs WHERE tenant = 'acme' ORDER BY number DESC LIMIT 100"
        steps = [step for *_, step in file.execute(query)]
    assert len(steps) == 1 and "USING INDEX" in steps[0] and "TEMP B-TREE" not in steps[0]


def test_a_store_in_memory_is_closed_after_the_statements_of_other_threads() -> None:
    """SQLite crashes the process if a connection is closed while another thread uses it."""
    for _ in range(5):
        store, closed = RunStore(), threading.Event()

        def read(store: RunStore = store, closed: threading.Event = closed) -> None:
            with suppress(DatabaseDamaged, DatabaseUnavailable):  # a new connection has an empty database
                while not closed.is_set():
                    store.page(RunsWanted())

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        store.close()
        closed.set()
        for thread in threads:
            thread.join()
