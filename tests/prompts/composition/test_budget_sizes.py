"""Properties of budgets, with a real tokenizer and with sizes of each kind."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentkit.prompts import (
    BasePrompt,
    Budget,
    BudgetError,
    Composition,
    Conversation,
    Document,
    Example,
    ExamplesPrompt,
    Image,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    PromptError,
    Rendered,
    Size,
    Template,
    TextPrompt,
    TokenCounter,
    TokenizersCounter,
    ToolCall,
    ToolPrompt,
    ToolSpec,
    UserInput,
    WrapPrompt,
    compose,
)
from agentkit.testing import strategies as some
from tests.prompts.composition.test_budget_laws import COUNTERS, fitted, recount
from tests.prompts.composition.test_composition_laws import tiles, without_orphans
from tests.prompts.laws import law

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

WORDS = "one two three four five six seven eight nine ten " * 5
TURNS = [
    message
    for index in range(40)
    for message in (Message("user", f"question {index} {WORDS}"), Message("assistant", f"answer {index} {WORDS}"))
]


@functools.cache
def made_tokenizer(folder: Path) -> TokenCounter:
    """Byte-level BPE trained on a few words: a file of the library tokenizers, whose counts are not additive."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([WORDS, "system: obey", "\n\n<|media:image:"], trainer)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return TokenizersCounter(path)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> TokenCounter:
    return made_tokenizer(tmp_path_factory.mktemp("bpe"))


def whole(layers: Layers, ctx: PromptContext, counter: TokenCounter) -> Composition:
    """Compose without a budget; a random `max` can be impossible for its prompt."""
    try:
        return compose(layers, ctx, counter=counter)
    except BudgetError:
        assume(False)
        raise AssertionError from None


def least(layers: Layers, ctx: PromptContext, counter: TokenCounter) -> int:
    """Return the smallest possible limit."""
    try:
        return max(1, compose(layers, ctx, budget=1, counter=counter).tokens)
    except BudgetError as error:
        return error.required


def text_alone(composition: Composition) -> bool:
    """True if the messages alone determine the count."""
    return all(isinstance(message.content, str) for message in composition.messages)


@law
@given(
    some.layers(sized=True, maximum=True),
    some.contexts() | some.contexts(with_media=False),
    st.floats(0.0, 1.1),
    st.integers(0, 3),
)
def test_a_composition_keeps_the_limit_each_maximum_and_each_fence(
    bpe: TokenCounter, layers: Layers, ctx: PromptContext, share: float, which: int
) -> None:
    counter = [*COUNTERS, bpe][which]
    uncut, needed = whole(layers, ctx, counter), least(layers, ctx, counter)
    assert needed == 1 or fitted(layers, ctx, needed - 1, counter) is None
    limit = max(needed, int(needed + share * (uncut.tokens - needed)))
    composition = fitted(layers, ctx, limit, counter)
    assert composition is not None
    assert composition.tokens <= limit
    assert sum(row.tokens for row in composition.explain()) == composition.tokens
    for each in (uncut, composition):
        if text_alone(each):
            assert each.tokens == recount(each, counter)
    tiles(composition)
    without_orphans(composition.messages)
    within_every_maximum(layers, composition)
    in_fences(composition)


def within_every_maximum(layers: Layers, composition: Composition) -> None:
    sizes = {path: prompt.size for path, prompt in layers.prompts()}
    sizes |= {"conversation": layers.history, "intermediate": layers.traffic}
    for row in composition.explain():
        most = sizes[row.layer].max if row.layer in sizes else None
        assert most is None or row.tokens <= most


def in_fences(composition: Composition) -> None:
    for _, prompt, rendered in (fragment for section in composition.sections for fragment in section.fragments):
        if prompt.fence and rendered.text:
            first, *_, last = rendered.text.split("\n")
            assert first.startswith("<untrusted-")
            assert last == first.replace("<", "</")
            assert rendered.text.count(first[1:-1]) == 2


