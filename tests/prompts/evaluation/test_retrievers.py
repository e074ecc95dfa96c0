"""Rows that a reader of datasets selects, and rows that become worked examples."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import pytest

from agentkit.prompts import Example, ExamplesPrompt, Layers, PromptContext, compose
from agentkit.prompts.evaluation import (
    BM25Selector,
    DatasetReader,
    InContext,
    MetaTemplate,
    PromptTemplate,
    RandomSelector,
    WindowSelector,
)
from agentkit.prompts.example_selectors import ExampleSelector, KeywordSelector, StaticSelector, VectorSelector
from agentkit_prompts.evaluation.okapi import Okapi, terms
from agentkit_prompts.evaluation.retrievers import retrieve
from tests.prompts.evaluation.refusals import places, refused

POOL = tuple(Example(f"q{number}", f"a{number}", id=str(number)) for number in range(5))
QUERIES = ["first", "second", "third", "fourth"]


class Letters:
    """Embedder that counts letters."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, *(float(text.count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz")] for text in texts]


# Readers


@pytest.mark.parametrize(
    ("size", "numbers"),
    [
        (None, range(10)),
        (0, range(10)),
        (-1, range(10)),
        (10, range(10)),
        (99, range(10)),
        (3, [1, 5, 6]),  # drawn by OpenCompass 0.5.4, as the next
        (0.5, [2, 3, 1, 0, 8]),
        (3.0, [1, 5, 6]),
        ("[2:9:3]", [2, 5, 8]),
        (" [ :2 ] ", [0, 1]),
        ("[-2:]", [8, 9]),
        ("[::-1]", range(9, -1, -1)),
        ("[20:]", []),
        (0.01, []),
    ],
)
def test_part_of_a_dataset_is_always_the_same_part(size: Any, numbers: Sequence[int]) -> None:
    rows = [{"q": number} for number in range(10)]
    _, test = DatasetReader(["q"], test_range=size).split({"train": [], "test": rows})
    assert [row["q"] for row in test] == list(numbers)


@pytest.mark.parametrize(
    "size",
    ["2:9", "[1]", "[::0]", "[a:b]", "[__import__('os'):]", "", 2.5, True, float("nan"), [1], f"[{'9' * 5_000}:]"],
)
def test_an_invalid_range_is_refused_and_not_evaluated(size: Any) -> None:
    assert places(lambda: DatasetReader(["q"], test_range=size)) == ("test_range",)


def test_a_reader_returns_the_input_and_the_output_of_a_row() -> None:
    reader = DatasetReader("a  b", "c")
    assert reader.input_columns == ("a", "b")
    assert reader.example(3, {"a": "x", "b": 1, "c": None}) == Example("x 1", "None", id="3")
    assert DatasetReader(["a"]).example(0, {"a": 1}).output == ""
    written = DatasetReader(["a"], "c", PromptTemplate("A={a}"), PromptTemplate("C={c}"))
    assert written.example(0, {"a": 1, "c": 2}) == Example("A=1", "C=2", id="0")
    assert refused(lambda: reader.query({"c": 1})).name == "a, b"


def test_a_reader_separates_its_splits_and_names_each_missing_split() -> None:
    rows = [{"q": str(number), "a": number} for number in range(4)]
    reader = DatasetReader(["q"], "a", train_range="[:2]", test_range="[3:]", test_split="dev")
    assert reader.split({"train": rows, "dev": rows}) == (rows[:2], rows[3:])
    assert DatasetReader(["q"], "a").split(rows) == (rows, rows)
    assert DatasetReader(["q"], "a").split({"train": [], "test": []}) == ([], [])
    assert places(lambda: DatasetReader(["q"]).split({"dev": rows})) == ("train", "test")
    found = places(lambda: DatasetReader(["q", "quest"], "answer").split({"train": rows, "test": rows}))
    assert found == ("train.quest", "train.answer", "test.quest")
    wrong: Any = {"train": [{"q": 1}, "x"], "test": rows}
    assert places(lambda: DatasetReader(["q"]).split(wrong)) == ("train[1]",)
    DatasetReader(["q"], "a").split({"train": rows, "test": [{"q": "the answer is not known"}]})


def test_the_error_names_each_problem_of_a_reader() -> None:
    assert places(lambda: DatasetReader([1], ["c"], "x", None, "[0]", 2.5, 3)) == (  # type: ignore
        "input_columns",
        "output_column",
        "input_template",
        "train_split",
        "train_range",
        "test_range",
    )
    assert places(lambda: DatasetReader("")) == ("input_columns",)


