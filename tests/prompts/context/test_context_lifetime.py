"""Lifetime of contexts: the garbage collector frees all parts after the last reference."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from agentkit.prompts import (
    AdditionalInfoPrompt,
    Conversation,
    Document,
    Example,
    ExamplesPrompt,
    Image,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    RenderCache,
    ToolSpec,
    UserInput,
    compose,
)
from agentkit.prompts.example_selectors import KeywordSelector
from tests.effort import tries

LAYERS = Layers(
    "You are helpful.",
    before_input=[AdditionalInfoPrompt("{{ who }}"), ExamplesPrompt(selector=KeywordSelector(1)), MemoPrompt()],
)


class Value:
    """Value of a tenant in the additional kwargs."""

    def __str__(self) -> str:
        return "a value"


class Counter:
    """A token counter made for one request."""

    name, estimated = "mine", False

    def count(self, text: str) -> int:
        return len(text)


def context(number: int, conversation: Conversation = Conversation()) -> PromptContext:  # noqa: B008
    return PromptContext(
        user_input=UserInput(f"question {number}", additional_kwargs={"who": Value(), "number": str(number)}),
        conversation=conversation,
        documents=(Document(f"document {number}"),),
        tools=(ToolSpec(f"tool_{number}"),),
        examples=(Example(f"question {number}", "answer"), Example("other", "answer")),
        extra={"who": Value(), "number": str(number)},
    )


def parts(ctx: PromptContext) -> list[weakref.ref[Any]]:
    held = [ctx, ctx.user_input, ctx.user_input.additional_kwargs["who"], ctx.extra["who"]]
    return [weakref.ref(item) for item in (*held, *ctx.documents, *ctx.tools, *ctx.examples)]


def use(ctx: PromptContext, cache: RenderCache | None = None) -> None:
    composition = compose(LAYERS, ctx, cache=cache, budget=10_000)
    composition.to_openai()
    composition.to_anthropic()
    composition.to_text()
    composition.explain()
    assert composition.tokens > 0


@pytest.mark.parametrize("with_memo", [False, True])
def test_the_parts_of_a_context_are_freed_with_the_context(with_memo: bool) -> None:
    cache = RenderCache() if with_memo else None
    ctx = context(1)
    use(ctx, cache)
    seen = parts(ctx)
    del ctx, cache
    gc.collect()
    assert [ref() for ref in seen if ref() is not None] == []


def test_a_render_cache_frees_the_previous_turn() -> None:
    cache = RenderCache()
    ctx = context(1)
    use(ctx, cache)
    seen = parts(ctx)
    ctx = context(2)
    use(ctx, cache)
    gc.collect()
    assert [ref() for ref in seen if ref() is not None] == []


@pytest.mark.parametrize("template", ["qwen2_5", "internlm2", "llama3_1"])
@pytest.mark.parametrize("budget", [None, 10_000])
def test_layers_of_fixed_text_free_the_tools_of_a_composition(template: str, budget: int | None) -> None:
    layers = Layers("You are helpful.")
    ctx = PromptContext(user_input="q", tools=[ToolSpec("look", "Looks up what tenant 17 keeps.")])
    first = compose(layers, ctx, budget=budget).to_text(template)
    assert "tenant 17" in first
    seen = [weakref.ref(tool) for tool in ctx.tools]
    del ctx
    gc.collect()
    assert [ref() for ref in seen] == [None]
    other = PromptContext(user_input="q", tools=[ToolSpec("look")])
    assert "tenant 17" not in compose(layers, other, budget=budget).to_text(template)


@pytest.mark.long
@pytest.mark.untraced
def test_thousands_of_contexts_leave_no_objects() -> None:
    cache = RenderCache()
    blocks: list[int] = []
    step = tries(700, 1_000)
    for number in range(5 * step + 1):
        composition = compose(LAYERS, context(number), cache=cache, budget=10_000)
        composition.to_openai()
        del composition
        if number in (step, 3 * step, 5 * step):
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    assert blocks[2] - blocks[1] < step // 2, blocks


def test_counters_of_a_request_leave_no_lists_in_a_conversation() -> None:
    conversation = Conversation([Message("user", f"message {number}") for number in range(100)])
    kept: list[weakref.ref[Any]] = []
    for number in range(200):
        counter = Counter()
        assert compose(Layers("x"), context(number, conversation), counter=counter).tokens > 0
        assert conversation.total(lambda message: len(message.text)) > 0
        assert conversation.join(lambda message: message.text, "\n").startswith("message 0")
        marks = conversation.derive(lambda message: Value())
        kept.append(weakref.ref(marks[0]))
    del marks
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 10


def test_a_function_used_in_each_turn_is_derived_once_next_to_new_functions() -> None:
    conversation = Conversation([Message("user", str(number)) for number in range(50)])
    asked: list[str] = []

    def wire(message: Message) -> str:
        asked.append(message.text)
        return message.text

    for _ in range(50):
        assert conversation.derive(wire) == [str(number) for number in range(50)]
        conversation.derive(lambda message: message)
    assert len(asked) == 50


def test_the_tools_of_a_session_are_serialized_once() -> None:
    cache, tools = RenderCache(), (ToolSpec("look"),)
    first, second, other = (
        compose(Layers("x"), PromptContext(user_input="q", tools=given), cache=cache).to_openai()["tools"]
        for given in (tools, (tools[0],), (ToolSpec("look"),))
    )
    assert first is second
    assert first == other and first is not other


@pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")
def test_the_cache_recognises_kwargs_with_equal_values_of_the_same_types() -> None:
    layers, cache = Layers(AdditionalInfoPrompt("{{ who }} {{ number }}"), conversation=False), RenderCache()
    kwargs: dict[str, Any] = {"who": "ada", "number": 1}
    shown: list[object] = []
    for given in (kwargs, dict(kwargs), {**kwargs, "number": True}, {**kwargs, "number": 1.0}, kwargs):
        ctx = PromptContext(user_input=UserInput("q", additional_kwargs=given))
        composition = compose(layers, ctx, cache=cache)
        shown.append(composition.system)
        assert composition.system.text == compose(layers, ctx).system.text
    assert shown[0] is shown[1]
    assert len({id(item) for item in shown}) == 4


def test_the_digest_of_a_file_keeps_no_content(tmp_path: Any) -> None:
    from agentkit_prompts.context import parts as module

    path = tmp_path / "a.png"
    path.write_bytes(b"secret content")
    assert len(Image(path).id) == 32
    assert "secret" not in repr(module._FILE_DIGESTS)


def texts_in_modules() -> set[str]:
    """Return the texts of all values of modules, the caches of functions included."""
    seen, texts = set[int](), set[str]()
    waiting: list[Any] = [
        thing
        for name, module in list(sys.modules.items())
        if name.partition(".")[0].startswith("agentkit")
        for thing in vars(module).values()
        if isinstance(thing, dict | list | set | tuple | str) or hasattr(thing, "cache_info")
    ]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | type(sys)):
            continue
        seen.add(id(thing))
        if isinstance(thing, str):
            texts.add(thing)
        elif not callable(thing) or hasattr(thing, "cache_info"):
            waiting += gc.get_referents(thing)
    return texts


def test_no_module_keeps_the_key_or_the_texts_of_a_session() -> None:
    key, word = "the key of tenant 17", "pin 4711"
    ctx = PromptContext(
        user_input=f"{word}!", session_key=key, conversation=[Message("user", word), Message("assistant", f"{word}?")]
    )
    layers = Layers(f"Serve {word}", before_input=[MemoPrompt(fence=True)], after_input=[MemoPrompt()])
    compose(layers, ctx.evolve(documents=[f"{word}."])).to_text("qwen2_5")
    compose(layers, ctx).to_openai()
    gc.collect()
    assert [text for text in texts_in_modules() if key in text or word in text] == []