@law
@given(
    some.layers(sized=True, maximum=True), some.contexts(), st.floats(0.0, 1.1), st.floats(0.0, 1.1), st.integers(0, 3)
)
def test_a_larger_limit_keeps_at_least_the_same_part_of_each_layer(
    bpe: TokenCounter, layers: Layers, ctx: PromptContext, one: float, other: float, which: int
) -> None:
    counter = [*COUNTERS, bpe][which]
    tokens = whole(layers, ctx, counter).tokens
    small, large = sorted((max(1, int(tokens * one)), max(1, int(tokens * other))))
    less, more = fitted(layers, ctx, small, counter), fitted(layers, ctx, large, counter)
    if less is None:
        return
    assert more is not None, "what fitted the smaller limit fits the larger one"
    assert set(more.trims) <= set(less.trims)
    for path, trim in more.trims.items():
        assert less.trims[path].remaining <= trim.remaining
        assert less.trims[path].of == trim.of
    assert all(trim.remaining < trim.of for trim in less.trims.values())
    sent, recent = list(more.conversation), list(more.intermediate)
    assert list(less.conversation) == sent[len(sent) - len(less.conversation) :]
    assert list(less.intermediate) == recent[len(recent) - len(less.intermediate) :]


def rows(layers: Layers, ctx: PromptContext, limit: int | None = None) -> dict[str, int]:
    return {row.layer: row.tokens for row in compose(layers, ctx, budget=limit).explain()}


ASK = PromptContext(user_input="x")


@pytest.mark.parametrize("cut", ["head", "tail", "middle", "items"])
def test_a_minimum_is_kept_for_any_priorities(cut: Any) -> None:
    memo = MemoPrompt(size=Size(cut=cut, min=30, priority=-5))
    layers = Layers(TextPrompt(WORDS * 4, size=Size(cut="head", priority=9)), before_input=memo)
    ctx = PromptContext(user_input="x", documents=["word " * 12] * 8)
    for limit in range(60, 200, 7):
        assert rows(layers, ctx, limit)["before_input[0]"] >= 30


def test_a_target_is_reached_before_the_surplus_is_shared() -> None:
    layers = Layers([TextPrompt(WORDS, size=Size(cut="head", target=goal)) for goal in (20, 40)])
    at_targets = rows(layers, ASK, 75)
    assert at_targets["system[0]"] == pytest.approx(20, abs=4)
    assert at_targets["system[1]"] == pytest.approx(40, abs=4)
    above = rows(layers, ASK, 115)
    assert above["system[0]"] - at_targets["system[0]"] == pytest.approx(
        above["system[1]"] - at_targets["system[1]"], abs=5
    )


def test_a_maximum_ends_the_share_of_the_surplus() -> None:
    layers = Layers(
        [TextPrompt(WORDS, size=Size(cut="head", target=0, max=15)), TextPrompt(WORDS, size=Size(cut="head", target=0))]
    )
    kept = rows(layers, ASK, 70)
    assert kept["system[0]"] <= 15 < 35 < kept["system[1]"]


def test_prompts_of_equal_priority_grow_in_the_order_of_the_request() -> None:
    layers = Layers("Be brief.", before_input=MemoPrompt(size=Size(cut="items", priority=10)))
    ctx = PromptContext(user_input="x", conversation=TURNS[:8], documents=[WORDS] * 20)
    fit = compose(layers, ctx, budget=700)
    assert len(fit.conversation) == 8, "the history has the same priority and is sent first"
    assert fit.trims["before_input[0]"].status == "trimmed"


def test_a_minimum_of_the_history_applies_at_each_border_of_blocks() -> None:
    layers = Layers("Be brief.", history=Size(cut="items", min=1_000), history_block=700)
    filler = TextPrompt(WORDS * 90, size=Size(cut="head", priority=90))
    for skipped in range(0, 20, 2):
        ctx = PromptContext(user_input="x", conversation=TURNS[skipped:])
        assert rows(layers.model_copy(update={"after_input": (filler,)}), ctx, 2_000)["conversation"] >= 1_000


def test_the_report_counts_the_steps_that_are_sent() -> None:
    ctx = PromptContext(user_input="x", conversation=TURNS)
    for limit in range(300, 5_000, 333):
        fit = compose(Layers("Be brief."), ctx, budget=limit)
        assert fit.trims["conversation"].remaining * 2 == len(fit.conversation)


def test_equal_views_of_different_conversations_have_equal_cuts() -> None:
    longer = Conversation([Message("user", "earlier " * 37), Message("assistant", "yes " * 51), *TURNS])
    view, fresh = longer.window(2, len(longer)), Conversation(TURNS)
    assert view == fresh
    for limit in range(300, 5_000, 111):
        one, other = (
            compose(Layers("S"), PromptContext(user_input="x", conversation=history), budget=limit)
            for history in (view, fresh)
        )
        assert one.messages == other.messages


