"""Facts: intervals of validity, replacements, and deletion with their sources."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import InvalidArgument, Memory, NotFound, Scope
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.conversations.redaction import scrub_logs
from agentkit_memory.store.outbox import enqueue
from tests.raising import raises
from tests.waiting import LONG


def recallable(memory: Memory) -> list[str]:
    return sorted(fact.text for fact in memory.recall("Ann, always at noon", limit=100).knowledge)


def points(memory: Memory) -> int:
    memory.worker().drain()
    return StoreProbe(memory).index.count()


def test_a_fact_is_read_as_it_was_added(either: Memory) -> None:
    StoreProbe(either).set_clock(lambda: 1000.0)
    fact = either.facts.add("Ann likes tea.", valid_from=1.0, valid_to=5000.0, metadata={"by": ["me"]})
    assert (fact.text, fact.number, fact.valid_from, fact.valid_to) == ("Ann likes tea.", 1, 1.0, 5000.0)
    assert either.facts.get(fact.id) == fact and fact.metadata == {"by": ["me"]}
    assert either.facts.list() == (fact,) and recallable(either) == ["Ann likes tea."]
    assert points(either) == 1


def test_a_fact_is_recalled_while_it_is_valid(either: Memory) -> None:
    now = [1000.0]
    StoreProbe(either).set_clock(lambda: now[0])
    either.facts.add("noon", valid_from=500.0, valid_to=1500.0)
    either.facts.add("always")
    for now[0], texts in ((499.0, ["always"]), (500.0, ["always", "noon"]), (1499.0, ["always", "noon"])):
        assert recallable(either) == texts
    now[0] = 1500.0
    assert recallable(either) == ["always"]


def test_a_replaced_fact_can_be_read_but_is_not_recalled(either: Memory) -> None:
    old = either.facts.add("Ann lives in Rome.")
    new = either.facts.add("Ann lives in Oslo.", supersedes=old.id)
    assert recallable(either) == ["Ann lives in Oslo."] and points(either) == 1
    kept = either.facts.get(old.id)
    assert kept is not None and (kept.text, kept.superseded_by) == ("Ann lives in Rome.", new.id)
    assert either.facts.list() == (new,) and either.facts.list(superseded=True) == (kept, new)
    third = either.facts.add("Ann lives in Lima.", supersedes=[old.id, new.id])
    assert [each.superseded_by for each in either.facts.list(superseded=True)] == [new.id, third.id, None]


def test_a_fact_that_is_added_again_is_valid_again(either: Memory) -> None:
    tea = either.facts.add("Ann likes tea.")
    coffee = either.facts.add("Ann likes coffee.", supersedes=tea.id)
    again = either.facts.add("Ann likes tea.", supersedes=coffee.id, valid_from=3.0)
    assert (again.id, again.number, again.valid_from, again.superseded_by) == (tea.id, 1, 3.0, None)
    assert recallable(either) == ["Ann likes tea."] and points(either) == 1
    assert either.facts.add("Ann likes tea.", valid_from=3.0, supersedes=again.id) == again
    by_bo = either.facts.add("Ann likes tea.", valid_from=3.0, metadata={"by": ("Bo",)})
    assert (by_bo.id, by_bo.metadata) == (tea.id, {"by": ["Bo"]})
    assert either.facts.add("Ann likes tea.", valid_from=3.0) == by_bo
    assert either.facts.add("Ann likes tea.", valid_from=3.0, metadata={"by": ["Bo"]}) == by_bo


def test_an_equal_fact_is_not_added_again_even_after_its_replacement(either: Memory) -> None:
    either.session("s").append(Message("user", "I like tea"))
    either.worker().drain()
    (turn,) = StoreProbe(either).values("SELECT id FROM items")
    tea = either.facts.add("Ann likes tea.", sources=[turn])
    assert tea.sources == (turn,)
    coffee = either.facts.add("Ann likes coffee.", supersedes=tea.id)
    assert either.facts.add("Ann likes tea.", sources=turn, supersedes=coffee.id).superseded_by == coffee.id
    assert recallable(either) == ["Ann likes coffee."]
    assert either.facts.add("Ann likes tea.").id != tea.id  # without a speaker it is a different fact


def test_a_fact_is_removed_with_its_sources(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("Zebras are striped.")
    either.ingest(docs)
    (chunk,) = StoreProbe(either).values("SELECT id FROM items")
    first = either.facts.add("Zebras have stripes.", sources=chunk)
    second = either.facts.add("Stripes can be seen.", sources=[first.id])
    (docs / "a.md").write_text("Violins are wooden.")
    either.ingest(docs)
    assert either.facts.get(first.id) is None is either.facts.get(second.id)
    assert points(either) == 1


def test_a_fact_with_a_fact_as_source_expires_with_the_original_source(either: Memory) -> None:
    either.session("talk", expires_at=1e12).append(Message("user", "Ada has a zebra"))
    (turn,) = either.recall("zebra")
    first = either.facts.add("Ada keeps animals.", sources=str(turn.id))
    second = either.facts.add("Ada needs hay.", sources=first.id)
    third = either.facts.add("Ada needs a barn.", sources=[second.id])
    assert third.sources == tuple(sorted((str(turn.id), first.id, second.id)))
    assert len(either.recall("Ada").knowledge) == 3
    either.session("talk", expires_at=1.0)
    assert either.recall("Ada").knowledge == ()
    either.admin.expire()
    assert either.facts.list() == ()


@pytest.mark.parametrize("wrong", [None, 5, b"x", {"x": 1}, [5], [None]])
@pytest.mark.parametrize("name", ["sources", "supersedes"])
def test_an_id_of_another_type_is_refused(memory: Memory, name: str, wrong: Any) -> None:
    with raises(InvalidArgument, name=name):
        memory.facts.add("x", **{name: wrong})
    assert memory.facts.list() == ()


def test_facts_are_listed_by_pages_in_the_order_they_were_added(either: Memory) -> None:
    times = iter(range(1000, 0, -1))
    StoreProbe(either).set_clock(lambda: next(times))
    added = [either.facts.add(f"fact {number}") for number in range(7)]
    assert either.facts.list(limit=3) == tuple(added[:3])
    assert either.facts.list(after=added[2].number, limit=3) == tuple(added[3:6])
    assert either.facts.list(after=7) == ()
    for limit in (0, True, "all"):
        with raises(InvalidArgument, name="limit"):
            either.facts.list(limit=limit)  # type: ignore[arg-type]


def test_a_fact_is_removed_from_each_table_and_the_index(either: Memory) -> None:
    fact = either.facts.add("Ann likes tea.")
    assert points(either) == 1
    assert either.facts.remove(fact.id) and not either.facts.remove(fact.id)
    assert either.facts.get(fact.id) is None and points(either) == 0 and either.admin.verify().orphans == 0
    assert either.facts.add("Ann likes tea.").id == fact.id and points(either) == 1


def test_facts_of_another_scope_are_invisible(either: Memory) -> None:
    ada, bob = either.within(Scope("local", user="ada")), either.within(Scope("local", user="bob"))
    shared, mine = either.facts.add("shared"), ada.facts.add("ada's")
    assert ada.facts.get(shared.id) == shared and bob.facts.get(mine.id) is None is either.facts.get(mine.id)
    assert either.within("other").facts.get(shared.id) is None
    assert [each.text for each in ada.facts.list()] == ["ada's"]
    assert not bob.facts.remove(mine.id) and not ada.facts.remove(shared.id)
    with raises(NotFound, value="fact 252b8a45-b788-5fad-92be-cab013c8751d, item 252b8a45-b788-5fad-92be-cab013c8751d"):
        bob.facts.add("stolen", supersedes=mine.id, sources=mine.id)
    assert bob.facts.list() == () and ada.facts.get(mine.id) == mine
    assert ada.facts.add("seen", sources=shared.id).sources == (shared.id,)  # a readable fact can be a source


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"text": ""}, "text"),
        ({"text": " \n"}, "text"),
        ({"text": 7}, "text"),
        ({"text": "a\0"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": "a", "valid_from": math.nan}, "valid_from"),
        ({"text": "a", "valid_from": 2.0, "valid_to": 1.0}, "valid_to"),
        ({"text": "a", "valid_to": "soon", "metadata": {"x": object()}}, "valid_to, metadata"),
    ],
)
def test_an_invalid_fact_is_refused_with_all_problems(memory: Memory, arguments: dict[str, object], name: str) -> None:
    with raises(InvalidArgument, name=name):
        memory.facts.add(**arguments)  # type: ignore[arg-type]
    assert memory.facts.list() == ()


def test_ids_that_a_database_cannot_store_are_unknown_ids(either: Memory) -> None:
    assert either.facts.get("a\0b") is None
    assert not either.facts.remove("a\ud800b")
    with raises(NotFound, value="fact a�b"):
        either.facts.add("Bo has a boat.", supersedes="a\0b")
    with raises(NotFound, value="item a�b"):
        either.facts.add("Bo has a boat.", sources=["a\0b"])
    assert either.facts.list() == ()


def test_threads_that_add_facts_number_them_without_gaps(either: Memory) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: either.facts.add(f"fact {number % 20}"), range(40)))
    assert sorted(each.number for each in either.facts.list()) == list(range(1, 21))


def test_the_last_of_two_concurrent_replacements_of_a_fact_is_valid(either: Memory) -> None:
    old = either.facts.add("Ann lives in Oslo.")
    gate = threading.Barrier(2)

    def move(city: str) -> str:
        gate.wait()
        return either.facts.add(f"Ann lives in {city}.", supersedes=old.id).id

    with ThreadPoolExecutor(2) as writers:
        moved = set(writers.map(move, ("Rome", "Bonn")))
    (current,) = either.facts.list()
    (other,) = moved - {current.id}
    lost = either.facts.get(other)
    assert lost is not None and lost.superseded_by == current.id
    assert [fact.text for fact in either.recall("Where does Ann live?").knowledge] == [current.text]


@pytest.mark.parametrize("replacement", ["[redacted]", "something else"])
@pytest.mark.parametrize("first", ["the fact", "the redaction"])
def test_a_fact_is_removed_if_its_source_is_redacted_concurrently(
    either: Memory, monkeypatch: pytest.MonkeyPatch, first: str, replacement: str
) -> None:
    session = either.session("s")
    session.append(Message("user", "my pin is 4929"))
    (turn,) = either.recall("pin")
    halfway = threading.Event()

    def slow(act: Callable[..., None]) -> Callable[..., None]:
        def acting(*given: object, **named: object) -> None:
            act(*given, **named)
            halfway.set()
            time.sleep(0.3)  # the other thread begins, and must wait

        return acting

    def take() -> None:
        with suppress(NotFound):  # the turn is deleted or has another text
            either.facts.add("The pin is 4929.", sources=str(turn.id))

    def redact() -> None:
        session.redact(1, replacement)

    if first == "the fact":
        monkeypatch.setattr("agentkit_memory.facts.fact_rows.enqueue", slow(enqueue))
    else:
        monkeypatch.setattr("agentkit_memory.conversations.redaction.scrub_logs", slow(scrub_logs))
    one, other = (take, redact) if first == "the fact" else (redact, take)
    thread = threading.Thread(target=one)
    thread.start()
    assert halfway.wait(LONG)
    other()
    thread.join()
    if first == "the fact" or replacement == "[redacted]":
        assert either.facts.list() == ()
    assert either.admin.verify().ok


def test_a_fact_is_updated_by_its_id(either: Memory) -> None:
    fact = either.facts.add("Ada lives in Rome.", metadata={"by": "Bo"}, valid_from=5.0)
    either.worker().drain()
    changed = either.facts.update(fact.id, "Ada lives in Oslo.")
    assert (changed.id, changed.text, changed.metadata, changed.valid_from) == (
        fact.id,
        "Ada lives in Oslo.",
        {"by": "Bo"},
        5.0,
    )
    for _ in range(2):
        assert [found.text for found in either.recall("Where does Ada live?").knowledge] == ["Ada lives in Oslo."]
        assert either.recall("Rome").knowledge == ()
        either.worker().drain()
    assert either.admin.verify().ok
    ended = either.facts.update(fact.id, valid_from=None, valid_to=10.0, metadata={})
    assert (ended.text, ended.valid_from, ended.valid_to, ended.metadata) == ("Ada lives in Oslo.", None, 10.0, {})
    assert either.recall("Ada").knowledge == ()
    again = either.facts.add("Ada lives in Rome.")
    assert again.id != fact.id and again.text == "Ada lives in Rome."
    assert either.facts.add("Ada lives in Rome.") == again


def test_an_invalid_update_changes_nothing(memory: Memory) -> None:
    fact = memory.facts.add("Ada lives in Rome.", valid_from=5.0)
    with raises(NotFound, value="d39274be-03ee-59e7-947b-7d3e6d6ee69d"):
        memory.within("other").facts.update(fact.id, "Ada lives in Oslo.")
    with raises(InvalidArgument, name="valid_to"):
        memory.facts.update(fact.id, "Ada lives in Oslo.", valid_to=1.0)
    with raises(InvalidArgument, name="text"):
        memory.facts.update(fact.id, " ")
    with raises(InvalidArgument, name="text, metadata"):
        memory.facts.update(fact.id, "a\0", metadata={"a": object()})
    assert memory.facts.get(fact.id) == fact


def test_facts_are_searched_among_many_other_items(memory: Memory) -> None:
    for place in ("Rome", "Oslo"):
        memory.facts.add(f"Ada lived in {place}.")
    memory.facts.add("Bo likes tea.")
    memory.session("s").append(*[Message("user", f"Where did Ada live in {number}?") for number in range(100)])
    memory.worker().drain()
    assert {fact.text for fact in memory.facts.search("Where did Ada live?")} == {
        "Ada lived in Rome.",
        "Ada lived in Oslo.",
    }
    assert len(memory.facts.search("Ada", limit=1)) == 1
    assert memory.within("other").facts.search("Ada") == ()


def test_a_fact_has_a_time_of_writing_and_a_time_of_validity(home: Path) -> None:
    now = [100.0]
    with Memory(home, clock=lambda: now[0]) as memory:
        fact = memory.facts.add("Ada lives in Rome.", valid_from=7.0)
        assert (fact.written_at, fact.valid_from) == (100.0, 7.0)
        now[0] = 200.0
        assert memory.facts.update(fact.id, metadata={"sure": True}).written_at == 200.0
        assert memory.recall("Rome").knowledge[0].metadata["written_at"] == 200.0
