"""Scores, selection and explanation of recalled items."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import InvalidArgument, Memory
from agentkit.memory.recall import POLICIES, Pool, Question, RecencyScorer
from agentkit.prompts import Message
from agentkit_memory.recall.question import MAX_CHARACTERS
from agentkit_memory.recall.term_weights import term_weights
from agentkit_prompts.tokens.counter import ESTIMATE
from tests.raising import raises

DEFAULT = POLICIES["default"]


def write(docs: Path, *texts: str) -> None:
    for number, said in enumerate(texts):
        (docs / f"{number:02}.md").write_text(said)


def test_each_score_is_the_sum_of_its_parts_and_each_candidate_has_a_reason(memory: Memory, docs: Path) -> None:
    write(docs, "The heron nests.", "A heron eats eels.", "The heron nests!", "Eels are fish, in March too.")
    memory.ingest(docs)
    memory.session("a").append(Message("user", "I saw a heron.", name="Ada"), Message("user", "Eels?", name="Bo"))
    recall = memory.recall("When did Ada see the heron eat eels in March?", limit=2)
    rows = recall.explain()
    assert [row.rank for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        assert math.isclose(row.score, sum(row.parts.values()), abs_tol=1e-9)
        assert str(row).startswith(f"{row.rank:>3} {'used' if row.used else '-'}")
    assert [row.id for row in rows if row.used] == [found.id for found in recall]
    reasons = {row.text: row.why for row in rows}
    assert (
        "same text as" in reasons["The heron nests!"]
        or "same text as" in reasons["The heron nests."]
        or any("below the first 2" in why for why in reasons.values())
    )
    assert recall[0].metadata["why"] == rows[0].why
    assert recall[0].score is not None and recall[1].score is not None and 1 > recall[0].score >= recall[1].score > 0


def test_a_recall_is_logged_with_each_candidate(memory: Memory, docs: Path) -> None:
    write(docs, "The heron nests.", "A heron eats eels.")
    memory.ingest(docs)
    memory.facts.add("Herons are birds.")
    recall = memory.recall("heron", limit=1, session=memory.session("s"))
    assert [fact.text for fact in recall.knowledge] == ["Herons are birds."]
    (log,) = memory.recall_logs()
    assert (log.query, log.conversation, log.policy["name"], log.degraded) == ("heron", "s", "default", ())
    assert {row.slot for row in log.candidates if row.used} == {"documents", "knowledge"}
    assert [row.why for row in log.candidates if not row.used] == ["below the first 1"]
    assert log.took_us > 0
    assert len(recall) == 1 and recall[0:1] == (recall[0],) and "1 documents, 0 messages, 1 facts" in repr(recall)


def test_near_duplicates_are_recalled_once_unless_a_number_or_a_not_differs(memory: Memory, docs: Path) -> None:
    long = "The heron stands in the shallow water below the old weir and waits for an eel to pass by at dawn"
    write(docs, long, long.upper() + "!", long + " today", long + " 7", long + " not")
    memory.ingest(docs)
    found = {each.text for each in memory.recall("heron weir", limit=9)}
    assert len(found) == 3
    assert {long + " 7", long + " not"} < found
    keep_all = replace(DEFAULT, collapse=False)
    assert len(memory.recall("heron weir", limit=9, policy=keep_all)) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Alice lent Bob 50 euros", "Bob lent Alice 50 euros"),
        ("Flight 12 leaves at 15", "Flight 15 leaves at 12"),
        (
            "On the morning of the market Alice lent Bob the cart to carry apples home from there",
            "On the morning of the market Bob lent Alice the cart to carry apples home from there again",
        ),
    ],
)
def test_subject_and_object_are_distinguished_by_word_order(memory: Memory, one: str, other: str) -> None:
    for fact in (one, other, f"{one.upper()}!"):
        memory.facts.add(fact)
    told = {fact.text for fact in memory.recall(f"{one}?", limit=10).knowledge}
    assert other in told and len(told) == 2  # case and punctuation are still ignored


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I write C# at work", "I write C++ at work"),
        ("The price is $5 a pound", "The price is €5 a pound"),
        ("The heron weighs x > y", "The heron weighs x < y"),
        ("The pond is at -5 degrees", "The pond is at 5 degrees"),
        ("The sluice runs where x = 1", "The sluice runs where x != 1"),
        ("Bob said 👍 to the plan", "Bob said 👎 to the plan"),
    ],
)
def test_texts_that_differ_by_a_sign_are_different(memory: Memory, one: str, other: str) -> None:
    for fact in (one, other, f"> **{one.upper()}**."):
        memory.facts.add(fact)
    told = {fact.text for fact in memory.recall(f"{one}?", limit=10).knowledge}
    assert other in told and len(told) == 2  # Markdown is still ignored


def test_a_budget_of_tokens_is_kept_and_long_texts_are_skipped(memory: Memory, docs: Path) -> None:
    write(docs, "The heron and the weir. " + " ".join(f"n{n}" for n in range(80)), "heron weir", "heron pond")
    memory.ingest(docs)
    recall = memory.recall("heron weir", policy=replace(DEFAULT, tokens=8))
    assert {found.text for found in recall} == {"heron weir", "heron pond"}
    assert any("tokens" in row.why for row in recall.explain() if not row.used)


def test_a_budget_of_tokens_applies_to_all_used_items_together(memory: Memory, docs: Path) -> None:
    write(docs, "heron weir", "heron pond")
    memory.ingest(docs)
    (size,) = {ESTIMATE.count(text) for text in ("heron weir", "heron pond")}
    recall = memory.recall("heron weir", policy=replace(DEFAULT, tokens=size + 1))
    assert [found.text for found in recall] == ["heron weir"]
    reasons = [row.why.rpartition("; ")[2] for row in recall.explain() if not row.used]
    assert reasons == [f"has {size} tokens, 1 were left"]


def test_diversity_prefers_different_texts(memory: Memory, docs: Path) -> None:
    write(docs, "heron weir eel dawn one", "heron weir eel dawn two", "heron meadow in the long grass")
    memory.ingest(docs)
    assert [each.text[:10] for each in memory.recall("heron weir eel", limit=2)] == ["heron weir"] * 2
    diverse = memory.recall("heron weir eel", limit=2, policy=replace(DEFAULT, diversity=0.6))
    assert "meadow" in diverse[1].text


def test_a_policy_with_recency_prefers_newer_turns(memory: Memory) -> None:
    session = memory.session("a")
    session.append(Message("user", "The heron is at the weir, I saw it.", name="Ada"), said_at=1e9)
    session.append(Message("user", "The heron is at the lake, I saw it.", name="Ada"), said_at=1.2e9)
    recent = replace(DEFAULT, scorers=(*DEFAULT.scorers, RecencyScorer()))
    assert "lake" in memory.recall("Where is the heron?", policy=recent, now=1.2e9)[0].text
    assert memory.recall("Where is the heron?", policy=recent, now=1e8)  # a clock that went backwards


def test_a_custom_scorer_adds_its_part(memory: Memory, docs: Path) -> None:
    @dataclass(frozen=True)
    class Short:
        name: str = "short"

        def scores(self, question: Question, pool: Pool) -> list[float]:
            return [90.0 / len(each.item.text) for each in pool.candidates]

    write(docs, "heron", "heron heron heron heron, and some more words on it")
    memory.ingest(docs)
    mine = replace(DEFAULT, name="mine", scorers=(Short(),))
    recall = memory.recall("heron", policy=mine)
    assert recall[0].text == "heron"
    assert recall.explain()[0].parts["short"] == 90.0 / 5
    assert memory.recall_logs()[-1].policy["scorers"] == {"short": {"name": "short"}}


class Odd:
    """Scorer that returns or raises a given value."""

    name = "odd"

    def __init__(self, outcome: object) -> None:
        self.outcome = outcome

    def scores(self, question: Question, pool: Pool) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("outcome", [None, [], [1.0, 2.0], [math.nan], [math.inf], ["x"], ZeroDivisionError("by zero")])
def test_the_error_names_a_part_with_invalid_scores(memory: Memory, docs: Path, outcome: object) -> None:
    write(docs, "The heron nests.")
    memory.ingest(docs)
    with raises(InvalidArgument, path="RecallPolicy 'default': 'odd'"):
        memory.recall("heron", policy=replace(DEFAULT, scorers=(Odd(outcome),)))
    with raises(InvalidArgument, path="RecallPolicy 'default': 'bm25'"):
        memory.recall("heron", policy=replace(DEFAULT, retrievers=(OddRetriever(outcome),)))


class OddRetriever(Odd):
    name = "bm25"


def test_the_weight_of_each_term_is_computed_from_the_scores() -> None:
    rng = random.Random(7)
    weights = {term: rng.uniform(0.1, 8) for term in range(6)}
    held = [{term: rng.uniform(0.3, 2) for term in rng.sample(range(6), 3)} for _ in range(40)]
    scores = [sum(weights[term] * value for term, value in terms.items()) for terms in held]
    found = term_weights(scores, held)
    assert {term: pytest.approx(weight, rel=0.05) for term, weight in weights.items()} == found
    assert term_weights([], []) == {}
    always_together = term_weights([4.0, 8.0], [{1: 1.0, 2: 1.0}, {1: 2.0, 2: 2.0}])
    assert always_together[1] + always_together[2] == pytest.approx(4.0)
    assert min(term_weights([1.0, 0.0], [{1: 1.0}, {1: 1.0, 2: 1.0}]).values()) >= 0.0


@pytest.mark.parametrize("question", ["", "   ", "?!", "who are you", "\0\ud800", "'; DROP TABLE items; --", "%s{{x}}"])
def test_empty_questions_and_unusual_characters_are_accepted(memory: Memory, docs: Path, question: str) -> None:
    write(docs, "zebra")
    memory.ingest(docs)
    assert memory.recall(question) == ()
    assert memory.recall(question + " zebra")[0].text == "zebra"


def test_a_question_of_a_megabyte_is_searched_by_its_start_and_its_end(memory: Memory, docs: Path) -> None:
    write(docs, "zebra", "giraffe", "okapi")
    memory.ingest(docs)
    pasted = "word " * 100_000
    recall = memory.recall(f"zebra {pasted} okapi {pasted} giraffe")
    assert {found.text for found in recall} == {"zebra", "giraffe"}
    assert f"first and last {MAX_CHARACTERS // 2} characters" in recall.degraded[0]