# Retrievers


def test_random_rows_are_equal_to_the_legacy_generator_of_numpy() -> None:
    assert retrieve(RandomSelector(2), QUERIES, POOL) == [(3, 2), (3, 4), (1, 0), (4, 1)]
    assert retrieve(RandomSelector(2, seed=1), QUERIES, POOL) == [(2, 1), (0, 2), (2, 3), (3, 0)]
    assert retrieve(RandomSelector(1), QUERIES, POOL) == [(3,), (3,), (1,), (4,)]
    many = [Example("", "", id=str(number)) for number in range(1000)]
    assert retrieve(RandomSelector(2), QUERIES[:3], many) == [(858, 986), (449, 899), (436, 812)]


def test_random_rows_are_deterministic_and_unique_in_a_prompt() -> None:
    numpy = pytest.importorskip("numpy")
    numpy.random.seed(7)
    drawn = [tuple(numpy.random.choice(5, 5, replace=False).tolist()) for _ in QUERIES]
    selector = RandomSelector(5, seed=7)
    assert retrieve(selector, QUERIES, POOL) == retrieve(selector, QUERIES, POOL) == drawn
    assert all(sorted(row) == [0, 1, 2, 3, 4] for row in drawn)
    assert retrieve(RandomSelector(0), QUERIES, POOL) == [()] * 4


def test_a_window_has_the_previous_rows_and_wraps_at_both_ends() -> None:
    assert retrieve(WindowSelector(2), QUERIES, POOL) == [(3, 4), (4, 0), (0, 1), (1, 2)]
    assert retrieve(WindowSelector(5), QUERIES, POOL)[1] == (1, 2, 3, 4, 0)
    assert retrieve(WindowSelector(2), [""] * 8, POOL)[7] == (0, 1), "after the last row it continues with the first"
    assert retrieve(WindowSelector(0), QUERIES, ()) == [()] * 4


def test_retrievers_and_example_selectors_are_interchangeable() -> None:
    pool = (Example("how to cook rice", "x", id="0"), Example("how to ride", "x", id="1"), Example("zzz", "x", id="2"))
    for selector in (KeywordSelector(2), VectorSelector(Letters(), 2)):
        assert retrieve(selector, ["cook rice", "zzz zzz"], pool)[0][0] == 0
        assert retrieve(selector, ["cook rice", "zzz zzz"], pool)[1][0] == 2
    assert retrieve(StaticSelector(ids=["2", "0", "2"]), ["a", "b"], pool) == [(2, 0, 2)] * 2
    for known in (RandomSelector(2), WindowSelector(2)):
        assert isinstance(known, ExampleSelector)
        layers = Layers(before_input=ExamplesPrompt(examples=pool, selector=known))
        said = compose(layers, PromptContext(user_input="hello")).messages[0]
        assert str(said).count("Input: ") == 2


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RandomSelector(-1), "k"),
        (lambda: RandomSelector(True), "k"),
        (lambda: RandomSelector(1, seed=2**32), "seed"),
        (lambda: RandomSelector(1, seed=None), "seed"),  # type: ignore[arg-type]
        (lambda: WindowSelector("2"), "k"),  # type: ignore[arg-type]
        (lambda: retrieve(RandomSelector(6), QUERIES, POOL), "k"),
        (lambda: retrieve(WindowSelector(6), QUERIES, POOL), "k"),
        (lambda: retrieve(StaticSelector(ids=["9"]), QUERIES, POOL), "ids"),
    ],
)
def test_the_error_names_the_invalid_argument_of_a_retriever(make: Any, name: str) -> None:
    assert refused(make).name == name


def test_the_error_names_a_custom_selector_that_fails() -> None:
    class Inventing:
        def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            return [Example("new", "new", id="77")]

    class Failing:
        def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            raise OSError("no net")

    class Waiting:
        async def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            return examples

    for selector, value in ((Inventing(), "77"), (Failing(), "OSError"), (Waiting(), None)):
        error = refused(lambda selector=selector: retrieve(selector, QUERIES, POOL))  # type: ignore[misc]
        assert (error.name, error.value) == (type(selector).__name__, value)


