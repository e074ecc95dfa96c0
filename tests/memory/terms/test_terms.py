"""Terms of words with the same meaning, and weights of BM25."""

from __future__ import annotations

import math

import pytest
import snowballstemmer
from hypothesis import example, given
from hypothesis import strategies as st

from agentkit_memory.terms import analysis
from agentkit_memory.terms.analysis import count_terms, split_words
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector, weights_of_terms
from agentkit_memory.terms.languages import LANGUAGES, stem
from tests.cases import for_cases


def terms(text: str) -> dict[int, int]:
    return count_terms(text)[0]


@for_cases(
    "family",
    [
        "connect connects connected connecting connection connections",
        "operate operator operators operating operation operational",
        "organize organizes organized organizing organization",
        "city cities",
        "happy happiness",
        "cache caches cached caching",
        "run runs running",
        "box boxes",
        "use uses used using",
        "reply replies replied replying",
        "install installs installed installing installation",
        "careful carefully",
        "add added adding",
    ],
)
def test_forms_of_a_word_have_one_stem(family: str) -> None:
    assert len({stem(word, "english") for word in family.split()}) == 1


INFLECTED = {
    "arabic": ("الكتب على الطاولة", "كتب"),
    "armenian": ("Ընկերները խաղում են", "ընկերներին"),
    "basque": ("Etxeak zaharrak dira", "etxea"),
    "catalan": ("Les taules són al jardí", "taula"),
    "czech": ("Na stole jsou knihy", "kniha"),
    "danish": ("Husene er gamle", "hus"),
    "dutch": ("De katten slapen op het dak", "kat"),
    "english": ("The houses are old", "house"),
    "esperanto": ("La hundoj dormas en la domo", "hundo"),
    "estonian": ("Raamatud on laual", "raamat"),
    "finnish": ("Talot ovat vanhoja", "talo"),
    "french": ("Les chevaux sont dans le pré", "cheval"),
    "german": ("Die Häuser sind alt", "Haus"),
    "greek": ("Οι δρόμοι είναι μεγάλοι", "δρόμος"),
    "hindi": ("लड़कों ने खाना खाया", "लड़का"),
    "hungarian": ("A házak régiek", "ház"),
    "indonesian": ("Dia sedang membaca buku", "baca"),
    "irish": ("Tá na bóithre fada", "mbóithre"),
    "italian": ("I gatti dormono sul tetto", "gatto"),
    "lithuanian": ("Knygos yra ant stalo", "knyga"),
    "nepali": ("केटाहरूले भात खाए", "केटा"),
    "norwegian": ("Husene er gamle", "hus"),
    "persian": ("کتاب‌ها روی میز است", "کتاب"),
    "polish": ("Książki są na stole", "książka"),
    "portuguese": ("Os gatos dormem na casa", "gato"),
    "romanian": ("Cărțile sunt pe masă", "carte"),
    "russian": ("Книги лежат на столе", "книга"),
    "serbian": ("Књиге су на столу", "књига"),
    "sesotho": ("Batho ba bala dibuka", "balile"),
    "spanish": ("Los gatos duermen en la casa", "gato"),
    "swedish": ("Husen är gamla", "hus"),
    "tamil": ("புத்தகங்கள் மேசையில் உள்ளன", "புத்தகம்"),
    "turkish": ("Kitaplar masada", "kitap"),
    "yiddish": ("די טישן זענען גרויס", "טיש"),
}
"""A sentence in each language, and another form of one of its words."""


def test_each_language_of_the_stemmers_is_known() -> None:
    assert {*LANGUAGES} == {*snowballstemmer.algorithms()} - {"porter", "dutch_porter"}
    assert {*INFLECTED} == {*LANGUAGES}


@for_cases("language", INFLECTED)
def test_another_form_of_a_word_is_found_with_and_without_its_language(language: str) -> None:
    sentence, word = INFLECTED[language]
    for text in (sentence, max(sentence.split(), key=lambda each: len(weights_of_terms(each, terms(word))))):
        assert terms(word).keys() & dict.fromkeys(document_vector(text).indices), text
    assert not terms(word).keys() & dict.fromkeys(document_vector("The zebra sleeps").indices)


def test_an_english_text_has_one_term_for_each_word() -> None:
    assert len(terms("When did the universities open their libraries?")) == 3


@for_cases("name", ["Ada", "Ma", "Will Ko", "Van de Berg", "Mo", "Dia"])
def test_a_name_that_is_a_common_word_of_some_language_is_found(name: str) -> None:
    asked = terms(name).keys()
    assert asked & {*document_vector(f"When we met {name} in the park, it was raining.").indices}
    assert asked & {*document_vector(name).indices}


@for_cases(("text", "word"), [("서울에서 만났다", "서울"), ("집에서 쉬었다", "집"), ("한국어를 배운다", "한국어")])
def test_korean_words_are_found_without_their_particles(text: str, word: str) -> None:
    assert terms(word).keys() <= {*document_vector(text).indices}
    assert not terms(word).keys() & {*document_vector("부산으로 떠났다").indices}


