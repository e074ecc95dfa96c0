"""Statements equal to the question, copies of a text, and messages too long to be shown completely."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkit.memory import Memory
from agentkit.prompts import Message
from agentkit_memory.conversations.turns import MAX_SEARCHED
from tests.memory.embedders.word_embedder import Words

LONG = "The harvest was late, and nobody knew why it was so. " * 4000


def texts(memory: Memory, question: str, **options: object) -> list[str]:
    return [found.text for found in memory.recall(question, **options)]  # type: ignore[arg-type]


def say(memory: Memory, *lines: str, session: str = "a") -> None:
    memory.session(session).append(*[Message("user", line) for line in lines])


@pytest.mark.parametrize("question", ["Ada lives in Rome", "ada lives in rome.", "Ada lives in Rome?"])
@pytest.mark.parametrize("indexed", [False, True])
def test_a_statement_that_equals_the_question_answers_it(either: Memory, question: str, indexed: bool) -> None:
    say(either, "Ada lives in Rome")
    if indexed:
        either.worker().drain()
    assert texts(either, question) == ["Ada lives in Rome"]


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("Who keeps the key?", "who keeps the key"),
        ("who keeps the key", "Who keeps the key?"),
        ("Wo ist der Schlüssel?", "Wo ist der Schlüssel"),
        ("did Ada keep the key", "Did Ada keep the key?"),
        ("誰が鍵を持っていますか？", "誰が鍵を持っていますか"),
    ],
)
def test_an_earlier_question_is_not_an_answer(memory: Memory, said: str, question: str) -> None:
    say(memory, said)
    assert texts(memory, question) == []


# A statement, and a word that its opposite has in addition.
OPPOSITES = (
    ("Ada may leave the house by the sea alone tonight after the long storm with her old dog", "may", " not"),
    ("Ada darf heute nach dem langen Sturm das alte Haus am Meer allein mit ihrem Hund verlassen", "darf", " nicht"),
    ("Ada peut quitter seule ce soir la vieille maison sur la mer avec son chien de chasse brun", "seule", " jamais"),
    ("Ada puede salir sola esta noche de la vieja casa junto al mar con su perro de caza negro", "Ada", " nunca"),
    ("Ада может сегодня после долгой бури выйти одна из старого дома у моря вместе с собакой", "Ада", " не"),
    ("Ada po długiej burzy może dziś wyjść sama ze starego domu nad morzem razem z psem myśliwskim", "burzy", " nie"),
    ("Ada bu akşam uzun fırtınadan sonra deniz kenarındaki eski evden köpeğiyle çıkmak için hazır", "hazır", " değil"),
    ("暴风雨以后艾达今天晚上可以一个人带着她的老猎狗离开海边的那座旧房子，她的父亲已经同意了这个计划", "晚上", "不"),
    (
        "에이다는 오늘 저녁 긴 폭풍이 지난 뒤에 바닷가의 오래된 집에서 늙은 사냥개와 함께 혼자 나갈 수 있다",
        "혼자",
        " 안",
    ),
)


def test_a_statement_and_its_opposite_are_both_recalled(memory: Memory) -> None:
    for statement, before, word in OPPOSITES:
        opposite = statement.replace(before, f"{before}{word}", 1)
        memory.facts.add(statement)
        memory.facts.add(opposite)
        found = {fact.text for fact in memory.recall(statement, limit=20).knowledge}
        assert {statement, opposite} <= found, statement


@pytest.mark.parametrize("copies", [30, 500])
@pytest.mark.parametrize("embedder", [None, Words()])
def test_copies_do_not_displace_other_answers(home: Path, copies: int, embedder: Words | None) -> None:
    with Memory(home, embedder=embedder) as memory:
        say(memory, *["The zebra is fed at noon."] * copies, session="copies")
        others = [f"The zebra of {name} sleeps in a stable of stone." for name in ("Ada", "Bo", "Cy", "Di", "Ed")]
        say(memory, *others, session="others")
        memory.facts.add("The zebra likes hay.")
        memory.worker().drain()
        recall = memory.recall("When is the zebra fed?", limit=5)
        assert recall[0].text == "The zebra is fed at noon."
        assert len({found.text for found in recall}) == len(recall) == 5
        assert [fact.text for fact in recall.knowledge] == ["The zebra likes hay."]
        assert recall.degraded == ()


class Counting(Words):
    """Embedder that counts the questions."""

    asked = 0

    def embed_query(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += 1
        return self.embed(texts)


def test_a_question_is_embedded_once_for_any_number_of_copies(home: Path) -> None:
    embedder = Counting()
    with Memory(home, embedder=embedder) as memory:
        say(memory, *["The zebra is fed at noon."] * 100, "A zebra is striped.")
        memory.worker().drain()
        before = embedder.asked
        assert len(memory.recall("When is the zebra fed?")) == 2
        assert embedder.asked == before + 1


def test_copies_are_reported_if_they_hide_other_results(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentkit_memory.recall.recall_round.MAX_CANDIDATES", 40)
    say(memory, *["The zebra is fed at noon."] * 100, "A zebra is striped.")
    memory.worker().drain()
    assert "copies" in memory.recall("When is the zebra fed?").degraded[0]


def test_the_matching_part_of_a_long_message_is_recalled(either: Memory) -> None:
    say(either, "Hello there.", f"{LONG}\n\nThe password of the castle is xylophone.\n\n{LONG}", "I see.")
    either.worker().drain()
    recall = either.recall("What is the password of the castle?")
    found = recall.recalled[0]
    assert "xylophone" in found.text and len(found.text.encode()) <= 1200
    start, end = found.metadata["start"], found.metadata["end"]
    assert either.session("a").conversation[1].text[start:end] == found.text  # type: ignore[misc]
    assert (found.position, found.role) == (2, "user")
    assert either.admin.verify().ok


def test_a_part_of_a_long_message_is_searched_before_it_is_indexed(memory: Memory) -> None:
    say(memory, f"The password of the castle is xylophone. {LONG * 3}")
    assert len(LONG) * 3 > MAX_SEARCHED
    recall = memory.recall("What is the password of the castle?")
    assert "xylophone" in recall[0].text and len(recall[0].text.encode()) <= 1200
    assert "new messages are long" in recall.degraded[0]
    memory.worker().drain()
    assert memory.recall("What is the password of the castle?").degraded == ()


def test_no_part_of_a_long_message_remains_after_its_redaction(either: Memory) -> None:
    session = either.session("a")
    session.append(Message("user", f"{LONG} The password is xylophone. {LONG}"))
    either.worker().drain()
    session.redact(1, "A secret about the harvest was here.")
    either.worker().drain()
    assert texts(either, "password xylophone harvest") == ["A secret about the harvest was here."]
    assert either.admin.verify().points == 1


def test_a_short_message_is_recalled_completely(memory: Memory) -> None:
    text = "The heron nests behind the weir. " * 100
    say(memory, text)
    assert texts(memory, "Where does the heron nest?") == [text]