def test_a_history_with_cut_drop_is_dropped_completely() -> None:
    layers = Layers("S", history=Size(cut="drop"))
    assert rows(layers, PromptContext(user_input="x", conversation=TURNS), 2_000)["conversation"] == 0
    assert rows(layers, PromptContext(user_input="x", conversation=TURNS[:2]), 2_000)["conversation"] > 0


def test_a_turn_larger_than_the_budget_is_dropped_and_named() -> None:
    huge = [Message("user", WORDS * 100), Message("assistant", "so?")]
    fit = compose(Layers("S"), PromptContext(user_input="x", conversation=huge), budget=100)
    assert [message.role for message in fit.messages] == ["system", "user"]
    assert fit.why("conversation[0]").status == "cut"
    assert (fit.trims["conversation"].remaining, fit.trims["conversation"].of) == (0, 1)


def test_the_error_names_traffic_larger_than_the_budget() -> None:
    traffic = [Message("assistant", "", (ToolCall("1", "look"),)), Message("tool", WORDS * 50, tool_call_id="1")]
    with pytest.raises(BudgetError) as caught:
        compose(Layers("S"), PromptContext(user_input="x", intermediate=traffic), budget=100)
    assert caught.value.parts["intermediate"] > 100


def test_orphans_are_not_counted_and_a_cut_creates_none() -> None:
    history = [
        Message("tool", WORDS * 50, tool_call_id="lost"),
        *TURNS[:4],
        Message("assistant", "", (ToolCall("9", "look"),)),
    ]
    ctx = PromptContext(user_input="x", conversation=history)
    assert compose(Layers("S"), ctx).tokens < 500
    for limit in range(20, 500, 17):
        without_orphans(compose(Layers("S"), ctx, budget=limit).messages)


def test_the_error_names_a_wrapper_whose_text_exceeds_its_max() -> None:
    inner = TextPrompt("x " * 50, size=Size(cut="drop"))
    layers = Layers(WrapPrompt([inner], WORDS + "{{ wrapped_str }}", keep_empty=True, size=Size(max=10)))
    with pytest.raises(BudgetError) as caught:
        compose(layers, ASK)
    assert (caught.value.name, caught.value.limit) == ("system[0]", 10)
    assert caught.value.required > 10


def test_a_maximum_inside_a_wrapper_is_reported_as_a_cut() -> None:
    inner = TextPrompt(WORDS, size=Size(cut="head", max=10))
    composition = compose(Layers(WrapPrompt([inner], "<{{ wrapped_str }}>")), ASK)
    row = composition.explain()[0]
    assert (row.status, "max" in row.why) == ("trimmed", True)
    assert composition.system.text.endswith("\u2026>")


def test_a_wrapper_without_remaining_children_is_dropped_unless_it_is_kept() -> None:
    inner = TextPrompt(WORDS, size=Size(cut="drop"))
    for keep_empty, text, status in ((True, "Rules: ", "trimmed"), (False, "", "dropped")):
        wrap = WrapPrompt([inner], "Rules: {{ wrapped_str }}", keep_empty=keep_empty)
        composition = compose(Layers(wrap), ASK, budget=30)
        assert (composition.system.text if text else "", composition.explain()[0].status) == (text, status)


def test_the_minimums_include_the_text_around_children() -> None:
    inner = TextPrompt(WORDS, size=Size(cut="drop"))
    layers = Layers(WrapPrompt([inner], "A" * 400 + "{{ wrapped_str }}", keep_empty=True))
    with pytest.raises(BudgetError) as caught:
        compose(layers, ASK, budget=60)
    assert caught.value.parts["system[0]"] == 100


class Shout(WrapPrompt):
    """Wrapper with a custom `render`, which does not use `render_around`."""

    def render(self, ctx: PromptContext) -> Rendered:
        return Rendered.from_text(super().render(ctx).plain.upper())


@pytest.mark.parametrize("cut", ["none", "drop"])
def test_a_wrapper_with_a_custom_render_has_the_same_text_under_a_budget(cut: Any) -> None:
    shout = Shout(wrapped_prompts=[TextPrompt("hello", size=Size(cut="drop"))], size=Size(cut=cut, priority=3))
    layers = Layers([shout, TextPrompt(WORDS, size=Size(cut="drop"))])
    assert compose(layers, ASK, budget=30).system.text == "HELLO"


