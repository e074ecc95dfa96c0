"""Extraction of facts from turns: once, in order, and deletion with the sources."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from threading import enumerate as enumerate_threads
from typing import Any

import pytest

from agentkit.memory import FactDraft, IndexBroken, IndexUnavailable, InvalidArgument, Memory, Scope, StoredFact, Turn
from agentkit.memory.recall import VectorIndex
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from agentkit_memory.facts.fact_worker import FactWorker
from agentkit_memory.process.failpoints import VARIABLE
from benchmarks.failpoints import FAILPOINTS
from tests.effort import thinned, unless_fresh
from tests.forks import Forks
from tests.waiting import LONG, until

HOME = re.compile(r"I live in (\w+)")
UNTYPED: Any = FactDraft


def homes(turns: Sequence[Turn], known: Sequence[StoredFact]) -> Iterator[FactDraft]:
    """Yield facts about the homes of people, and the facts that they replace."""
    for turn in turns:
        if turn.new and (found := HOME.search(turn.text)):
            before = [fact.id for fact in known if fact.text.startswith(f"{turn.speaker} lives")]
            yield FactDraft(f"{turn.speaker} lives in {found[1]}.", [turn.id], supersedes=before)


class Reader:
    """Model that records its turns and facts, and answers with `homes` or with a given function."""

    def __init__(self, *answers: object) -> None:
        self.shown: list[list[tuple[str, bool]]] = []
        self.known: list[list[str]] = []
        self._answers = list(answers)

    def __call__(self, turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
        self.shown.append([(turn.text, turn.new) for turn in turns])
        self.known.append([fact.text for fact in known])
        answer = self._answers.pop(0) if self._answers else homes
        if isinstance(answer, BaseException):
            raise answer
        return [*answer(turns, known)] if callable(answer) else answer  # type: ignore[return-value]


def say(memory: Memory, *texts: str, session: str = "talk", name: str = "ada") -> None:
    memory.session(session).append(*(Message("user", text, name=name) for text in texts))


def facts(memory: Memory) -> list[str]:
    return [fact.text for fact in memory.facts.list()]


def every(text: str) -> Callable[[Sequence[Turn], Sequence[StoredFact]], list[FactDraft]]:
    """Return a model that extracts `text` from the first new turn."""
    return lambda turns, known: [FactDraft(text, [next(turn.id for turn in turns if turn.new)])]


def test_facts_are_recalled_with_their_turns_as_sources(either: Memory) -> None:
    say(either, "Hello", "I live in Bergen", "Bye")
    either.worker(homes).drain()
    (fact,) = either.facts.list()
    assert fact.text == "ada lives in Bergen."
    (source,) = fact.sources
    found = either.recall("where does ada live")
    assert [each.text for each in found.knowledge] == ["ada lives in Bergen."]
    assert source in {document.id for document in found}
    assert either.admin.verify().ok


def test_each_turn_is_read_once_with_the_previous_turns(either: Memory) -> None:
    reader = Reader()
    worker = either.worker(reader)
    say(either, "a", "b", "c", "d", "e", "f")
    worker.drain()
    say(either, "g")
    worker.drain()
    assert worker.drain() == 0
    assert reader.shown == [
        [(text, True) for text in "abcdef"],
        [*((text, False) for text in "cdef"), ("g", True)],
    ]


def test_turns_from_before_the_extractor_are_read(either: Memory) -> None:
    say(either, "I live in Oslo")
    either.worker().drain()
    assert facts(either) == []
    either.worker(homes).drain()
    assert facts(either) == ["ada lives in Oslo."]


def test_turns_wait_for_the_return_of_an_extractor(either: Memory) -> None:
    either.worker(homes).drain()
    say(either, "I live in Oslo")
    either.worker().drain()
    assert facts(either) == []
    assert either.recall("Oslo")[0].text == "I live in Oslo"
    either.worker(homes).drain()
    assert facts(either) == ["ada lives in Oslo."]


def test_a_newer_statement_replaces_an_older_statement(either: Memory) -> None:
    worker = either.worker(homes)
    for city in ("Oslo", "Rome", "Bergen"):
        say(either, f"I live in {city}")
        worker.drain()
    assert facts(either) == ["ada lives in Bergen."]
    assert [fact.text for fact in either.recall("where does ada live").knowledge] == ["ada lives in Bergen."]
    history = either.facts.list(superseded=True)
    assert [fact.text for fact in history] == ["ada lives in Oslo.", "ada lives in Rome.", "ada lives in Bergen."]
    assert [fact.superseded_by for fact in history] == [history[1].id, history[2].id, None]


def test_contradictions_across_conversations_of_a_scope_are_resolved(either: Memory) -> None:
    worker = either.worker(homes)
    say(either, "I live in Oslo", session="one")
    worker.drain()
    say(either, "I live in Rome", session="two")
    worker.drain()
    assert facts(either) == ["ada lives in Rome."]


def test_facts_belong_to_the_scope_of_the_conversation(either: Memory) -> None:
    ada, bob = (either.within(Scope("local", user=name)) for name in ("ada", "bob"))
    reader = Reader()
    say(ada, "I live in Oslo")
    say(bob, "I live in Rome", name="bob")
    either.worker(reader).drain()
    assert (facts(ada), facts(bob), facts(either)) == (["ada lives in Oslo."], ["bob lives in Rome."], [])
    assert reader.known == [[], []]
    assert either.recall("lives in Oslo").knowledge == ()


def test_redacting_or_deleting_a_message_removes_its_facts(either: Memory) -> None:
    worker = either.worker(homes)
    say(either, "I live in Oslo", session="one")
    say(either, "I live in Rome", session="two", name="bob")
    worker.drain()
    assert len(facts(either)) == 2
    either.session("one").redact(1)
    assert facts(either) == ["bob lives in Rome."]
    either.delete_session("two")
    assert facts(either) == []
    worker.drain()
    report = either.admin.verify()
    assert (report.ok, report.points) == (True, 0)


def test_a_redaction_with_a_replacement_is_read_again(either: Memory) -> None:
    worker = either.worker(homes)
    say(either, "I live in Oslo")
    worker.drain()
    either.session("talk").redact(1, "I live in Norway")
    worker.drain()
    assert facts(either) == ["ada lives in Norway."]


@pytest.mark.parametrize("change", ["redact", "delete", "erase"])
def test_a_turn_that_is_removed_during_its_extraction_leaves_no_fact(either: Memory, change: str) -> None:
    ada = either.within(Scope("local", user="ada"))
    session = ada.session("talk")
    session.append(Message("user", "I live in Oslo", name="ada"))

    def slow(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
        drafts = [*homes(turns, known)]
        if change == "redact":
            session.redact(1)
        elif change == "delete":
            ada.delete_session("talk")
        else:
            assert ada.erase(ada.scope).complete
        return drafts

    either.worker(slow).drain()
    assert facts(ada) == []
    assert either.worker(Reader()).drain() == 0
    assert either.admin.verify().ok


def busy(space: str, dimensions: int) -> VectorIndex:
    raise IndexUnavailable(f"{space}: in use by another process")


def test_facts_expire_with_their_conversation(tmp_path: Path) -> None:
    now = [1000.0]
    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        memory.session("talk", expires_at=2000.0).append(Message("user", "I live in Oslo", name="ada"))
        memory.worker(homes).drain()
        assert len(memory.recall("where does ada live").knowledge) == 1
        memory.session("talk", expires_at=4000.0)
        now[0] = 2500.0
        assert (
            len(memory.recall("where does ada live").knowledge) == 1
        )  # the end is the current end of the conversation
        memory.session("talk", expires_at=3000.0)
        now[0] = 3500.0
        assert memory.recall("where does ada live").knowledge == ()
        with Memory(tmp_path / "store", clock=lambda: now[0], index=busy) as other:
            recall = other.recall("where does ada live")
            assert recall.degraded and recall.knowledge == ()  # also without the index
        memory.admin.expire()
        assert facts(memory) == []


def test_equal_facts_are_stored_once(either: Memory) -> None:
    worker = either.worker(every("Ada is a pilot."))
    for _ in range(3):
        say(either, "I fly planes")
        worker.drain()
    assert facts(either) == ["Ada is a pilot."]


def test_an_equal_fact_with_a_later_end_is_stored(tmp_path: Path) -> None:
    now = [1000.0]
    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        worker = memory.worker(every("Ada is a pilot."))
        for session, end in (("short", 2000.0), ("shorter", 1500.0), ("long", None), ("longer", None)):
            memory.session(session, expires_at=end).append(Message("user", "I fly planes"))
            worker.drain()
        assert len(facts(memory)) == 2
        assert len(memory.recall("pilot").knowledge) == 1
        now[0] = 3000.0
        assert len(memory.recall("pilot").knowledge) == 1
        memory.admin.expire()
        assert len(facts(memory)) == 1


def test_the_extractor_gets_similar_facts_and_the_newest_facts(either: Memory) -> None:
    facts = either.within(either.session("s").scope).facts
    for number in range(120):
        facts.add(f"Fact number {number} is about {'zebras' if number == 3 else 'tea'}.")
    reader = Reader()
    say(either, "What do zebras eat?")
    either.worker(reader).drain()
    (known,) = reader.known
    assert len(known) == 40
    assert "Fact number 3 is about zebras." in known
    assert "Fact number 119 is about tea." in known
    assert known == sorted(known, key=lambda text: int(text.split()[2]))


def test_long_turns_are_read_in_parts_in_order(either: Memory) -> None:
    reader = Reader()
    long = ["".join(f"{letter}{number:05}" for number in range(5_000)) for letter in "xy"]
    say(either, "short", *long, "end")
    either.worker(reader).drain()
    new = [[text for text, is_new in shown if is_new] for shown in reader.shown]
    assert "".join(text for each in new for text in each) == f"short{long[0]}{long[1]}end"
    assert len(new) > 2 and all(sum(map(len, each)) <= 20_000 for each in new)


def test_invalid_drafts_are_skipped_and_reported_and_valid_drafts_are_stored(
    either: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    def careless(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
        (turn,) = turns
        return [
            FactDraft("Good.", [turn.id]),
            FactDraft("", [turn.id]),
            FactDraft("No source.", []),
            FactDraft("Foreign source.", ["00000000-0000-5000-8000-000000000000"]),
            FactDraft("Foreign fact.", [turn.id], supersedes=["7"]),
            FactDraft("x" * 2000, [turn.id]),
            FactDraft("NUL \0.", [turn.id]),
            FactDraft("Never.", [turn.id], valid_from=float("nan")),
            FactDraft("Backwards.", [turn.id], valid_from=2.0, valid_to=1.0),
            FactDraft("No JSON.", [turn.id], metadata={"a": object()}),
            FactDraft("Also good.", [turn.id]),
        ]

    say(either, "hello")
    with caplog.at_level(logging.WARNING, "agentkit.memory"):
        either.worker(careless).drain()
    assert facts(either) == ["Good.", "Also good."]
    assert len(caplog.records) == 9
    assert "unknown id of a turn: '00000000-0000-5000-8000-000000000000'" in caplog.text
    assert "2000 characters, at most 1000" in caplog.text


def test_a_draft_of_only_old_turns_is_skipped(either: Memory, caplog: pytest.LogCaptureFixture) -> None:
    worker = either.worker(lambda turns, known: [FactDraft(f"Of {turns[0].text}.", [turns[0].id])])
    say(either, "one")
    worker.drain()
    say(either, "two")
    worker.drain()
    assert facts(either) == ["Of one."]
    assert "its sources contain no new turn" in caplog.text


def test_a_failed_extraction_is_retried_turn_by_turn_and_then_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]

    def model(turns: Sequence[Turn], known: Sequence[StoredFact]) -> Iterator[FactDraft]:
        asked.append([turn.text for turn in turns if turn.new])
        if any(turn.new and turn.text == "poison" for turn in turns):
            raise InvalidArgument("gibberish")
        return homes(turns, known)

    asked: list[list[str]] = []
    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        say(memory, "I live in Oslo", "poison", "I live in Rome")
        say(memory, "I live in Bergen", session="other", name="bob")
        worker = memory.worker(model)
        worker.drain()
        assert facts(memory) == ["bob lives in Bergen.", "ada lives in Oslo."] or facts(memory) == [
            "ada lives in Oslo.",
            "bob lives in Bergen.",
        ]  # later turns wait, so that the order is kept
        for _ in range(4):
            now[0] += 60
            worker.drain()
        assert "ada lives in Rome." in facts(memory)
        assert "ada lives in Oslo." not in facts(memory)
        assert asked.count(["poison"]) == 2
        assert "was given up: InvalidArgument: gibberish" in caplog.text
        now[0] += 10_000
        assert worker.drain() == 0


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (lambda turn: "a text", "expected a FactDraft, got str"),
        (lambda turn: None, "expected a FactDraft, got NoneType"),
        (lambda turn: UNTYPED(None, [turn]), "text: expected text, got NoneType"),
        (lambda turn: UNTYPED("Wrong.", turn), "sources: expected a sequence of ids, got str"),
        (lambda turn: UNTYPED("Wrong.", [[turn]]), "sources: expected ids, which are text, got list"),
        (lambda turn: UNTYPED("Wrong.", [turn], supersedes=[["a"]]), "supersedes: expected ids, which are text, got"),
        (lambda turn: UNTYPED("Wrong.", [turn], valid_from=True), "valid_from: expected seconds since 1970, or None"),
        (lambda turn: UNTYPED("Wrong.", [turn], valid_to="tomorrow"), "or None, got str"),
        (lambda turn: UNTYPED("Wrong.", [turn], metadata=5), "metadata: expected a mapping, got int"),
        (
            lambda turn: UNTYPED(None, turn, metadata=()),
            "draft 2: text: expected text, got NoneType; sources: expected a sequence of ids, got str; metadata: ",
        ),
    ],
)
def test_an_answer_of_wrong_types_is_discarded_without_other_losses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, draft: Callable[[str], object], said: str
) -> None:
    now = [1000.0]
    asked: list[list[str]] = []

    def careless(turns: Sequence[Turn], known: Sequence[StoredFact]) -> Iterator[FactDraft]:
        asked.append([turn.text for turn in turns if turn.new])
        for turn in turns:
            if turn.new and turn.text == "poison":
                yield FactDraft("Beside it.", [turn.id])
                yield draft(turn.id)  # type: ignore[misc]
            elif turn.new:
                yield from homes([turn], known)

    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        say(memory, "poison", "I live in Rome")
        worker = memory.worker(careless)
        for _ in range(4):
            worker.drain()
            now[0] += 60
        assert facts(memory) == ["Beside it.", "ada lives in Rome."]
        assert asked == [["poison", "I live in Rome"], ["poison"], ["poison"], ["I live in Rome"]]
        (told,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert "was given up: InvalidArgument: the extractor returned" in told
        assert said in told
        assert worker.drain() == 0


def test_an_unavailable_model_is_retried_with_growing_delays_and_no_turn_is_lost(tmp_path: Path) -> None:
    now = [1000.0]
    reader = Reader(*(ConnectionError("away") for _ in range(10)))
    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        say(memory, "I live in Oslo")
        worker = memory.worker(reader)
        waits = []
        while facts(memory) == []:
            worker.drain()
            began, calls = now[0], len(reader.shown)
            while len(reader.shown) == calls and facts(memory) == []:
                now[0] += 1
                worker.drain()
            waits.append(now[0] - began)
        assert waits[:4] == [1, 2, 4, 8]
        assert max(waits) == 300
        assert facts(memory) == ["ada lives in Oslo."]


def test_an_interrupt_releases_the_turns_to_other_workers(either: Memory) -> None:
    say(either, "I live in Oslo")
    with pytest.raises(KeyboardInterrupt):
        either.worker(Reader(KeyboardInterrupt())).drain()
    either.worker(homes).drain()
    assert facts(either) == ["ada lives in Oslo."]


def test_an_expired_lease_is_taken_over_and_the_late_answer_is_discarded(tmp_path: Path) -> None:
    now = [1000.0]
    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        say(memory, "I live in Oslo")
        memory.worker().drain()

        def stuck(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
            now[0] += 301
            memory.worker(homes).drain()
            return [FactDraft("Too late.", [turns[0].id])]

        memory.worker(stuck).drain()
        assert facts(memory) == ["ada lives in Oslo."]


def test_a_clock_that_was_set_back_does_not_block_turns_for_years(tmp_path: Path) -> None:
    now = [2_000_000_000.0]
    with Memory(tmp_path / "store", clock=lambda: now[0]) as memory:
        say(memory, "I live in Oslo")
        memory.worker(Reader(ConnectionError("away"))).drain()
        now[0] = 1_000_000_000.0
        memory.worker(homes).drain()
        assert facts(memory) == ["ada lives in Oslo."]


def test_four_workers_read_each_turn_once_and_each_conversation_in_order(either: Memory, database: Database) -> None:
    scopes = [either.within(Scope("local", user=f"u{number}")) for number in range(4)]
    for memory in scopes:
        for city in "ABCDEFGHIJ":
            say(memory, f"I live in {city}")
    either.worker().drain()
    reader = Reader()
    workers = [FactWorker(database, reader, most=1) for _ in range(4)]
    together = Barrier(4)

    def work(worker: FactWorker) -> None:
        together.wait()
        idle = 0
        while idle < 20:
            idle = 0 if worker.run_once() else idle + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, workers))
    for worker in workers:
        while worker.run_once():
            pass
    read = [text for shown in reader.shown for text, new in shown if new]
    assert sorted(read) == sorted(f"I live in {city}" for city in "ABCDEFGHIJ" * 4)
    assert [facts(memory) for memory in scopes] == [["ada lives in J."]] * 4


def test_only_one_of_two_concurrent_workers_reads_a_scope(either: Memory, database: Database) -> None:
    say(either, *"abcdefghij")
    FactWorker(database, Reader()).run_once()
    either.worker().drain()
    read: list[list[str]] = []

    def interrupted(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
        read.append([turn.text for turn in turns])
        assert other.run_once() == 0
        raise KeyboardInterrupt

    def finds_none(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
        read.append([turn.text for turn in turns])
        return []

    other = FactWorker(database, finds_none, most=2)
    with pytest.raises(KeyboardInterrupt):
        FactWorker(database, interrupted, most=2).run_once()
    assert other.run_once() == 2
    assert read == [["a", "b"], ["a", "b"]]


def test_the_worker_of_a_with_statement_runs_in_the_background_and_ends(either: Memory) -> None:
    done = Event()

    def extract(turns: Sequence[Turn], known: Sequence[StoredFact]) -> Iterator[FactDraft]:
        yield from homes(turns, known)
        done.set()

    with either.worker(extract) as worker:
        worker.start()  # it has started
        say(either, "I live in Oslo")
        assert done.wait(LONG)
    assert facts(either) == ["ada lives in Oslo."]
    assert worker.problems == {}
    assert not [each for each in enumerate_threads() if each.name == "agentkit-memory-facts"]


class Letters:
    """Embedder that counts letters."""

    model = "letters"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + text.count(letter) for letter in "abcdefgh"] for text in texts]


def test_a_change_of_the_embedder_does_not_change_the_queue(either: Memory) -> None:
    worker = either.worker(homes)
    say(either, "I live in Oslo")
    worker.drain()
    say(either, "I live in Rome")
    either.worker().drain()
    assert either.admin.reembed(Letters(), gate=None).flipped
    say(either, "I live in Bergen", session="other", name="bob")
    worker.drain()
    assert sorted(facts(either)) == ["ada lives in Rome.", "bob lives in Bergen."]
    assert either.admin.verify().ok


def test_a_store_with_only_a_queue_can_choose_its_embedder(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.worker(homes).step("facts")  # before the first write to the index
    with Memory(tmp_path / "store", embedder=Letters()) as memory:
        say(memory, "I live in Oslo")
        memory.worker(homes).drain()
        assert (facts(memory), memory.model) == (["ada lives in Oslo."], "letters")


def test_a_failure_is_reported_once_and_work_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Memory(tmp_path / "store") as memory, Memory(tmp_path / "store") as other:
        memory.admin.verify()  # owns the index
        say(other, "I live in Oslo")
        stop = Event()
        with caplog.at_level(logging.INFO, "agentkit.memory"), ThreadPoolExecutor(1) as pool:
            worker = other.worker(homes)
            running = pool.submit(worker.run, stop, 0.01)
            while not facts(other) or "index" not in worker.problems:
                assert not running.done()
            stop.set()
            running.result(LONG)
        assert "memory worker, index: IndexUnavailable" in caplog.text
        assert [fact.text for fact in memory.recall("where does ada live").knowledge] == ["ada lives in Oslo."]


def test_a_failure_in_one_part_of_the_work_does_not_stop_the_other_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(space: str, dimensions: int) -> VectorIndex:
        raise IndexBroken("the disk is on fire")

    with Memory(tmp_path / "store", index=broken) as memory:
        say(memory, "I live in Oslo")
        with memory.worker(homes) as worker:
            until(lambda: facts(memory) and worker.problems)
        assert facts(memory) == ["ada lives in Oslo."]
        assert worker.problems == {"index": "IndexBroken: the disk is on fire"}
        assert caplog.text.count("the disk is on fire") == 1
        with pytest.raises(IndexBroken):
            worker.drain()


def test_a_worker_continues_after_a_change_of_the_embedder(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        stop = Event()
        with ThreadPoolExecutor(1) as pool:
            worker = memory.worker()
            running = pool.submit(worker.run, stop, 0.01)
            for embedder in (Letters(), None):
                say(memory, f"with {embedder}")
                assert memory.admin.reembed(embedder, gate=None).flipped
                say(memory, "and then")
                until(lambda: not (now := memory.admin.verify()).pending and now.points >= 2)
            assert not running.done()
            stop.set()
            running.result(LONG)
        worker.drain()
        assert (memory.admin.verify().ok, memory.admin.verify().points) == (True, 4)


def test_closing_a_memory_ends_its_worker(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "store")
    worker = memory.worker(homes)
    worker.start(idle=0.01)
    memory.close()
    worker.stop()
    assert worker.problems == {}


def restate(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
    return [FactDraft(f"{turn.text} was stated.", [turn.id]) for turn in turns if turn.new]


RUN = """if True:
    import sys
    from agentkit_memory import FactDraft, Memory
    where, index = sys.argv[1:]
    def restate(turns, known):
        return [FactDraft(f"{turn.text} was stated.", [turn.id]) for turn in turns if turn.new]
    with Memory(where, index=index) as memory:
        memory.worker(restate).drain()