def test_an_evaluation_calls_its_retriever_once_for_all_rows() -> None:
    rows = [{"q": text, "a": text} for text in ("rice", "boats", "rice and boats")]
    icl = InContext(
        DatasetReader(["q"], "a"),
        PromptTemplate("{ice}{q}", ice_token="{ice}"),
        ice_template=PromptTemplate("{q}={a};"),
        retriever=KeywordSelector(1),
        train=rows,
        separator="",
        end=" ",
    )
    assert icl.ids([{"q": "boats"}, {"q": "rice"}]) == [(1,), (0,)]
    assert [made.prompt for made in icl.prompts([{"q": "boats"}, {"q": "rice"}])] == [
        "boats=boats; boats",
        "rice=rice; rice",
    ]
    assert refused(lambda: icl.ids([{"a": 1}])).name == "q"


def test_rows_with_equal_scores_have_the_order_of_rank_bm25() -> None:
    rows = [{"q": text, "a": "x"} for text in ("red car", "red bus", "blue sky", "red van")]
    icl = InContext.from_cfg(
        {
            "prompt_template": {"template": "</E>{q}", "ice_token": "</E>"},
            "ice_template": {"template": "{q}"},
            "retriever": {"type": "BM25Retriever", "ice_num": 4},
        },
        {"input_columns": "q", "output_column": "a"},
        train=rows,
    )
    assert icl.ids([{"q": "red"}, {"q": "nothing"}, {"q": "blue"}]) == [(3, 1, 0, 2), (3, 2, 1, 0), (2, 3, 1, 0)]


def test_ties_have_the_order_of_the_sort_of_rank_bm25() -> None:
    numpy = pytest.importorskip("numpy")
    failures = []
    draw = Random(3)
    for size in (1, 2, 3, 5, 8, 9, 16, 17, 40, 130):
        for _ in range(20):
            texts = ["".join(draw.choices("abc", k=draw.randint(0, 3))) for _ in range(size)]
            pool = [Example(text, "", id=str(at)) for at, text in enumerate(texts)]
            query = "".join(draw.choices("abcd", k=2))
            expected = numpy.argsort(Okapi(texts, tokenize=list).scores(query))[::-1].tolist()
            (order,) = retrieve(BM25Selector(size, tokenize=list), [query], pool)
            if list(order) != expected:
                failures.append((texts, query))
    assert failures == []


def test_without_numpy_the_last_of_equal_rows_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    pool = [Example(text, "", id=str(at)) for at, text in enumerate("abbabcb" * 3)]
    assert retrieve(BM25Selector(4, tokenize=list), ["c", "b"], pool) == [(19, 12, 5, 20), (20, 18, 16, 15)]


def test_scores_are_equal_to_rank_bm25_with_the_words_of_nltk() -> None:
    texts = [
        "The cat doesn't see the dog, or: the end.",
        "the dog",
        "A dog -- the cat's dog (3.5 kg, 1,000 g)...",
        '"Dog?" he said.',
        "the the the dog",
        "the",
    ]
    index = Okapi(texts)  # the expected scores are the output of rank_bm25 0.2.2
    assert index.scores("the dog") == [
        *(0.4893492718986457, 0.7831526047544733, 0.4530805779759143, 0.0, 0.8251979658356872, 0.43255521774229644)
    ]
    assert index.scores("DOG dog?") == [
        *(0.1917512820919458, 0.3915763023772367, 0.27761006511819025, 1.2992829841302609, 0.3292013161578539, 0.0)
    ]
    assert index.scores("doesn't he") == [1.8752537915282115, 0.0, 0.0, 1.2992829841302609, 0.0, 0.0]
    assert terms(texts[0]) == ["The", "cat", "does", "n't", "see", "the", "dog", ",", "or", ":", "the", "end", "."]
    assert terms(texts[2])[2:] == ["--", "the", "cat", "'s", "dog", "(", "3.5", "kg", ",", "1,000", "g", ")", "..."]
    assert terms(texts[3]) == ["``", "Dog", "?", "''", "he", "said", "."]
    assert terms("So Mr. K. left. He did") == ["So", "Mr.", "K.", "left", ".", "He", "did"]


def test_a_custom_function_splits_texts_into_words() -> None:
    pool = [Example(text, "", id=str(at)) for at, text in enumerate(("a-b", "b", "c"))]
    assert retrieve(BM25Selector(1), ["a"], pool) == [(2,)]  # no common words: the last row
    assert retrieve(BM25Selector(1, tokenize=lambda text: text.split("-")), ["a"], pool) == [(0,)]
    assert refused(lambda: BM25Selector(1, tokenize=5)).name == "tokenize"  # type: ignore[arg-type]