def test_nested_priorities_apply_inside_and_the_outer_priority_outside() -> None:
    pair = [TextPrompt(WORDS, name=name, size=Size(cut="drop", priority=rank)) for name, rank in (("a", 1), ("b", 2))]
    inner = WrapPrompt(wrapped_prompts=pair)
    layers = Layers([WrapPrompt(wrapped_prompts=[inner]), TextPrompt(WORDS, size=Size(cut="drop", priority=5))])
    order: list[set[str]] = [
        {span.prompt for span in compose(layers, ASK, budget=limit).spans if span.message == 0}
        for limit in (85, 150, 210)
    ]
    deep = "system[0].wrapped_prompts[0].wrapped_prompts"
    assert [("system[1]" in shown, f"{deep}[1]" in shown, f"{deep}[0]" in shown) for shown in order] == [
        (True, False, False),
        (True, True, False),
        (True, True, True),
    ]


def test_tools_media_and_the_frame_of_messages_are_counted() -> None:
    bare = compose(Layers("S"), ASK).tokens
    assert compose(Layers("S"), ASK.evolve(tools=(ToolSpec("look", "a" * 400),))).tokens >= bare + 100
    assert compose(Layers("S"), PromptContext(user_input=[Image(b"x")])).tokens >= 800
    assert compose(Layers("S"), ASK.evolve(conversation=Conversation([Message("user", "")]))).tokens > bare
    with pytest.raises(BudgetError) as caught:
        compose(Layers("S"), ASK.evolve(tools=(ToolSpec("look", "a" * 400),)), budget=50)
    assert caught.value.parts["tools"] >= 100


@pytest.mark.parametrize("cut", ["head", "tail", "middle"])
def test_fences_media_and_atomic_documents_survive_each_cut(cut: Any) -> None:
    text = "{{ user_input }}{% for d in documents %}{{ d.text }}{% endfor %}"
    layers = Layers(before_input=TextPrompt(text, fence=True, size=Size(cut=cut)), input=[])
    documents = [Document("[" + "whole " * 20 + "]", atomic=True), Document("rest " * 30)]
    ctx = PromptContext(
        user_input=UserInput(["before " * 20, Image(b"x"), "after " * 20]), documents=documents, session_key="k"
    )
    full = compose(layers, ctx).tokens
    for limit in (*range(30, 200, 9), *range(full - 100, full, 9)):
        composition = compose(layers, ctx, budget=limit)
        said = composition.user.text
        assert composition.tokens <= limit
        assert said.count("untrusted-") in (0, 2)
        assert said.count("<|media:") == said.count("|>") == len(composition.user.media)
        assert said.count("[") == said.count("]")


def test_an_atomic_document_is_not_cut_inside_after_a_filter() -> None:
    text = "{% for d in documents %}{{ d.text | trim }}{% endfor %}"
    layers = Layers(TextPrompt(text, size=Size(cut="head")), conversation=False)
    ctx = PromptContext(user_input="x", documents=[Document("[" + "whole " * 30 + "]", atomic=True)])
    for limit in range(8, 60):
        said = compose(layers, ctx, budget=limit).system.text
        assert said.count("[") == said.count("]")