"""


@pytest.mark.untraced
@pytest.mark.parametrize("database", thinned(["sqlite", "postgresql"]))
def test_a_kill_between_the_model_and_the_write_loses_and_repeats_no_fact(
    database: str, tmp_path: Path, request: pytest.FixtureRequest, programs: Forks
) -> None:
    where = str(tmp_path / "store") if database == "sqlite" else request.getfixturevalue("fresh_postgres")
    places = [str(where), str(tmp_path / "index")]
    with Memory(where, index=places[1]) as memory:
        for number in range(12):
            say(memory, f"{'abc'[number % 3]}{number}", session=f"s{number % 3}")
    kills, counts = 0, unless_fresh(1, 2)
    names = [name for name in FAILPOINTS if name.startswith("facts.")]
    for spec in [f"{name}:{count}" for name in names for count in range(1, counts + 1)]:
        process = programs.start("-c", RUN, *places, **{VARIABLE: spec})
        code, errors = process.wait(), process.errors()
        kills += code < 0
        assert code < 0 or not errors, errors
        with Memory(where, index=places[1]) as memory:
            free_leases(memory)
            say(memory, f"a-{spec}", f"a-{spec} again", session="s0")  # more turns are always unread
            found = [fact.text for fact in memory.facts.list(superseded=True, limit=1000)]
            assert len(found) == len(set(found))
    assert kills >= 3 * counts
    with Memory(where, index=places[1]) as memory:
        memory.worker(restate).drain()
        found = sorted(fact.text for fact in memory.facts.list(superseded=True, limit=1000))
        texts = [message.text for name in ("s0", "s1", "s2") for message in memory.session(name).conversation]
        assert found == sorted(f"{text} was stated." for text in texts)
        assert memory.admin.verify().ok


def free_leases(memory: Memory) -> None:
    """Expire the leases of killed processes."""
    StoreProbe(memory).execute("UPDATE vector_state SET leased_until = 0 WHERE leased_by IS NOT NULL")
