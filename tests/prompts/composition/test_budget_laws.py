"""Laws of a budget: minimal cuts, complete items, deterministic cuts; and the meaning of sizes."""

from __future__ import annotations

import itertools
import re
from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Budget,
    BudgetError,
    Composition,
    Conversation,
    Document,
    EstimateCounter,
    Example,
    ExamplesPrompt,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    PromptError,
    Size,
    TextPrompt,
    TokenCounter,
    ToolCall,
    ToolSpec,
    WrapPrompt,
    compose,
)
from agentkit.testing import strategies as some
from tests.prompts.laws import law

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")


class Words:
    """Counter of words: unlike the default counter, and not additive over concatenation."""

    name = "words"
    estimated = False

    def count(self, text: str) -> int:
        return len(text.split())


class Steps:
    """Counter with coarse steps: many cuts have the same cost."""

    name = "steps"
    estimated = False

    def count(self, text: str) -> int:
        return -(-len(text) // 64)


COUNTERS: list[TokenCounter] = [EstimateCounter(), Words(), Steps()]


def fitted(layers: Layers, ctx: PromptContext, limit: int, counter: TokenCounter) -> Composition | None:
    try:
        return compose(layers, ctx, budget=limit, counter=counter)
    except BudgetError:
        return None


def recount(composition: Composition, counter: TokenCounter) -> int:
    """Count the tokens of the messages; for compositions without media."""
    total = sum(4 + counter.count(tool.json) for tool in composition.tools)
    for message in composition.messages:
        total += 4 + counter.count(message.text)
        total += sum(4 + counter.count(call.name) + counter.count(call.arguments) for call in message.tool_calls)
    return total


@law
@given(some.layers(sized=True), some.contexts(), st.floats(0.0, 1.1))
def test_a_budget_cuts_only_if_necessary_and_deterministically(
    layers: Layers, ctx: PromptContext, share: float
) -> None:
    whole = compose(layers, ctx)
    uncut = compose(layers, ctx, budget=max(1, whole.tokens))
    assert uncut.messages == whole.messages
    assert uncut.trims == {}
    limit = max(1, int(whole.tokens * share))
    one, other = fitted(layers, ctx, limit, COUNTERS[0]), fitted(layers, copy(ctx), limit, COUNTERS[0])
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert one.messages == other.messages
        assert one.trims == other.trims


word = st.text("abcdefgh", min_size=1, max_size=9)
texts = st.lists(st.lists(word, min_size=1, max_size=30).map(" ".join), min_size=1, max_size=6)


def numbered(texts: list[str]) -> list[str]:
    return [f"<{index}>{text}</{index}>" for index, text in enumerate(texts)]


@law
@given(texts, texts, texts, st.integers(1, 400))
def test_documents_examples_and_turns_stay_complete(
    texts: list[str], inputs: list[str], turns: list[str], limit: int
) -> None:
    layers = Layers(before_input=[MemoPrompt(), ExamplesPrompt()])
    ctx = PromptContext(
        user_input="question",
        documents=numbered(texts),
        examples=[Example(text, f"answer {index}") for index, text in enumerate(numbered(inputs))],
        conversation=[
            message
            for index, text in enumerate(numbered(turns))
            for message in (
                Message("user", text),
                Message("assistant", "", (ToolCall(str(index), "look", "{}"),)),
                Message("tool", "seen", tool_call_id=str(index)),
                Message("assistant", f"said {index}"),
            )
        ],
    )
    composition = fitted(layers, ctx, limit, COUNTERS[0])
    if composition is None:
        return
    text = "\n".join(message.text for message in composition.messages)
    opened, closed = re.findall(r"<(\d)>", text), re.findall(r"</(\d)>", text)
    assert opened == closed
    shown = re.findall(r"Output: answer (\d)", text)
    assert shown == [str(index) for index in range(len(shown))]
    assert text.count("Input: ") == len(shown)
    assert [message.role for message in composition.conversation] == ["user", "assistant", "tool", "assistant"] * (
        len(composition.conversation) // 4
    )
    if len(composition.conversation):
        assert composition.conversation[-1] == ctx.conversation[-1]


@law
@given(
    st.lists(word, min_size=20, max_size=200, unique=True),
    st.sampled_from(["head", "tail", "middle"]),
    st.integers(12, 400),
    st.integers(12, 400),
)
def test_a_larger_budget_keeps_the_words_of_a_smaller_budget(words: list[str], cut: str, one: int, other: int) -> None:
    layers = Layers(TextPrompt(" ".join(words), size=Size(cut=cut)))  # type: ignore[arg-type]
    ctx = PromptContext(user_input="x")
    small, large = sorted((one, other))
    less, more = (compose(layers, ctx, budget=limit).system.text for limit in (small, large))
    kept, wider = less.replace("\u2026", " ").split(), more.replace("\u2026", " ").split()
    assert set(kept) <= {part[:size] for part in wider for size in range(len(part) + 1)} | {
        part[size:] for part in wider for size in range(len(part) + 1)
    }
    if cut == "head":
        assert " ".join(words).startswith(less.partition("\u2026")[0].strip())
        assert len(kept) <= len(wider)
    if cut == "tail":
        assert " ".join(words).endswith(less.rpartition("\u2026")[2].strip())


def test_the_error_names_all_minimums_that_do_not_fit() -> None:
    layers = Layers(
        [TextPrompt("rule " * 50, name="Rules"), TextPrompt("tone " * 40, size=Size(min=30, cut="head"))],
        before_input=MemoPrompt(size=Size(min=20, cut="items")),
    )
    ctx = PromptContext(user_input="x", documents=["word " * 60], tools=[ToolSpec("look")])
    with pytest.raises(BudgetError) as caught:
        compose(layers, ctx, budget=40)
    assert caught.value.limit == 40
    assert {"system[0]", "system[1]", "before_input[0]", "input[0]", "tools"} <= caught.value.parts.keys()
    needed = caught.value.required
    assert compose(layers, ctx, budget=needed).tokens <= needed
    with pytest.raises(BudgetError):
        compose(layers, ctx, budget=needed - 1)


def test_the_required_tokens_of_the_error_are_exactly_enough() -> None:
    layers = Layers("Be brief.")
    ctx = PromptContext(user_input="hello there")
    with pytest.raises(BudgetError) as caught:
        compose(layers, ctx, budget=3)
    assert compose(layers, ctx, budget=caught.value.required).tokens == caught.value.required
    with pytest.raises(BudgetError):
        compose(layers, ctx, budget=caught.value.required - 1)


def test_a_reserve_stays_free() -> None:
    layers = Layers(before_input=MemoPrompt())
    ctx = PromptContext(user_input="x", documents=["word " * 40] * 10)
    composition = compose(layers, ctx, budget=Budget(300, reserve=100))
    assert composition.tokens <= 200
    assert composition.trims["before_input[0]"].status == "trimmed"
    assert composition.why("documents[9]").status == "cut"


def test_the_prompt_of_higher_priority_grows_first() -> None:
    texts = "one two three four five six seven eight nine ten " * 4
    ctx = PromptContext(user_input="x")

    def kept_words(first: int, second: int) -> tuple[int, int]:
        layers = Layers(
            [
                TextPrompt(texts, size=Size(cut="head", priority=first)),
                TextPrompt(texts, size=Size(cut="head", priority=second)),
            ]
        )
        trims = compose(layers, ctx, budget=80).trims
        return tuple(trims[path].remaining if path in trims else 999 for path in ("system[0]", "system[1]"))  # type: ignore[return-value]

    one, other = kept_words(1, 0)
    assert one > other
    one, other = kept_words(0, 1)
    assert one < other


def test_priorities_inside_a_wrapper_are_compared_only_within_it() -> None:
    words = "one two three four five six seven eight nine ten " * 4
    inner = [
        TextPrompt(words, name="low", size=Size(cut="drop", priority=-9)),
        TextPrompt(words, name="high", size=Size(cut="drop", priority=9)),
    ]
    layers = Layers([WrapPrompt(inner, "<{{ wrapped_str }}>"), TextPrompt("keep me")])
    composition = compose(layers, PromptContext(user_input="x"), budget=90)
    spans = {span.prompt for span in composition.spans}
    assert "system[0].wrapped_prompts[1]" in spans
    assert "system[0].wrapped_prompts[0]" not in spans
    assert "keep me" in composition.system.text


def test_surplus_is_shared_by_flex() -> None:
    words = "word " * 400
    sized = [Size(target=0, cut="head", flex=flex) for flex in (1.0, 3.0, 0.0)]
    layers = Layers([TextPrompt(words, size=size) for size in sized])
    rows = {row.layer: row.tokens for row in compose(layers, PromptContext(user_input="x"), budget=440).explain()}
    assert rows["system[2]"] == 0
    assert rows["system[1]"] == pytest.approx(3 * rows["system[0]"], rel=0.1)


def test_a_maximum_applies_without_a_budget() -> None:
    layers = Layers(TextPrompt("word " * 200, size=Size(max=20, cut="head")))
    composition = compose(layers, PromptContext(user_input="x"))
    row = next(row for row in composition.explain() if row.layer == "system[0]")
    assert row.tokens <= 20
    assert row.status == "trimmed"
    assert "max" in row.why


def test_the_error_of_an_impossible_maximum_names_the_prompt() -> None:
    layers = Layers(TextPrompt("word " * 200, size=Size(max=20)))
    with pytest.raises(BudgetError) as caught:
        compose(layers, PromptContext(user_input="x"))
    assert (caught.value.name, caught.value.limit) == ("system[0]", 20)


def test_an_atomic_document_is_not_cut_inside() -> None:
    layers = Layers(
        TextPrompt("{% for d in documents %}{{ d.text }}{% endfor %}", size=Size(cut="head")), conversation=False
    )
    ctx = PromptContext(
        user_input="x", documents=[Document("whole " * 30 + "end", atomic=True), Document("rest " * 50)]
    )
    for limit in range(8, 130):
        text = compose(layers, ctx, budget=limit).system.text
        assert ("whole" in text) == ("end" in text)


def test_media_are_counted_and_not_cut() -> None:
    from agentkit.prompts import Image, UserInput

    layers = Layers(TextPrompt("{{ user_input }}", size=Size(cut="head")), input=[], before_input="go")
    ctx = PromptContext(user_input=UserInput(["before " * 20, Image(b"x"), "after " * 20]))
    for limit in (*range(10, 60, 3), *range(830, 900, 5)):
        composition = compose(layers, ctx, budget=limit)
        assert composition.tokens <= limit
        assert bool(composition.media) == ("<|media:" in composition.system.text)
        assert composition.system.text.count("<|media:") == composition.system.text.count("|>")


def test_a_callable_cut_gets_the_available_tokens() -> None:
    asked: list[int] = []

    def shorten(text: str, tokens: int) -> str:
        asked.append(tokens)
        return text[: tokens * 4]

    layers = Layers(TextPrompt("word " * 200, size=Size(cut=shorten)))
    composition = compose(layers, PromptContext(user_input="x"), budget=60)
    assert composition.tokens <= 60
    assert asked
    assert composition.system.text.startswith("word")
    # The text of a custom cut can be shorter than its limit: the table has the tokens of the text.
    short = compose(Layers(TextPrompt("word " * 200, size=Size(cut=lambda text, tokens: text[:8]))), "x", budget=60)
    assert short.explain()[0].why == "2 of 250 tokens kept: the budget is 60 tokens"


def test_the_content_of_the_history_decides_its_start() -> None:
    turns = [
        message
        for index in range(200)
        for message in (Message("user", f"question {index} " * 5), Message("assistant", f"answer {index} " * 9))
    ]
    layers = Layers("Be brief.")
    firsts: list[str] = []
    history = Conversation()
    for index in range(0, len(turns), 2):
        history = history.append(*turns[index : index + 2])
        composition = compose(layers, PromptContext(user_input="x", conversation=history), budget=2_000)
        assert composition.tokens <= 2_000
        firsts.append(composition.messages[1].text)
    changes = sum(a != b for a, b in itertools.pairwise(firsts))
    assert 0 < changes < 40
    again = compose(layers, PromptContext(user_input="x", conversation=list(history)), budget=2_000)
    assert again.messages[1].text == firsts[-1]


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        ({"min": -1}, "min"),
        ({"min": 5, "max": 4}, "min"),
        ({"target": 5, "max": 4}, "target"),
        ({"flex": float("nan")}, "flex"),
        ({"cut": "scissors"}, "cut"),
        ({"target": 5, "max": 4, "cut": "scissors"}, "target, cut"),
    ],
)
def test_a_size_that_contradicts_itself_is_refused(numbers: dict[str, object], name: str) -> None:
    with pytest.raises(PromptError) as caught:
        Size(**numbers)  # type: ignore[arg-type]
    assert caught.value.name == name


@pytest.mark.parametrize(("limit", "reserve"), [(0, 0), (-5, 0), (10, 10), (10, -1)])
def test_a_budget_without_remaining_tokens_is_refused(limit: int, reserve: int) -> None:
    with pytest.raises(PromptError) as caught:
        Budget(limit, reserve)
    assert caught.value.name == "limit, reserve"
