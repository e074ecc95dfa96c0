"""Words that mean the same meet; the weights are BM25's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit_memory.terms import analysis
from agentkit_memory.terms.analysis import count_terms
from agentkit_memory.terms.bm25_vectors import document_vector, held_terms, query_vector
from agentkit_memory.terms.stemmer import stem


@pytest.mark.parametrize(
    "family",
    [
        "connect connects connected connecting connection connections",
        "operate operator operators operating operation operational",
        "organize organizes organized organizing organization organisation organise",
        "city cities",
        "happy happily happiness",
        "cache caches cached caching",
        "run runs running",
        "box boxes",
        "class classes",
        "use uses used using",
        "reply replies replied replying",
        "install installs installed installing installation",
        "create creates created creating creation creator",
        "format formats formatted formatting",
        "active activity",
        "govern government governments",
        "hope hoped hoping",
        "careful carefully",
        "add added adding",
    ],
)
def test_forms_of_a_word_have_one_stem(family: str) -> None:
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize("pair", ["bus busy", "sing single", "red reed", "need needle", "is island", "ring ran"])
def test_different_words_keep_different_stems(pair: str) -> None:
    one, other = pair.split()
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café CAFÉ", "cafe cafe"),
        ("cafe\u0301", "café"),
        ("ＦＵＬＬ width", "full width"),
        ("STRASSE", "straße"),
        ("busy_timeout=5", "busy timeout 5"),
        ("memory.db", "memory db"),
        ("the WAL of it", "wal"),
        ("한국어 문서", "문서 한국어"),
    ],
)
def test_spellings_of_a_text_have_the_same_terms(one: str, other: str) -> None:
    assert count_terms(one) == count_terms(other)


@given(st.text(st.characters(max_codepoint=127)))
def test_a_text_in_ascii_has_the_same_terms_beside_another_script(text: str) -> None:
    (other,) = count_terms("中")
    assert count_terms(f"{text} 中") == count_terms(text) | {other: 1}


def test_terms_do_not_depend_on_which_words_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "zebra okapi gnu lynx the ibex tapir zebra gnu stoat civet " + "f00" * 40
    known = count_terms(text)
    monkeypatch.setattr(analysis, "_MAX_CACHED", 3)
    numbers = analysis._Numbers()
    monkeypatch.setattr(analysis, "_known", numbers.__getitem__)
    assert count_terms(text) == known
    assert 0 < len(numbers) <= 3 and "f00" * 40 not in numbers


def test_scripts_without_spaces_are_found_by_their_parts() -> None:
    question, text = set(count_terms("日本語")), set(count_terms("これは日本語の文書です。"))
    assert question and question <= text
    assert set(count_terms("中")) and set(count_terms("ภาษาไทย"))


def test_vowel_signs_do_not_break_words() -> None:
    assert len(count_terms("हिन्दी भाषा")) == 2


def test_a_question_of_stop_words_asks_for_nothing() -> None:
    assert query_vector("who are you").indices == []
    assert query_vector("").indices == []


@given(st.text())
def test_any_text_has_ascending_32_bit_terms_and_positive_weights(text: str) -> None:
    vector = document_vector(text)
    assert vector.indices == sorted(set(vector.indices))
    assert all(0 <= term < 2**32 for term in vector.indices)
    assert all(math.isfinite(weight) and weight > 0 for weight in vector.values)
    assert set(query_vector(text).indices) == set(vector.indices)


def test_repetition_counts_less_each_time_and_length_counts_against() -> None:
    def weight(text: str) -> float:
        vector = document_vector(text)
        return vector.values[vector.indices.index(next(iter(count_terms("zebra"))))]

    once, twice, thrice = (weight(" ".join(["zebra"] * times + ["filler"] * (10 - times))) for times in (1, 2, 3))
    assert 0 < thrice - twice < twice - once
    assert weight("zebra " + "filler " * 500) < once


@given(st.text("abc the é中."), st.text("abc the é中."))
def test_what_a_text_holds_of_a_question_weighs_as_it_does_in_its_vector(text: str, question: str) -> None:
    vector, asked = document_vector(text), query_vector(question)
    wanted = dict(zip(asked.indices, asked.values, strict=True))
    weights = dict(zip(vector.indices, vector.values, strict=True))
    assert held_terms(text, wanted) == {
        term: times * weights[term] for term, times in wanted.items() if term in weights
    }
