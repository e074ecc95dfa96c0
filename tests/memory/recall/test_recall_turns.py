"""Recall of turns: neighbours, speakers, dates, and turns that are already visible."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentkit.memory import Memory, Scope, StoredSession
from agentkit.memory.recall import POLICIES
from agentkit.prompts import Message
from tests.memory.embedders.word_embedder import Words

DAY = 86_400.0
START = datetime(2024, 3, 4, 9, tzinfo=UTC).timestamp()


def talk(session: StoredSession, *lines: str, day: float = 0.0) -> None:
    """Append lines `Name: text` in one append, `day` days after the start."""
    for line in lines:
        name, text = line.split(": ", 1)
        session.append(Message("user", text, name=name), said_at=START + day * DAY)


def recalled(memory: Memory, question: str, **options: object) -> list[str]:
    return [found.text for found in memory.recall(question, **options)]  # type: ignore[arg-type]


def test_turns_are_recalled_with_speaker_time_and_position(either: Memory) -> None:
    talk(either.session("walk"), "Ada: The heron nests behind the weir.", "Bo: Lovely.")
    recall = either.recall("Where does the heron nest?")
    found = recall.recalled[0]
    assert recall[0] is found and recall.documents == ()
    assert (found.text, found.role, found.name) == ("The heron nests behind the weir.", "user", "Ada")
    assert (found.session, found.position, found.metadata["branch"]) == ("walk", 1, "main")
    assert found.when == datetime.fromtimestamp(START, UTC)
    assert recall.degraded == ()


def test_an_answer_is_found_by_the_question_it_answers(memory: Memory) -> None:
    filler = [f"{name}: We talked of number {n} for a while." for n in range(30) for name in ("Ada", "Bo")]
    talk(memory.session("a"), *filler)
    talk(memory.session("b"), "Ada: Which instrument do you play?", "Bo: The bassoon, since school.", "Ada: Nice!")
    assert recalled(memory, "Which instrument does Bo play?", limit=1) == ["The bassoon, since school."]
    assert "The bassoon, since school." not in recalled(memory, "Which instrument does Bo play?", policy="bm25")


def test_messages_of_one_role_are_found_among_many_of_another_role(memory: Memory) -> None:
    session = memory.session("a")
    session.append(Message("user", "The warranty ends in May, I think, or somewhat later than that in the summer."))
    for number in range(200):
        session.append(Message("assistant", f"The warranty is {number} years."))
    recall = memory.recall("How long is the warranty?", roles=("user",))
    assert [(found.role, found.position) for found in recall.recalled] == [("user", 1)]
    assert "`roles` allows only user" in str(recall.explain()[0])
    assert {found.role for found in memory.recall("How long is the warranty?").recalled} == {"assistant"}
    assert memory.recall("How long is the warranty?", roles=()) == ()


def test_turns_of_a_speaker_named_in_the_question_are_first(memory: Memory) -> None:
    talk(memory.session("a"), "Ada: My favourite colour is a dark green.", "Bo: My favourite colour is a pale green.")
    assert recalled(memory, "What is Ada's favourite colour?")[0] == "My favourite colour is a dark green."
    assert recalled(memory, "What is BO's favourite colour?")[0] == "My favourite colour is a pale green."


def test_i_means_the_user_and_you_means_the_assistant(memory: Memory) -> None:
    session = memory.session("a")
    session.append(Message("assistant", "The red bicycle is a fine bicycle."), Message("user", "Red bicycle it is."))
    session.append(Message("assistant", "Anything else?"), Message("user", "No, thanks."))
    assert recalled(memory, "What did I say of the red bicycle?")[0] == "Red bicycle it is."
    assert recalled(memory, "What did you say of the red bicycle?")[0] == "The red bicycle is a fine bicycle."


def test_turns_of_the_date_in_the_question_precede_other_turns(memory: Memory) -> None:
    session = memory.session("a")
    for day, place in ((0, "Leeds"), (40, "York"), (80, "Hull")):
        talk(session, f"Ada: The choir sings in {place} this time.", f"Bo: I shall be in {place} too.", day=day)
    for question, place in (
        ("Where did the choir sing in March?", "Leeds"),
        ("Where did the choir sing in April 2024?", "York"),
        ("Where did the choir sing on 23 May 2024?", "Hull"),
    ):
        assert place in recalled(memory, question)[0]
    week_after = datetime.fromtimestamp(START + 47 * DAY, UTC)
    assert "York" in recalled(memory, "Where did the choir sing last week?", now=week_after)[0]
    assert "York" in recalled(memory, "Where did the choir sing last week?", now=week_after.replace(tzinfo=None))[0]


def test_a_question_for_a_time_or_a_number_prefers_texts_with_one(memory: Memory) -> None:
    talk(
        memory.session("a"),
        "Ada: The new kiln is great.",
        "Bo: Good.",
        "Ada: We got the new kiln last Tuesday.",
        "Bo: Hm.",
        "Ada: The new kiln took 3 people to lift.",
    )
    assert recalled(memory, "When did the new kiln come?")[0] == "We got the new kiln last Tuesday."
    assert recalled(memory, "How many carried the new kiln?")[0] == "The new kiln took 3 people to lift."


def test_the_current_conversation_is_not_recalled_but_other_conversations(either: Memory) -> None:
    session, other = either.session("now"), either.session("before")
    talk(other, "Ada: The heron nests behind the weir.")
    talk(session, "Ada: The heron eats eels.", "Bo: And the heron sleeps.")
    assert set(recalled(either, "heron")) == {
        "The heron nests behind the weir.",
        "The heron eats eels.",
        "And the heron sleeps.",
    }
    assert recalled(either, "heron", session=session) == ["The heron nests behind the weir."]
    assert set(recalled(either, "heron", session=session, visible=1)) == {
        "The heron nests behind the weir.",
        "The heron eats eels.",
    }
    assert len(recalled(either, "heron", session=session, visible=0)) == 3


def test_a_fork_hides_shared_turns_but_not_later_turns_of_its_parent(memory: Memory) -> None:
    parent = memory.session("a")
    talk(parent, "Ada: The heron eats eels.")
    fork = parent.fork("b", at=1)
    talk(parent, "Ada: The heron eats frogs.")
    talk(fork, "Ada: The heron eats newts.")
    assert recalled(memory, "heron", session=fork) == ["The heron eats frogs."]
    assert recalled(memory, "heron", session=parent) == ["The heron eats newts."]


def test_a_session_of_another_store_hides_no_turn(memory: Memory, tmp_path: Path) -> None:
    talk(memory.session("a"), "Ada: The heron eats eels.")
    with Memory(tmp_path / "elsewhere") as other:
        session = other.session("a")
        talk(session, "Ada: The heron eats frogs.")
        assert recalled(memory, "heron", session=session) == ["The heron eats eels."]


def test_turns_of_other_users_are_not_neighbours(either: Memory) -> None:
    ada, bob = (either.within(Scope("t", user=name)) for name in ("ada", "bob"))
    talk(ada.session("a"), "Ada: Which instrument do you play?", "Ada: The bassoon.")
    talk(bob.session("a"), "Bob: Which instrument do you play?", "Bob: The oboe.")
    recall = ada.recall("Which instrument is played?", limit=20)
    assert {found.text for found in recall} <= {"Which instrument do you play?", "The bassoon."}
    assert all("oboe" not in row.text for row in recall.explain())


def test_the_question_itself_is_not_an_answer(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("Who keeps the key?")
    memory.ingest(docs)
    memory.session("a").append(Message("user", "who keeps the key"), Message("assistant", "The warden keeps it."))
    recall = memory.recall("Who keeps the key?")
    assert {found.text for found in recall} == {"The warden keeps it.", "Who keeps the key?"}
    (dropped,) = [row for row in recall.explain() if not row.used]
    assert dropped.why.rpartition("; ")[2] == "repeats the question"


def test_a_turn_with_the_words_of_the_question_in_another_order_answers_it(memory: Memory) -> None:
    memory.session("a").append(Message("user", "did Alice pay Bob?"), Message("user", "Bob did pay Alice"))
    assert recalled(memory, "Did Alice pay Bob?") == ["Bob did pay Alice"]


@pytest.mark.parametrize("embedder", [None, Words()])
def test_the_turn_after_a_hit_is_a_candidate(home: Path, embedder: Words | None) -> None:
    with Memory(home, embedder=embedder) as memory:
        talk(memory.session("a"), "Ada: Where does the heron nest?", "Bo: Behind the weir.", "Ada: Lovely.")
        memory.worker().drain()
        recall = memory.recall("heron nest", limit=1, policy=replace(POLICIES["default"], candidates=1))
        assert "neighbour of a hit" in {row.text: row.why for row in recall.explain()}["Behind the weir."]


def test_neighbours_of_long_texts_add_little_to_the_score(memory: Memory) -> None:
    session = memory.session("a")
    session.append(Message("user", "I named my boat Halcyon. Which paint is best for it?"))
    session.append(Message("assistant", "For paint there are many choices. " + "Sand it, prime it, wait a day. " * 40))
    recall = memory.recall("What is the name of my boat?")
    assert recall[0].text.startswith("I named my boat")
    around = {row.text[:3]: row.parts.get("bm25 neighbours", 0.0) for row in recall.explain()}
    assert around.get("For", 0.0) < 0.5


@pytest.mark.parametrize("policy", [*POLICIES])
def test_each_policy_except_dense_answers_without_an_embedder(memory: Memory, policy: str) -> None:
    talk(memory.session("a"), "Ada: The heron eats eels.")
    memory.worker().drain()
    assert recalled(memory, "heron", policy=policy) == ([] if policy == "dense" else ["The heron eats eels."])


def test_the_answer_to_a_question_of_any_script_is_recalled(memory: Memory) -> None:
    talks = {
        "When is the zebra fed": ["When is the zebra fed?", "At noon.", "The keeper walks slowly.", "Rain falls."],
        "斑马什么时候喂食": ["斑马什么时候喂？", "中午十二点。", "饲养员走得很慢。", "今天下雨了。"],
        "متى إطعام الحمار الوحشي": ["متى يطعم الحمار الوحشي؟", "عند الظهر.", "الحارس يمشي ببطء.", "المطر يسقط."],
    }
    for number, (question, (asked, answer, *others)) in enumerate(talks.items()):
        tenant = memory.within(f"t{number}")
        turns = [Message("user", asked), Message("assistant", answer), *[Message("user", text) for text in others]]
        tenant.session("s").append(*turns)
        assert tenant.recall(question, limit=1)[0].text == answer