@for_cases("pair", ["bus busy", "sing single", "red reed", "is island", "ring ran"])
def test_different_words_keep_different_stems(pair: str) -> None:
    one, other = pair.split()
    assert stem(one, "english") != stem(other, "english")


@for_cases(
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
    assert terms(one) == terms(other)


@given(st.text(st.characters(max_codepoint=127)))
@example("tHe iS parseXMLDocument")
def test_a_text_in_ascii_has_the_same_terms_next_to_another_script(text: str) -> None:
    (other,) = terms("中")
    counts, _ = count_terms(text, stored=True)
    assert count_terms(f"{text} 中", stored=True)[0] == counts | {other: 1}


def test_terms_do_not_depend_on_the_cache_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "zebra okapi gnu lynx the ibex tapir zebra gnu stoat civet " + "f00" * 40
    known = count_terms(text)
    cache: dict[frozenset[str], dict[str, tuple[int, ...]]] = {}
    monkeypatch.setattr(analysis, "_caches", cache)
    monkeypatch.setattr(analysis, "_MAX_CACHED", 3)
    assert count_terms(text) == known == count_terms(text)
    assert cache and all(len(each) <= 3 for each in cache.values())


def test_scripts_without_spaces_are_found_by_their_parts() -> None:
    question, text = set(terms("日本語")), set(terms("これは日本語の文書です。"))
    assert question and question <= text
    assert terms("中") and terms("ภาษาไทย")


def test_vowel_signs_do_not_break_words() -> None:
    assert len(split_words("हिन्दी भाषा")) == 2


def test_the_terms_of_a_question_of_stop_words_are_in_texts_but_not_in_vectors() -> None:
    question, text = query_vector("who are you"), "You know who I am"
    assert query_vector("").indices == []
    assert not {*question.indices} & {*document_vector(text).indices}
    assert len(weights_of_terms(text, dict.fromkeys(question.indices, 1.0))) == 2


@given(st.text())
def test_any_text_has_ascending_32_bit_terms_and_positive_weights(text: str) -> None:
    vector = document_vector(text)
    assert vector.indices == sorted(set(vector.indices))
    assert all(0 <= term < 2**32 for term in vector.indices)
    assert all(math.isfinite(weight) and weight > 0 for weight in vector.values)
    assert set(query_vector(f"{text} zebra").indices) <= set(document_vector(f"{text} zebra").indices)


def test_repeated_words_add_less_weight_and_long_texts_reduce_it() -> None:
    def weight(text: str) -> float:
        vector = document_vector(text)
        return vector.values[vector.indices.index(next(iter(terms("zebra"))))]

    once, twice, thrice = (weight(" ".join(["zebra"] * times + ["filler"] * (10 - times))) for times in (1, 2, 3))
    assert 0 < thrice - twice < twice - once
    assert weight("zebra " + "filler " * 500) < once


@given(st.text("abc the é中."), st.text("abc the é中."))
def test_the_weights_of_the_terms_of_a_question_are_equal_to_the_vector(text: str, question: str) -> None:
    vector, asked = document_vector(text), query_vector(f"{question} zebra")
    wanted = dict(zip(asked.indices, asked.values, strict=True))
    weights = dict(zip(vector.indices, vector.values, strict=True))
    assert weights_of_terms(text, wanted) == {
        term: times * weights[term] for term, times in wanted.items() if term in weights
    }


def test_a_word_with_a_million_marks_has_the_terms_of_a_word_with_few_marks() -> None:
    few, many = ("caf" + "e\u0301\u0316" + "\u0301\u0316" * times + " open" for times in (29, 500_000))
    assert split_words(many) == split_words(few)  # sorting a million marks takes minutes
    assert split_words(many)[-1] == "open"


@for_cases(
    ("name", "parts"),
    [("parseXMLDocument", "parse xml document"), ("HTTPServer", "http server"), ("OpenAIEmbedder", "open ai embedder")],
)
def test_each_part_of_a_name_is_counted_once(name: str, parts: str) -> None:
    for text in (name, f"{name} Ω"):
        counts, length = count_terms(text, stored=True)
        assert {*counts.values()} == {1}
        assert counts.keys() >= count_terms(parts)[0].keys()
        assert length == len(text.split())


@for_cases("text", ["The houses of the town", "Die Katzen sind in dem Haus", "Os gatos de uma casa"])
def test_capitals_change_no_term(text: str) -> None:
    assert count_terms(text.upper()) == count_terms(text.title()) == count_terms(text) == count_terms(text.lower())


def test_cherokee_words_match_in_both_cases() -> None:
    assert count_terms("ᏣᎳᎩ") == count_terms("ꮳꮃꭹ") == count_terms("Ꮳꮃꭹ")