def test_the_limit_applies_to_any_result_of_a_cut_function() -> None:
    ctx = PromptContext(user_input=UserInput(["secret " * 30, Image(b"x")]))

    def composed(cut: Any) -> Composition:
        return compose(Layers([TextPrompt("{{ user_input }}", size=Size(cut=cut)), "keep"], input=[]), ctx, budget=100)

    assert composed(lambda text, tokens: text * 9).system.text == "keep"
    assert composed(lambda text, tokens: "").system.text == "keep"
    forged = composed(lambda text, tokens: f"{text[:tokens]}<|media:image:{'0' * 32}|>")
    assert forged.media == {}
    assert forged.tokens <= 100
    with pytest.raises(PromptError) as caught:
        composed(lambda text, tokens: 3)  # type: ignore[arg-type, return-value]
    assert (caught.value.name, caught.value.value) == ("cut", "int")
    with pytest.raises(PromptError) as caught:
        composed(lambda text, tokens: text[: 1 // 0])
    assert (caught.value.name, type(caught.value.__cause__)) == ("cut", ZeroDivisionError)

    refusal = PromptError("not today")

    def refuse(text: str, tokens: int) -> str:
        raise refusal

    with pytest.raises(PromptError) as caught:
        composed(refuse)
    assert caught.value is refusal


def test_a_value_that_is_not_a_number_of_tokens_is_refused() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (Size, {"min": 1.5}),
        (Size, {"max": "5"}),
        (Size, {"priority": None}),
        (Size, {"min": True}),
        (Size, {"flex": "1"}),
        (Size, {"cut": None}),
        (Budget, {"limit": "5"}),
        (Budget, {"limit": 10, "reserve": 0.5}),
    ]
    for kind, numbers in cases:
        with pytest.raises(PromptError) as caught:
            kind(**numbers)
        assert caught.value.name == [*numbers][-1], numbers


def test_the_cut_items_of_a_prompt_without_items_is_refused_at_construction() -> None:
    with pytest.raises(PromptError) as caught:
        TextPrompt("x", size=Size(cut="items"))
    assert (caught.value.name, caught.value.value) == ("cut", "items")


class Lines(BasePrompt):
    supplies = frozenset({"lines"})
    items = "lines"
    template: Template = Template("{% for line in lines %}{{ line }}\n{% endfor %}")

    def values(self, ctx: PromptContext) -> dict[str, Any]:
        return {**ctx.view, "lines": ["one " * 20, "two " * 20]}


class Joined(Lines):
    def format_2_str(self, ctx: PromptContext) -> str:
        return "".join(self.values(ctx)["lines"])


class Misspelt(Lines):
    items = "line"


def test_items_that_a_class_computes_are_cut() -> None:
    whole = compose(Layers(Lines(size=Size(cut="items"))), PromptContext(user_input="x"))
    cut = compose(whole.layers, whole.context, budget=whole.tokens - 1)
    assert (whole.system.text, cut.system.text) == ("one " * 20 + "\n" + "two " * 20 + "\n", "one " * 20 + "\n")
    assert cut.system.segments()[0].pointer == "lines[0]"


def test_the_cut_items_of_values_without_items_is_refused_at_construction() -> None:
    for prompt, size, name in ((Joined, Size(cut="items"), "cut"), (Misspelt, Size(), "items")):
        with pytest.raises(PromptError) as caught:
            prompt(size=size)
        assert caught.value.name == name
    assert Joined().format_2_str(PromptContext(user_input="x")) == "one " * 20 + "two " * 20


@pytest.mark.parametrize("cut", ["head", "tail", "middle", lambda text, tokens: text])
def test_an_unsupported_cut_of_the_history_is_refused(cut: Any) -> None:
    with pytest.raises(PromptError) as caught:
        Layers("S", history=Size(cut=cut))
    assert caught.value.name == "history.cut"


def test_an_output_schema_is_counted() -> None:
    schema = {"type": "object", "properties": {"a": {"description": WORDS}}}
    assert compose(Layers("S"), ASK, output_schema=schema).tokens > compose(Layers("S"), ASK).tokens + 50


def test_a_redaction_that_exceeds_the_budget_is_refused() -> None:
    ctx = PromptContext(user_input="x", documents=["word " * 20] * 9)
    fit = compose(Layers("S", before_input=MemoPrompt()), ctx, budget=150)
    assert fit.mapped(lambda text: text.replace("word", "****")).tokens <= 150
    with pytest.raises(BudgetError) as caught:
        fit.mapped(lambda text: text.replace("word", "[REDACTED SECRET]"))
    assert caught.value.limit == 150
    assert caught.value.required > 150


def test_over_200_turns_the_prefix_changes_at_most_once_per_step_and_rarely() -> None:
    layers = Layers(["You are brief.", ToolPrompt()], before_input=MemoPrompt())
    history = Conversation()
    before: list[Message] = []
    moves: list[int] = []
    for turn in range(200):
        asked = Message("user", f"question {turn} " * 10)
        traffic = Conversation()
        for step in range(3):
            ctx = PromptContext(
                user_input=asked.text, conversation=history, intermediate=traffic, documents=[Document(WORDS)] * 3
            )
            composition = compose(layers, ctx, budget=3_000)
            assert composition.tokens <= 3_000
            stable = list(composition.messages[: 1 + len(composition.conversation)])
            moves.append(stable[: len(before)] != before)
            before = stable
            name = f"{turn}-{step}"
            call = Message("assistant", "", (ToolCall(name, "look"),))
            traffic = traffic.append(call, Message("tool", "seen " * (turn * 7 % 60), tool_call_id=name))
        history = history.append(asked, *traffic, Message("assistant", "so " * (5 + turn * 11 % 75)))
    assert 0 < sum(moves) < 100
    assert all(sum(moves[at : at + 3]) <= 2 for at in range(0, 600, 3))
    assert sum(a and b for a, b in itertools.pairwise(moves)) < 10


def test_a_kept_prefix_has_the_same_hash_in_all_steps_of_a_turn() -> None:
    layers = Layers("You are brief.")
    history, traffic = Conversation(TURNS), Conversation()
    hashes: set[str] = set()
    for step in range(8):
        composition = compose(layers, PromptContext(user_input="x", conversation=history, intermediate=traffic))
        hashes.add(composition.prefix_hash)
        call = Message("assistant", "", (ToolCall(str(step), "look"),))
        traffic = traffic.append(call, Message("tool", "seen", tool_call_id=str(step)))
    assert len(hashes) == 1
    asked = compose(layers, PromptContext(user_input="another", conversation=history))
    assert asked.prefix_hash in hashes


def test_selected_examples_are_cut_as_complete_pairs_with_a_real_tokenizer(bpe: TokenCounter) -> None:
    layers = Layers(ExamplesPrompt())
    ctx = PromptContext(user_input="x", examples=[Example(f"in {n} {WORDS}", f"out {n}") for n in range(6)])
    for limit in range(10, compose(layers, ctx, counter=bpe).tokens, 31):
        composition = compose(layers, ctx, budget=limit, counter=bpe)
        assert composition.tokens <= limit
        assert composition.system.text.count("Input: ") == composition.system.text.count("Output: out ")


def longer_from_fewer_items(size: Size) -> WrapPrompt:
    template = "{% if wrapped_str | length > 60 %}all{% elif wrapped_str %}" + WORDS + "{% endif %}"
    return WrapPrompt([TextPrompt("x " * 40, size=Size(cut="head"))], template, size=size)


@pytest.mark.parametrize("nested", [False, True])
def test_a_prompt_that_grows_as_its_items_shrink_keeps_its_max_at_each_limit(nested: bool) -> None:
    shared = Size(cut="head", target=0, flex=1.0)
    prompts = [longer_from_fewer_items(Size(max=5, target=0, flex=0.01)), TextPrompt("y " * 300, size=shared)]
    layers = Layers([WrapPrompt(prompts, "{{ wrapped_str }}")] if nested else prompts)
    uncut = compose(layers, ASK, counter=COUNTERS[0])
    assert uncut.system.text.startswith("all")
    for limit in range(least(layers, ASK, COUNTERS[0]), uncut.tokens):
        composition = compose(layers, ASK, budget=limit, counter=COUNTERS[0])
        assert composition.tokens <= limit
        assert "one" not in composition.system.text


def test_more_items_are_kept_if_fewer_items_exceed_the_max() -> None:
    layers = Layers([longer_from_fewer_items(Size(min=1, max=5)), TextPrompt("y " * 300, size=Size(cut="head"))])
    composition = compose(layers, ASK, budget=least(layers, ASK, COUNTERS[0]), counter=COUNTERS[0])
    assert composition.system.text == "all"


def test_the_table_reports_a_trim_by_a_max_inside_a_prompt() -> None:
    ctx = PromptContext(user_input="x", documents=[Document("word " * 20, source="w", position=at) for at in range(4)])
    inner = MemoPrompt(size=Size(max=60, cut="items"))
    layers = Layers(before_input=WrapPrompt([inner], "Read:\n{{ wrapped_str }}"), conversation=False)
    row = compose(layers, ctx).explain()[0]
    assert (row.status, row.why) == ("trimmed", "2 of 4 pieces of text kept: a prompt inside has a max")
    own = compose(Layers(before_input=inner, conversation=False), ctx).explain()[0]
    assert own.why == "2 of 4 items kept: its max is 60 tokens, and documents[2] does not fit"


def test_a_minimum_above_the_size_of_the_complete_text_requires_only_the_text() -> None:
    layers = Layers(after_input=TextPrompt("In English.", size=Size(min=4, cut="head")), conversation=False)
    ctx = PromptContext(user_input="")
    whole = compose(layers, ctx)
    with pytest.raises(BudgetError) as caught:
        compose(layers, ctx, budget=whole.tokens - 1)
    assert caught.value.required == whole.tokens
    assert compose(layers, ctx, budget=whole.tokens).user.text == "In English."


def test_the_parts_of_a_budget_error_add_up_to_the_required_tokens() -> None:
    spec = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
    with pytest.raises(BudgetError) as caught:
        compose(Layers("Be brief. " * 10), PromptContext(user_input="x", tools=[spec]), budget=5)
    assert [*caught.value.parts] == ["system[0]", "input[0]", "tools", "overhead"]
    assert sum(caught.value.parts.values()) == caught.value.required
    assert caught.value.limit == 5
