"""Selection of the worked examples of a turn, and failures of selectors."""

from __future__ import annotations

import asyncio
import math
import threading
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, Chain, ScriptedModel
from agentkit.memory import Embedder
from agentkit.prompts import (
    BasePrompt,
    Example,
    ExamplesPrompt,
    Layers,
    PromptContext,
    PromptError,
    RenderCache,
    Size,
    WrapPrompt,
    compose,
    select_examples,
)
from agentkit.prompts.example_selectors import (
    ExampleSelector,
    KeywordSelector,
    LengthSelector,
    MMRSelector,
    StaticSelector,
    VectorSelector,
)
from agentkit_prompts.ranking.folded_text import fold_text
from agentkit_prompts.ranking.mmr import mmr
from tests.prompts.laws import law

KITCHEN = (
    Example("how do I cook rice", "Boil it.", id="rice"),
    Example("how do I mend a bicycle tyre", "Patch it.", id="tyre"),
    Example("how do I cook pasta", "Boil it too.", id="pasta"),
    Example("which wine goes with fish", "White.", id="wine"),
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterEmbedder:
    """Embedder that counts letters."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.threads: set[int] = set()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        self.threads.add(threading.get_ident())
        return [[float(text.count(letter)) for letter in LETTERS] for text in texts]


class AsyncLetterEmbedder:
    def __init__(self) -> None:
        self.inner = LetterEmbedder()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return self.inner.embed(texts)


def ids(examples: Any) -> list[str]:
    return [example.id for example in examples]


def only(prompt: BasePrompt) -> Layers:
    return Layers(before_input=prompt, input=())


def ask(text: str) -> PromptContext:
    return PromptContext(user_input=text)


SELECTORS: list[ExampleSelector] = [
    StaticSelector(2),
    LengthSelector(40),
    KeywordSelector(2),
    VectorSelector(LetterEmbedder(), 2),
    MMRSelector(None, 2),
    MMRSelector(LetterEmbedder(), 2),
]


def scores_by_keywords(inputs: Sequence[str], query: str) -> list[float]:
    return KeywordSelector().index([Example(text, "") for text in inputs]).scores(query)


def name(selector: ExampleSelector) -> str:
    return type(selector).__name__


@pytest.mark.parametrize("selector", SELECTORS, ids=name)
def test_a_selector_chooses_complete_examples_deterministically(selector: ExampleSelector) -> None:
    chosen = selector.select("cook rice", KITCHEN)
    assert isinstance(chosen, tuple)
    assert chosen
    assert chosen == selector.select("cook rice", list(KITCHEN))
    assert {(one.input, one.output, one.id) for one in chosen} <= {(one.input, one.output, one.id) for one in KITCHEN}


@pytest.mark.parametrize("selector", SELECTORS, ids=name)
def test_any_query_and_any_pool_is_accepted(selector: ExampleSelector) -> None:
    strange = (Example("", ""), Example("\ud800", "\0"), Example("{{ 1 }}", "<|media:"))
    for query in ("", " ", "\0", "\ud800", "🍚 م", "{{ x }}", "x" * 1_000_000):
        assert selector.select(query, ()) == ()
        chosen = selector.select(query, strange)
        assert isinstance(chosen, tuple)
        assert {one.input for one in chosen} <= {one.input for one in strange}, query[:9]


@law
@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=8), st.integers(0, 10))
def test_keywords_choose_the_best_k_in_order_with_ties_by_position(query: str, inputs: list[str], k: int) -> None:
    pool = tuple(Example(text, "", id=str(number)) for number, text in enumerate(inputs))
    chosen = KeywordSelector(k).select(query, pool)
    assert len(chosen) == min(k, len(pool))
    ranks = [(-(one.score or 0.0), int(one.id)) for one in chosen]
    assert ranks == sorted(ranks)
    scores = scores_by_keywords(inputs, query)
    assert [one.score for one in chosen] == [scores[int(one.id)] for one in chosen]
    assert all(score >= 0 for score in scores)


def test_keywords_find_the_example_that_shares_rare_words() -> None:
    chosen = KeywordSelector(2).select("how do I mend my tyre?", KITCHEN)
    assert ids(chosen) == ["tyre", "rice"]
    assert chosen[0].score is not None and chosen[1].score is not None
    assert chosen[0].score > 2 * chosen[1].score > 0


def test_bm25_scores_are_equal_to_the_formula() -> None:
    inputs = ["a b", "a a c d", "e"]
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    mean = 7 / 3
    first = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / mean))
    second = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / mean))
    assert scores_by_keywords(inputs, "a") == pytest.approx([first, second, 0.0])
    assert scores_by_keywords(inputs, "a a") == pytest.approx([2 * first, 2 * second, 0.0])
    assert scores_by_keywords(inputs, "unknown") == [0.0, 0.0, 0.0]
    assert scores_by_keywords([], "a") == []
    assert scores_by_keywords(["", "..."], "a") == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Straße, STRASSE!", ["strasse", "strasse"]),
        ("snake_case don't", ["snake", "case", "don", "t"]),
        ("我爱北京 x", ["我爱", "爱北", "北京", "我", "爱", "北", "京", "x"]),
        ("好", ["好"]),
        ("ＡＢＣ１２", ["abc12"]),
        ("हिन्दी में Łódź", ["हिंदी", "में", "lodz"]),
        ("GPT模型v2", ["gpt", "模型", "模", "型", "v2"]),
        ("...", []),
    ],
)
def test_a_text_is_split_by_the_rules_of_its_script(text: str, terms: list[str]) -> None:
    assert KeywordSelector().tokenize(text) == terms


def test_a_pool_is_indexed_once_even_as_another_object() -> None:
    calls: list[str] = []

    def tokenize(text: str) -> list[str]:
        calls.append(text)
        return text.split()

    selector = KeywordSelector(1, tokenize=tokenize)
    for _ in range(3):
        selector.select("query", list(KITCHEN))
    assert calls.count("query") == 3
    assert len(calls) == 3 + len(KITCHEN)
    for number in range(40):
        selector.select("query", (Example(str(number), ""),))
    assert ids(selector.select("wine", KITCHEN)) == ["wine"]


def test_the_length_selector_stops_before_the_first_example_above_the_limit() -> None:
    class Characters:
        name, estimated = "characters", False

        def count(self, text: str) -> int:
            return len(text)

    pool = (Example("ab", "c", id="1"), Example("long input", "", id="2"), Example("d", "", id="3"))
    assert ids(LengthSelector(5, Characters()).select("qq", pool)) == ["1"]
    assert ids(LengthSelector(16, Characters()).select("qq", pool)) == ["1", "2", "3"]
    assert ids(LengthSelector(15, Characters()).select("qq", pool)) == ["1", "2"]
    assert ids(LengthSelector(1, Characters()).select("qq", pool)) == []
    assert ids(LengthSelector(0).select("", ())) == []


@law
@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=8), st.integers(0, 60))
def test_a_higher_limit_removes_no_example(pairs: list[tuple[str, str]], room: int) -> None:
    pool = tuple(Example(*pair) for pair in pairs)
    less, more = (LengthSelector(size).select("query", pool) for size in (room, room + 7))
    assert more[: len(less)] == less == pool[: len(less)]


def test_vectors_choose_the_nearest_and_embed_each_example_once() -> None:
    embedder = LetterEmbedder()
    selector = VectorSelector(embedder, 2)
    assert isinstance(embedder, Embedder)
    chosen = selector.select("cook rice", KITCHEN)
    assert isinstance(chosen, tuple)
    assert ids(chosen)[0] == "rice"
    assert chosen[0].score == pytest.approx(
        _cosine(*embedder.embed(["cook rice", "how do I cook rice"])),
    )
    embedder.asked.clear()
    selector.select("wine", (*KITCHEN, Example("new", ""), Example("new", "twice")))
    assert embedder.asked == [["new", "wine"]]


def _cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.hypot(*one) / math.hypot(*other)


def test_very_large_vectors_and_zero_vectors_can_be_compared() -> None:
    class Extreme:
        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            table = {"q": [1e308, 1e308], "same": [5e307, 5e307], "tiny": [5e-324, 0.0], "none": [0.0, 0.0]}
            return [table[text] for text in texts]

    pool = tuple(Example(text, "", id=text) for text in ("none", "tiny", "same"))
    chosen = VectorSelector(Extreme(), 9).select("q", pool)
    assert isinstance(chosen, tuple)
    assert [(one.id, one.score) for one in chosen] == [
        ("same", pytest.approx(1.0)),
        ("tiny", pytest.approx(math.sqrt(0.5))),
        ("none", 0.0),
    ]


class Broken:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def embed(self, texts: Sequence[str]) -> Any:
        return self.answer(texts) if callable(self.answer) else self.answer


def boom(texts: Sequence[str]) -> Any:
    raise ConnectionError("no route")


async def later(texts: Sequence[str]) -> Any:
    raise ConnectionError("no route, later")


@pytest.mark.parametrize(
    ("answer", "value", "cause"),
    [
        (boom, None, ConnectionError),
        (lambda texts: [[1.0]] * (len(texts) - 1), 4, None),
        (lambda texts: [[1.0]] * 4 + [[1.0, 2.0]], "1, 2", None),
        (lambda texts: [[]] * 5, "0", None),
        (lambda texts: [[math.nan, 1.0]] * 5, 0, None),
        (lambda texts: [[1.0]] * 4 + [[math.inf]], 4, None),
        (lambda texts: [["a"]] * 5, "list", ValueError),
        (lambda texts: [[10**400]] * 5, "list", OverflowError),
        (None, "NoneType", TypeError),
        ("12345", "str", TypeError),
    ],
    ids=range(10),
)
def test_the_error_names_an_embedder_that_fails_or_returns_no_vectors(answer: Any, value: Any, cause: Any) -> None:
    for kind in (VectorSelector, MMRSelector):
        with pytest.raises(PromptError) as caught:
            kind(Broken(answer), 2).select("query", KITCHEN)
        assert (caught.value.name, caught.value.value) == ("Broken", value)
        assert type(caught.value.__cause__) is (cause or type(None))


def test_a_change_of_the_dimension_is_an_error_and_clears_the_cache() -> None:
    size = 3
    selector = VectorSelector(Broken(lambda texts: [[1.0] * size for _ in texts]), 1)
    selector.select("query", KITCHEN)
    size = 4
    with pytest.raises(PromptError) as caught:
        selector.select("query", KITCHEN)
    assert (caught.value.name, caught.value.value) == ("Broken", 4)
    assert isinstance(selector.select("query", KITCHEN), tuple)


@pytest.mark.parametrize("number", [-1, 1.5, True, "3", None])
def test_invalid_numbers_are_refused_at_construction(number: Any) -> None:
    for make, name in (
        (KeywordSelector, "k"),
        (LengthSelector, "max_tokens"),
        (lambda k: VectorSelector(LetterEmbedder(), k), "k"),
    ):
        with pytest.raises(PromptError) as caught:
            make(number)
        assert caught.value.name == name
    with pytest.raises(PromptError) as caught:
        MMRSelector(diversity=1.5)
    assert caught.value.name == "diversity"
    with pytest.raises(PromptError):
        MMRSelector(diversity=math.nan)


def test_mmr_prefers_items_that_differ_from_the_selected_items() -> None:
    alike = {(0, 1): 0.99, (0, 2): 0.1, (1, 2): 0.1}

    def similarity(one: int, other: int) -> float:
        return alike[min(one, other), max(one, other)]

    relevance = [0.9, 0.89, 0.5]
    assert mmr(relevance, similarity, 2, diversity=0.0) == [0, 1]
    assert mmr(relevance, similarity, 2, diversity=0.5) == [0, 2]
    assert mmr(relevance, similarity, 9, diversity=0.5) == [0, 2, 1]
    assert mmr([], similarity, 3, diversity=0.5) == []
    assert mmr([0.5, 0.5], lambda a, b: -1.0, 2, diversity=1.0) == [0, 1]


@pytest.mark.parametrize("embedder", [None, LetterEmbedder()])
def test_diversity_omits_the_near_duplicate(embedder: Embedder | None) -> None:
    pool = (
        Example("how to cook rice", "", id="rice"),
        Example("how to cook rice!", "", id="again"),
        Example("rice wine", "", id="wine"),
    )
    relevant = MMRSelector(embedder, 2, diversity=0.0).select("how to cook rice", pool)
    varied = MMRSelector(embedder, 2, diversity=0.7).select("how to cook rice", pool)
    assert isinstance(relevant, tuple) and isinstance(varied, tuple)
    assert ids(relevant) == ["rice", "again"]
    assert ids(varied) == ["rice", "wine"]
    assert varied[0].score == relevant[0].score


def test_a_prompt_selects_once_per_context_also_under_a_budget() -> None:
    class Counting(KeywordSelector):
        selected = 0

        def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
            type(self).selected += 1
            return super().select(query, examples)

    prompt = ExamplesPrompt(examples=KITCHEN, selector=Counting(4))
    composition = compose(only(prompt), ask("cook rice"), budget=40)
    assert 0 < composition.user.text.count("Input:") < 4
    assert composition.user.text.startswith("Input: how do I cook rice\nOutput: Boil it.")
    assert Counting.selected == 1


def test_another_input_or_pool_selects_again() -> None:
    prompt = ExamplesPrompt(selector=KeywordSelector(1))
    layers, cache = only(prompt), RenderCache()
    ctx = PromptContext(user_input="wine", examples=KITCHEN)
    assert "White." in compose(layers, ctx, cache=cache).user.text
    other = ctx.evolve(user_input=ask("tyre").user_input)
    assert "Patch it." in compose(layers, other, cache=cache).user.text
    smaller = ctx.evolve(examples=KITCHEN[:1])
    assert "Boil it." in compose(layers, smaller, cache=cache).user.text
    assert "White." in compose(layers, ctx, cache=cache).user.text


def test_scores_can_be_shown() -> None:
    prompt = ExamplesPrompt(
        KITCHEN,
        "{% for example in examples %}{{ example.id }} {{ '%.2f' | format(example.score) }} {% endfor %}",
        selector=VectorSelector(LetterEmbedder(), 2),
    )
    assert prompt.format_2_str(ask("how do I cook rice")).startswith("rice 1.00 pasta 0.")


async def test_an_async_selection_stays_in_an_evolved_context() -> None:
    embedder = AsyncLetterEmbedder()
    prompt = ExamplesPrompt(examples=KITCHEN, selector=VectorSelector(embedder, 1))
    layers = only(WrapPrompt(wrapped_prompts=(prompt,)))
    ctx = await select_examples(layers, ask("cook rice"))
    text = compose(layers, ctx).user.text
    assert text == "Input: how do I cook rice\nOutput: Boil it."
    assert compose(layers, ctx.evolve(documents=()), budget=1000).user.text == text
    assert await select_examples(layers, ctx) is not None
    assert len(embedder.inner.asked) == 1
    assert ctx.evolve(selections=()) == ask("cook rice")


async def test_the_selections_of_two_contexts_are_independent() -> None:
    layers = only(ExamplesPrompt(examples=KITCHEN, selector=MMRSelector(AsyncLetterEmbedder(), 1)))
    first = await select_examples(layers, ask("how do I cook rice"))
    second = await select_examples(layers, first.evolve(user_input=ask("which wine goes with fish").user_input))
    assert "Boil it." in compose(layers, first).user.text
    assert "White." in compose(layers, second).user.text


@pytest.mark.parametrize("selector", [VectorSelector(AsyncLetterEmbedder()), MMRSelector(AsyncLetterEmbedder())])
def test_a_sync_render_of_an_async_selector_is_a_prompt_error(selector: ExampleSelector) -> None:
    prompt = ExamplesPrompt(examples=KITCHEN, selector=selector)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # A coroutine without an await would be a warning.
        with pytest.raises(PromptError) as caught:
            compose(only(prompt), ask("cook"))
    assert (caught.value.prompt, caught.value.name) == ("before_input[0]", type(selector).__name__)
    assert (caught.value.value, caught.value.__cause__) == (None, None)


async def test_layers_without_such_a_selector_need_no_preparation() -> None:
    ctx = ask("hello")
    assert await select_examples(only(ExamplesPrompt(examples=KITCHEN)), ctx) is ctx


async def test_a_sync_embedder_is_called_outside_of_the_event_loop() -> None:
    embedder = LetterEmbedder()
    layers = only(ExamplesPrompt(examples=KITCHEN, selector=VectorSelector(embedder, 1)))
    await select_examples(layers, ask("cook"))
    assert threading.get_ident() not in embedder.threads
    assert embedder.threads


async def test_the_method_of_a_custom_selector_can_be_a_coroutine_function() -> None:
    class Last:
        async def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
            return examples[-1:]

    model = ScriptedModel(["done"])
    chain = Chain(model, only(ExamplesPrompt(examples=KITCHEN, selector=Last())))
    assert await chain.run("hi") == "done"
    assert model.requests[-1].user.text == "Input: which wine goes with fish\nOutput: White."
    with pytest.raises(PromptError) as caught:
        chain.compose(ask("hi"))
    assert (caught.value.name, caught.value.value, caught.value.__cause__) == ("Last", None, None)


async def test_an_agent_prepares_its_selections() -> None:
    model = ScriptedModel(["done"])
    layers = only(ExamplesPrompt(examples=KITCHEN, selector=VectorSelector(AsyncLetterEmbedder(), 1)))
    result = await Agent(Chain(model, layers)).run("how do I cook pasta")
    assert "Boil it too." in result.composition.user.text


@pytest.mark.parametrize(
    ("select", "value", "cause"),
    [
        (lambda query, examples: ["text"], "list", type(None)),
        (lambda query, examples: None, "NoneType", type(None)),
        (lambda query, examples: 1 / 0, None, ZeroDivisionError),
    ],
    ids=range(3),
)
async def test_the_error_names_a_selector_that_fails(select: Any, value: str | None, cause: type) -> None:
    class Mine:
        def select(self, query: str, examples: Sequence[Example]) -> Any:
            return select(query, examples)

    class MineLater:
        async def select(self, query: str, examples: Sequence[Example]) -> Any:
            return select(query, examples)

    with pytest.raises(PromptError) as caught:
        compose(only(ExamplesPrompt(examples=KITCHEN, selector=Mine())), ask("hi"))
    assert (caught.value.name, caught.value.value, type(caught.value.__cause__)) == ("Mine", value, cause)
    with pytest.raises(PromptError) as caught:
        await select_examples(only(ExamplesPrompt(examples=KITCHEN, selector=MineLater())), ask("hi"))
    assert (caught.value.name, caught.value.value, type(caught.value.__cause__)) == ("MineLater", value, cause)


async def test_the_error_names_an_async_embedder_that_fails() -> None:
    layers = only(ExamplesPrompt(examples=KITCHEN, selector=VectorSelector(Broken(later), 2)))
    with pytest.raises(PromptError) as caught:
        await select_examples(layers, ask("hi"))
    assert (caught.value.name, type(caught.value.__cause__)) == ("Broken", ConnectionError)


def test_the_error_names_missing_ids() -> None:
    with pytest.raises(PromptError) as caught:
        StaticSelector(ids=["rice", "x", "y"]).select("", KITCHEN)
    assert (caught.value.name, caught.value.value) == ("ids", "x, y")
    with pytest.raises(PromptError) as caught:
        ExamplesPrompt(examples=KITCHEN, selector=StaticSelector(ids=["x"]))
    assert (caught.value.name, caught.value.value) == ("ids", "x")
    assert ids(StaticSelector(1, ids=["wine", "rice"]).select("", KITCHEN)) == ["wine"]
    with pytest.raises(PromptError) as caught:
        StaticSelector(-1)
    assert (caught.value.name, caught.value.value) == ("k", -1)


def test_the_error_names_all_problems_of_a_static_selector() -> None:
    with pytest.raises(PromptError) as caught:
        StaticSelector(-2, ids=["a", 1, "b", None])  # type: ignore[list-item]
    assert [problem.place for problem in caught.value.problems] == ["k", "ids[1]", "ids[3]"]
    assert (caught.value.name, caught.value.value) == ("k, ids", -2)
    with pytest.raises(PromptError) as caught:
        StaticSelector(True, ids="ab")
    assert [problem.place for problem in caught.value.problems] == ["k", "ids"]


def test_examples_stay_complete_under_any_budget() -> None:
    prompt = ExamplesPrompt(examples=KITCHEN, selector=KeywordSelector(4), size=Size(cut="items"))
    for budget in range(20, 90, 3):
        text = compose(only(prompt), ask("cook"), budget=budget).user.text
        assert text.count("Input:") == text.count("Output:")


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0301\uff9e", "\u0f73", "\u064c\u064b"])
def test_a_character_with_a_million_marks_is_folded_as_with_few_marks(marks: str) -> None:
    few, many = (f"stra\u00dfe a{marks * times} End" for times in (30, 500_000))  # normalising many marks takes minutes
    assert fold_text(f"STRASSE A{marks} END") == unicodedata.normalize("NFKC", f"strasse a{marks} end")
    assert fold_text(many) == fold_text(few)
    assert fold_text(many).startswith("strasse ") and fold_text(many).endswith(" end")


# In the other categories, characters are invisible, digits of other scripts, or marks.
@given(st.text(st.characters(categories=["Lu", "Ll", "Lt", "Nl", "No", "Pd", "Sc", "Sm", "Zs"])))
def test_the_folding_of_letters_and_symbols_is_equal_to_nfkc_and_casefold(text: str) -> None:
    assert fold_text(text) == unicodedata.normalize("NFKC", text).casefold()
