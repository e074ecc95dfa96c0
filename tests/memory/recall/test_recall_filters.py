"""Filters of recall by kind, source, time and metadata; errors of invalid filters; rerankers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import InvalidArgument, Memory, RecallFilter
from agentkit.memory.recall import POLICIES
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.recall.candidates import ScoredItem
from tests.cases import for_cases
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises
from tests.waiting import LONG, until


@pytest.fixture
def filled(either: Memory) -> Memory:
    for year in (2022, 2023, 2024):
        about: dict[str, Any] = {
            "year": year,
            "tag": ["a", "b"][year % 2],
            "draft": year == 2024,
            "a.b'c\"": year,
            "all": [year, "b", [year]],
        }
        either.documents.add(f"The zebra of {year} is striped.", source=f"zoo/{year}", metadata=about)
    either.documents.add("The zebra of nowhere is plain.", source="plain")
    either.session("walk").append(Message("user", "I saw a zebra."), said_at=1_000_000.0)
    either.session("ride").append(Message("user", "I rode a zebra once."), said_at=2_000_000.0)
    either.facts.add("The zebra likes hay.")
    return either


def recalled_texts(memory: Memory, **conditions: Any) -> set[str]:
    recall = memory.recall("zebra", limit=20, where=RecallFilter(**conditions))
    assert recall.degraded == ()
    return {each.text for each in (*recall, *recall.knowledge)}


def years(*which: int) -> set[str]:
    return {f"The zebra of {year} is striped." for year in which}


@pytest.mark.parametrize("indexed", [False, True])
def test_filters_by_kinds_sources_and_times(filled: Memory, indexed: bool) -> None:
    if indexed:
        filled.worker().drain()
    said = {"I saw a zebra.", "I rode a zebra once."}
    assert len(recalled_texts(filled)) == 7
    assert recalled_texts(filled, kinds=["turn"]) == said
    assert recalled_texts(filled, kinds=("fact",)) == {"The zebra likes hay."}
    assert recalled_texts(filled, kinds={"chunk"}, sources=["zoo/2022", "plain"]) == years(2022) | {
        "The zebra of nowhere is plain."
    }
    assert recalled_texts(filled, sources=["walk"]) == {"I saw a zebra."}
    assert recalled_texts(filled, kinds=[]) == recalled_texts(filled, sources=[]) == set()
    assert recalled_texts(filled, until=1_500_000.0) == {"I saw a zebra."}
    assert recalled_texts(filled, since=1_000_000.0, until=datetime.fromtimestamp(2_000_000.5, UTC)) == said
    assert recalled_texts(filled, since=datetime(2020, 1, 1), kinds=["fact"]) == {"The zebra likes hay."}


@for_cases(
    ("metadata", "wanted"),
    [
        ({"year": 2023}, years(2023)),
        ({"year": 2023.0}, years(2023)),
        ({"year": [2022, 2024, "2023"]}, years(2022, 2024)),
        ({"year": {"in": (2022, 2023)}, "tag": "b"}, years(2023)),
        ({"year": {"gte": 2023}}, years(2023, 2024)),
        ({"year": {"gt": 2022, "lt": 2024}}, years(2023)),
        ({"tag": {"gt": "a"}}, years(2023)),
        ({"tag": {"gt": 1}}, set()),
        ({"draft": True}, years(2024)),
        ({"draft": 1}, set()),
        ({"year": {"exists": True}}, years(2022, 2023, 2024)),
        ({"year": {"exists": False}, "a.b'c\"": {"exists": False}}, None),
        ({"a.b'c\"": 2022}, years(2022)),
        ({"unknown": None}, set()),
        ({"all": 2022}, years(2022)),
        ({"all": "b"}, years(2022, 2023, 2024)),
        ({"all": "c"}, set()),
        ({"all": True}, set()),
        ({"all": ["c", 2023.0]}, years(2023)),
        ({"all": {"in": ["c"]}}, set()),
        ({"all": {"eq": [2024, "b", [2024]]}}, years(2024)),
        ({"all": {"eq": [2024]}}, years(2024)),
        ({"all": {"eq": [2024, "b"]}}, set()),
        ({"all": {"gt": 2022, "lt": 2024}}, years(2023)),
        ({"all": {"exists": True, "gte": 2024}}, years(2024)),
        ({"all": {"exists": False}, "year": 2022}, set()),
    ],
)
def test_filters_by_metadata(filled: Memory, metadata: Mapping[str, Any], wanted: set[str] | None) -> None:
    rest = {"The zebra of nowhere is plain.", "I saw a zebra.", "I rode a zebra once.", "The zebra likes hay."}
    assert recalled_texts(filled, metadata=metadata) == (rest if wanted is None else wanted)


def test_a_rare_item_is_found_among_many_better_matches(memory: Memory) -> None:
    session = memory.session("s")
    session.append(*[Message("user", f"zebra zebra zebra {number}") for number in range(2500)])
    rare = " ".join(f"word{number}" for number in range(100))
    memory.documents.add(f"The zebra is far down. {rare}", source="rare", metadata={"rare": True})
    memory.worker().drain()
    for conditions in ({"metadata": {"rare": True}}, {"kinds": ["chunk"]}, {"sources": ["rare"]}):
        assert [text[:22] for text in recalled_texts(memory, **conditions)] == ["The zebra is far down."]


def test_all_rare_items_are_found_with_their_scores(either: Memory) -> None:
    """Hundreds of messages match the question better than all items that the filter allows."""
    for name in ("s", "t", "u"):
        either.session(name).append(*[Message("user", "zebra " * (1 + number % 7)) for number in range(150)])
    quiet = either.session("quiet")
    quiet.append(*[Message("user", f"A zebra, and {number} more words about it.") for number in range(9)])
    facts = {f"The zebra number {number} of the herd has some stripes." for number in range(7)}
    for fact in facts:
        either.facts.add(fact)
    either.worker().drain()
    assert {fact.text for fact in either.facts.search("zebra", limit=20)} == facts
    said = {message.content for message in quiet.conversation}
    assert recalled_texts(either, sources=["quiet"]) == said
    both = RecallFilter(sources=["quiet"], kinds=["turn"])
    recall = either.recall("zebra", limit=3, where=both)
    assert len(recall) == 3 and {each.text for each in recall} <= said and recall.degraded == ()
    quiet.append(Message("user", "One more zebra."))  # the index does not contain it yet
    assert {"One more zebra."} < {each.text for each in either.recall("zebra", limit=20, where=both)}


def test_a_round_that_fetches_more_vectors_does_not_search_the_terms_again(
    home: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit_memory.recall.recall_steps.MAX_ROWS", 100)
    lines = [json.dumps({"text": f"zebra stripes {number}", "number": number}) for number in range(500)]
    (docs / "a.jsonl").write_text("\n".join(lines))
    with Memory(home, embedder=Words()) as memory:
        memory.ingest(docs)
        memory.worker().drain()
        with StoreProbe(memory).statements() as statements:
            recall = memory.recall("zebra stripes", where=RecallFilter(metadata={"number": 3}))
        assert [each.text for each in recall] == ["zebra stripes 3"]
        assert len([each for each in statements if "ORDER BY items.created_at DESC" in each]) == 1


@for_cases(
    ("conditions", "problems"),
    [
        (
            {"kinds": ["chunk", "picture"]},
            ["kinds: expected a list of the kinds 'chunk' for documents, 'image', 'turn'"],
        ),
        ({"kinds": "turn", "sources": "zoo"}, ["kinds: expected", "sources: expected a list of texts"]),
        ({"since": "today", "until": float("nan")}, ["since: expected a datetime", "until: expected a datetime"]),
        ({"since": 5, "until": 5}, ["expected a time after `since`"]),
        ({"metadata": {"a": {"like": "x"}, "b": {"gte": None}}}, ["unknown operator 'like'", "['b']['gte']: expected"]),
        ({"metadata": {"a": {}}}, ["expected one of the operators"]),
        ({"metadata": {"a": []}}, ["at least one"]),
        ({"metadata": {"a": {"in": "abc"}}}, ["expected a list of values"]),
        ({"metadata": {"a": {"exists": 1}}}, ["expected True or False"]),
        ({"metadata": {"a": float("inf")}}, ["expected JSON values"]),
        ({"metadata": {"a": object}}, ["expected JSON values"]),
        ({"metadata": {"a": {"gt": 5, "lt": 3}}}, ["nothing is between 5 and 3"]),
        ({"metadata": {"a": {"gt": 5, "lt": "x"}}}, ["nothing is between"]),
        ({"metadata": {3: 1}}, ["expected a name"]),
        ({"metadata": [1]}, ["expected a mapping"]),
    ],
)
def test_the_error_of_an_invalid_filter_names_each_problem(conditions: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(InvalidArgument) as raised:
        RecallFilter(**conditions)
    assert all(problem in str(raised.value) for problem in problems), raised.value


class Longest:
    """Reranker with the longest text first."""

    name = "longest"

    def __init__(self) -> None:
        self.given: list[str] = []

    def rerank(self, question: str, candidates: Sequence[ScoredItem]) -> Sequence[float]:
        self.given = [each.item.text for each in candidates]
        return [len(text) for text in self.given]


def test_a_reranker_gets_the_order_and_changes_it(memory: Memory) -> None:
    lines = ["zebra zebra", "a zebra of stripes", "a zebra is a horse with many stripes"]
    memory.session("s").append(*[Message("user", line) for line in lines])
    reranker = Longest()
    policy = replace(POLICIES["default"], reranker=reranker)
    before = [each.text for each in memory.recall("zebra", limit=3)]
    recall = memory.recall("zebra", limit=2, policy=policy)
    assert reranker.given == before
    assert [each.text for each in recall] == sorted(lines, key=len, reverse=True)[:2]
    assert [row.used for row in recall.explain()] == [True, True, False]
    assert recall.explain()[0].parts["longest"] == len(lines[2])
    assert memory.recall_logs()[-1].policy["reranker"] == "longest"


class Broken(Longest):
    def __init__(self, act: Any, seconds: float = LONG) -> None:
        self.act, self.rerank_timeout = act, seconds

    def rerank(self, question: str, candidates: Sequence[ScoredItem]) -> Sequence[float]:
        returned: Sequence[float] = self.act()
        return returned


def test_a_reranker_that_fails_or_hangs_does_not_change_the_order(memory: Memory) -> None:
    memory.session("s").append(Message("user", "a zebra"), Message("user", "a zebra of stripes"))
    memory.worker().drain()  # scores of waiting items differ in the last digit
    before = memory.recall("zebra")
    fails, hangs = Broken(lambda: 1 / 0), Broken(lambda: time.sleep(30), 0.05)
    for reranker, problem in ((fails, "ZeroDivisionError"), (hangs, "within 0.05 seconds")):
        recall = memory.recall("zebra", policy=replace(POLICIES["default"], reranker=reranker))
        assert recall == before and problem in recall.degraded[-1]


def test_a_reranker_that_hangs_is_not_called_again_before_its_answer(memory: Memory) -> None:
    memory.session("s").append(Message("user", "a zebra"), Message("user", "a zebra of stripes"))
    go_on, asked = threading.Event(), list[int]()

    def hang() -> list[float]:
        asked.append(1)
        assert go_on.wait(LONG)
        return [1.0, 2.0]

    reranker = Broken(hang, 0.05)
    policy = replace(POLICIES["default"], reranker=reranker)
    for _ in range(3):
        assert "did not return within 0.05 seconds" in memory.recall("zebra", policy=policy).degraded[-1]
    assert len(asked) == 1
    go_on.set()
    reranker.rerank_timeout = LONG
    until(lambda: memory.recall("zebra", policy=policy).degraded == ())
    assert memory.recall("zebra", policy=policy).degraded == ()


@pytest.mark.parametrize("returned", [[], [1.0], [float("nan")] * 2, ["a", "b"], [1.0] * 3, [10**400, 1.0]])
def test_an_invalid_result_of_a_reranker_is_an_error(memory: Memory, returned: list[Any]) -> None:
    memory.session("s").append(Message("user", "a zebra"), Message("user", "a zebra of stripes"))
    with raises(InvalidArgument, name="longest"):
        memory.recall("zebra", policy=replace(POLICIES["default"], reranker=Broken(lambda: returned)))
    for part in (3, type("Named", (), {"name": "x"})(), type("Nameless", (), {"rerank": print})()):
        with raises(InvalidArgument, name="reranker"):
            replace(POLICIES["default"], reranker=part)


def endless() -> Any:
    one: list[Any] = []
    one.append(one)
    return one


def deep() -> Any:
    one: list[Any] = []
    for _ in range(100_000):
        one = [one]
    return one


@for_cases("make", [endless, deep, lambda: {"eq": {"a": endless()}}])
def test_endlessly_nested_values_are_refused(make: Any) -> None:
    with pytest.raises(InvalidArgument):
        RecallFilter(metadata={"x": make()})
