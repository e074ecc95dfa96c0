"""Laws of render caches: each turn of a session composes as without a cache."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    Composition,
    Conversation,
    Document,
    Example,
    ExamplesPrompt,
    Layers,
    MediaError,
    MemoPrompt,
    Message,
    PromptContext,
    RenderCache,
    Rendered,
    Template,
    TextPrompt,
    ToolCall,
    UserInput,
    UserInputPrompt,
    WrapPrompt,
    compose,
)
from agentkit.testing import strategies as some
from tests.prompts.laws import law

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")


def payload(composition: Composition) -> object:
    try:
        return composition.to_openai()
    except MediaError as error:  # A request cannot contain all kinds of media.
        return str(error)


@law
@given(some.layers(), st.lists(some.contexts(), min_size=1, max_size=3), st.data())
def test_a_cache_does_not_change_the_payload(
    layers: Layers, contexts: list[PromptContext], data: st.DataObject
) -> None:
    cache = RenderCache()
    order = data.draw(st.lists(st.sampled_from(range(len(contexts))), min_size=1, max_size=6))
    for index in order:
        ctx = contexts[index]
        again = data.draw(st.sampled_from(["same", "copy", "mixed"]))
        if again == "copy":
            ctx = copy(ctx)
        elif again == "mixed":
            other = contexts[data.draw(st.sampled_from(order))]
            ctx = ctx.evolve(documents=other.documents, conversation=other.conversation, extra=other.extra)
        with_memo, without = compose(layers, ctx, cache=cache), compose(layers, ctx)
        assert with_memo.messages == without.messages
        assert with_memo.spans == without.spans
        assert with_memo.tokens == without.tokens
        assert payload(with_memo) == payload(without)
        assert with_memo.to_text() == without.to_text()


@law
@given(some.layers(sized=True), some.contexts(), some.contexts(), st.integers(5, 400))
def test_a_cache_does_not_change_the_payload_under_a_budget(
    layers: Layers, one: PromptContext, other: PromptContext, limit: int
) -> None:
    from agentkit.prompts import BudgetError

    cache = RenderCache()
    for ctx in (one, other, one):
        try:
            without = compose(layers, ctx, budget=limit)
        except BudgetError:
            with pytest.raises(BudgetError):
                compose(layers, ctx, budget=limit, cache=cache)
            continue
        assert compose(layers, ctx, budget=limit, cache=cache).messages == without.messages


ALIKE: list[list[Any]] = [
    [1, True, 1.0],
    [0, False, 0.0, -0.0],
    ["", None, [], {}, ()],
    ["a", ["a"], ("a",), {"a": 1}, {"a": True}],
    [b"", "", None],
    [10**20, float(10**20)],
    [float("inf"), float("-inf")],
    ["A", "a", "\u00e9", "e\u0301"],
]


@pytest.mark.parametrize("values", ALIKE, ids=repr)
@pytest.mark.parametrize("text", ["{{ additional_kwargs.x is none }}|{{ additional_kwargs.x is string }}", "{{ x }}"])
def test_equal_values_of_different_types_are_distinguished(values: list[Any], text: str) -> None:
    kind: type[BasePrompt] = AdditionalInfoPrompt if text == "{{ x }}" else TextPrompt
    layers = Layers(before_input=kind(text))
    cache = RenderCache()
    for value in values * 2:
        if isinstance(value, bytes) and kind is AdditionalInfoPrompt:
            continue
        ctx = PromptContext(user_input=UserInput("q", additional_kwargs={"x": value}))
        assert compose(layers, ctx, cache=cache).messages == compose(layers, ctx).messages


def test_a_list_that_changes_between_turns_is_rendered_again() -> None:
    layers = Layers(before_input=AdditionalInfoPrompt("{{ files }}"))
    files = ["a"]
    cache = RenderCache()
    said = []
    for name in "bcd":
        ctx = PromptContext(user_input=UserInput("q", additional_kwargs={"files": files}))
        said.append(compose(layers, ctx, cache=cache).user.text)
        files.append(name)
    assert said == ['["a"]\n\nq', '["a", "b"]\n\nq', '["a", "b", "c"]\n\nq']


def test_a_mapping_of_the_developer_that_changes_is_rendered_again() -> None:
    inner = {"x": 1}
    layers = Layers(TextPrompt("{{ extra.inner.x }}"), conversation=False)
    cache = RenderCache()
    said = []
    for number in (1, 2, 3):
        inner["x"] = number
        ctx = PromptContext(user_input="q", extra={"inner": inner})
        said.append(compose(layers, ctx, cache=cache).system.text)
    assert said == ["1", "2", "3"]


def test_a_context_with_a_mutated_value_is_rendered_again() -> None:
    files = ["a"]
    layers = Layers(before_input=AdditionalInfoPrompt("{{ files }}"))
    ctx = PromptContext(user_input=UserInput("q", additional_kwargs={"files": files}))
    cache = RenderCache()
    first = compose(layers, ctx, cache=cache).user.text
    files.append("b")
    assert compose(layers, ctx, cache=cache).user.text != first


def test_the_steps_of_a_turn_render_its_input_once() -> None:
    layers = Layers("Be brief.", input=TextPrompt("{{ additional_kwargs.root }}: {{ user_input }}"))
    cache, ctx = RenderCache(), PromptContext(user_input=UserInput("q", {"root": "/a"}))
    call = Message("assistant", tool_calls=(ToolCall("c", "look"),))
    first = compose(layers, ctx, cache=cache)
    second = compose(layers, ctx.evolve(intermediate=[call, Message("tool", "seen", tool_call_id="c")]), cache=cache)
    assert second.user is first.user
    assert len(second.messages) == len(first.messages) + 2
    assert compose(layers, ctx.evolve(user_input=UserInput("q", {"root": "/b"})), cache=cache).user.text == "/b: q"


def test_an_input_with_mutated_kwargs_is_rendered_again() -> None:
    files = ["a"]
    layers = Layers(input=TextPrompt("{{ user_input.additional_kwargs.files | length }} {{ user_input }}"))
    ctx = PromptContext(user_input=UserInput("q", additional_kwargs={"files": files}))
    cache = RenderCache()
    assert compose(layers, ctx, cache=cache).user.text == "1 q"
    files.append("b")
    assert compose(layers, ctx, cache=cache).user.text == "2 q"


def test_a_new_selection_of_examples_is_rendered() -> None:
    class InTurn:
        def select(self, query: str, examples: Any) -> list[Example]:
            return [next(turn)]

    turn = iter([Example("cat", "meow"), Example("dog", "woof")] * 2)
    layers = Layers(ExamplesPrompt(selector=InTurn()), conversation=False)
    ctx = PromptContext(user_input="q", examples=[Example("cat", "meow"), Example("dog", "woof")])
    cache = RenderCache()
    said = [compose(layers, ctx, cache=cache).system.text for _ in range(2)]
    assert ["meow" in said[0], "woof" in said[1]] == [True, True]


def test_a_custom_prompt_with_state_is_not_cached() -> None:
    class Counting(BasePrompt):
        template: Template = Template("")

        def render(self, ctx: PromptContext) -> Rendered:
            calls.append(1)
            return Rendered.from_text(str(len(calls)))

    calls: list[int] = []
    layers = Layers([Counting(), WrapPrompt(wrapped_prompts=[Counting()])], conversation=False)
    cache, ctx = RenderCache(), PromptContext(user_input="q")
    assert compose(layers, ctx, cache=cache).system.text == "1\n\n2"
    assert compose(layers, ctx, cache=cache).system.text == "3\n\n4"


def test_a_custom_selector_is_called_for_each_question() -> None:
    class ByWord:
        def select(self, query: str, examples: Any) -> list[Example]:
            return [example for example in examples if example.input in query]

    layers = Layers(ExamplesPrompt(selector=ByWord()), conversation=False)
    examples = (Example("cat", "meow"), Example("dog", "woof"))
    cache = RenderCache()
    said = [
        compose(layers, PromptContext(user_input=word, examples=examples), cache=cache).system.text
        for word in ("a cat", "a dog", "a cat")
    ]
    assert ["meow" in said[0], "woof" in said[1], "meow" in said[2]] == [True] * 3
    assert "woof" not in said[0]
    assert "meow" not in said[1]


def test_the_locale_is_part_of_the_key_of_the_cache() -> None:
    layers = Layers(TextPrompt(Template({"en": "Hello", "zh": "\u4f60\u597d"})), conversation=False)
    cache = RenderCache()
    said = [
        compose(layers, PromptContext(user_input="q", locale=locale), cache=cache).system.text
        for locale in ("en", "zh-CN", "en", None, "fr")
    ]
    assert said == ["Hello", "\u4f60\u597d", "Hello", "Hello", "Hello"]


def test_two_layers_can_share_a_cache() -> None:
    cache, ctx = RenderCache(), PromptContext(user_input="q")
    one, other = Layers("one"), Layers("other")
    for layers, text in ((one, "one"), (other, "other"), (one, "one")):
        assert compose(layers, ctx, cache=cache).system.text == text


def test_a_growing_conversation_in_text_is_rendered_again() -> None:
    from agentkit.prompts import ConversationPrompt

    layers = Layers(before_input=ConversationPrompt(), conversation=False)
    cache, history = RenderCache(), Conversation()
    for number in range(5):
        history = history.append(Message("user", str(number)))
        ctx = PromptContext(user_input="q", conversation=history)
        assert compose(layers, ctx, cache=cache).messages == compose(layers, ctx).messages


def test_documents_that_differ_only_in_trust_are_distinguished() -> None:
    document = Document("same")
    layers = Layers(before_input=[MemoPrompt(), UserInputPrompt()], input=[])
    cache = RenderCache()
    for item in (document, replace(document, trust="trusted"), document):
        ctx = PromptContext(user_input="q", documents=(item,))
        assert compose(layers, ctx, cache=cache).spans == compose(layers, ctx).spans