def test_a_negative_row_number_counts_from_the_end() -> None:
    def fixed(*numbers: int) -> InContext:
        return InContext.from_cfg(
            {
                "prompt_template": {"template": "</E>{q}", "ice_token": "</E>"},
                "ice_template": {"template": "{q}"},
                "retriever": {"type": "FixKRetriever", "fix_id_list": [*numbers]},
            },
            {"input_columns": "q", "output_column": "a"},
            train=[{"q": str(number), "a": "x"} for number in range(3)],
        )

    assert fixed(-1, 0, -3).ids([{"q": "x"}]) == [(2, 0, 0)]
    assert fixed(-1).prompt({"q": "?"}, fixed(-1).ids([{"q": "?"}])[0]) == "2\n?"
    assert places(lambda: fixed(-4, 1)) == ("retriever.ids",)


@pytest.mark.parametrize("name", ["BM25Retriever", "RandomRetriever", "SlidingWindowRetriever"])
@pytest.mark.parametrize(("count", "place"), [(0, "train"), (2, "retriever.k")])
def test_fewer_rows_than_a_retriever_shows_are_refused(name: str, count: int, place: str) -> None:
    cfg = {
        "ice_template": {"template": "</E>{q} {a}", "ice_token": "</E>"},
        "retriever": {"type": name, "ice_num": 3},
    }
    rows = [{"q": "x", "a": "y"}] * count
    assert places(lambda: InContext.from_cfg(cfg, DatasetReader(["q"], "a"), train=rows)) == (place,)


def test_a_split_for_examples_and_questions_is_read_once() -> None:
    cfg = {
        "ice_template": {"template": "</E>{q} {a}", "ice_token": "</E>"},
        "retriever": {"type": "FixKRetriever", "fix_id_list": [0]},
    }
    reader = DatasetReader(["q"], "a", train_split="test")
    assert places(lambda: InContext.from_cfg(cfg, reader)) == ("retriever.ids",)
    assert str(refused(lambda: InContext.from_cfg(cfg, reader))).count("--rows test=FILE") == 1


def test_one_prompt_shows_the_examples_of_its_retriever() -> None:
    cfg = {
        "ice_template": {"template": "</E>{q} {a}", "ice_token": "</E>"},
        "retriever": {"type": "BM25Retriever", "ice_num": 1},
    }
    train = [{"q": "star", "a": "3"}, {"q": "sun", "a": "1"}, {"q": "moon", "a": "2"}]
    icl = InContext.from_cfg(cfg, DatasetReader(["q"], "a"), train=train)
    assert icl.prompt({"q": "sun"}) == icl.final({"q": "sun"}) == "sun 1\nsun "
    assert icl.final({"q": "sun"}, ids=()) == "\nsun "


def test_fine_tuning_rows_are_the_prompts_of_an_evaluation_and_train_on_the_reply_alone() -> None:
    turns = [{"role": "HUMAN", "prompt": "{q}"}, {"role": "BOT", "prompt": "{a}"}]
    cfg = {
        "prompt_template": {"template": {"begin": ["</E>"], "round": turns}, "ice_token": "</E>"},
        "ice_template": {"template": {"round": turns}},
        "retriever": {"type": "BM25Retriever", "ice_num": 2},
    }
    train = [{"q": "star", "a": "3"}, {"q": "sun", "a": "1"}, {"q": "moon", "a": "2"}]
    icl = InContext.from_cfg(cfg, DatasetReader(["q"], "a"), train=train)
    for template, learned in (("qwen", "<b><|im_end|>"), (None, "<b>")):
        (row,) = icl.samples([{"q": "sun", "a": "<b>"}], template)
        assert [message["content"] for message in row["messages"]] == ["sun", "1", "moon", "2", "sun", "<b>"]
        assert [row["text"][start:end] for start, end in row["loss_spans"]] == [learned]
    (row,) = icl.samples([{"q": "sun", "a": "<b>"}], "base")  # as an evaluation of completions sends it
    sent = icl.written(icl.prompt({"q": "sun", "a": "<b>"}, icl.ids([{"q": "sun"}])[0]), MetaTemplate())
    assert row["text"] == f"{sent}<b>" and row["loss_spans"] == [[len(sent), len(row["text"])]]
    assert next(icl.samples([{"q": "sun", "a": ""}], "base"))["loss_spans"] == []
    assert refused(lambda: next(icl.samples(cast("Any", {"train": train, "test": []})))).name == "rows"
    assert next(icl.samples([{"q": "sun", "a": ""}]))["loss_spans"] == []
    error = refused(lambda: list(icl.samples([{"q": "sun", "a": "1"}, {"q": "sun"}])))
    assert (error.path, error.name) == ("rows[1]", "a")
