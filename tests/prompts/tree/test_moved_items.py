"""Trust and origin of items that a prompt class sorts, filters, repeats or replaces in `values` or in `render`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import pytest

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    Budget,
    Composition,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    RecalledMessage,
    RecalledPrompt,
    RenderCache,
    Rendered,
    Size,
    Template,
    TextPrompt,
    WrapPrompt,
    compose,
)
from agentkit.prompts.example_selectors import StaticSelector
from agentkit.run.parts.citations import citations, unknown_labels
from agentkit_prompts.composition.untrusted_sources import untrusted_sources
from agentkit_prompts.tokens.budget import Cut

CTX = PromptContext(
    user_input="x",
    documents=[
        Document("newest", source="a.md", label="a.md#0"),
        Document("middle", source="b.md", label="b.md#0", trust="trusted"),
        Document("oldest", source="c.md", label="c.md#0", trust="trusted"),
    ],
    knowledge=[Fact("one", source="f1"), Fact("two", source="f2")],
    recalled=[
        RecalledMessage("first", "user", session="s1", id="1"),
        RecalledMessage("last", "user", session="s2", id="2"),
    ],
    examples=[Example("q1", "a1"), Example("q2", "a2"), Example("q3", "a3")],
    conversation=[Message("user", "before"), Message("assistant", "after")],
)
Values: TypeAlias = Callable[[PromptContext], Mapping[str, Any]]


def with_values(base: type[BasePrompt], change: Values, **options: Any) -> BasePrompt:
    """Return a prompt of a subclass of `base` with changed values."""

    class Own(base):  # type: ignore[misc,valid-type]
        supplies: ClassVar[frozenset[str]] = base.supplies | {"best", "groups"}

        def values(self, ctx: PromptContext) -> Mapping[str, Any]:
            return {**super().values(ctx), **change(ctx)}

    return Own(**options)


def origins(composition: Composition) -> list[tuple[str, str, str]]:
    """Return text, pointer and trust of each printed text of an item."""
    return [
        (span.text, span.pointer, span.trust)
        for span in composition.spans
        if span.line is not None and span.text in {"newest", "middle", "oldest", "one", "two", "first", "last"}
    ]


A = ("newest", "documents[0].text", "untrusted")
B = ("middle", "documents[1].text", "trusted")
C = ("oldest", "documents[2].text", "trusted")


def documents(change: Callable[[Sequence[Document]], Any]) -> Values:
    return lambda ctx: {"documents": change(ctx.documents)}


def _reversed(items: Sequence[Document]) -> Sequence[Document]:
    return items[::-1]


CASES: list[tuple[str, BasePrompt, list[tuple[str, str, str]]]] = [
    ("sort", with_values(MemoPrompt, documents(lambda items: sorted(items, key=lambda item: item.text))), [B, A, C]),
    ("reverse", with_values(MemoPrompt, documents(_reversed)), [C, B, A]),
    ("view", with_values(MemoPrompt, lambda ctx: {"documents": ctx.view["documents"][::-1]}), [C, B, A]),
    (
        "filter",
        with_values(MemoPrompt, documents(lambda items: [item for item in items if item.trust == "trusted"])),
        [B, C],
    ),
    ("repeat", with_values(MemoPrompt, documents(lambda items: (items[2], items[0], items[2]))), [C, A, C]),
    ("the same", with_values(MemoPrompt, documents(lambda items: items)), [A, B, C]),
    (
        "an item of the class",
        with_values(MemoPrompt, documents(lambda items: [Document("oldest", source="c.md"), items[1]])),
        [("oldest", "", "untrusted"), B],
    ),
    (
        "a trusted item of the class",
        with_values(MemoPrompt, documents(lambda items: [Document("one", trust="trusted"), items[0]])),
        [("one", "", "trusted"), A],
    ),
    (
        "facts",
        with_values(KnowledgePrompt, lambda ctx: {"knowledge": ctx.knowledge[::-1]}),
        [("two", "knowledge[1].text", "untrusted"), ("one", "knowledge[0].text", "untrusted")],
    ),
    (
        "recalled",
        with_values(
            RecalledPrompt, lambda ctx: {"recalled": sorted(ctx.recalled, key=lambda item: item.id, reverse=True)}
        ),
        [("last", "recalled[1].text", "untrusted"), ("first", "recalled[0].text", "untrusted")],
    ),
    (
        "facts and documents",
        with_values(
            TextPrompt,
            lambda ctx: {"documents": ctx.documents[1:], "knowledge": ctx.knowledge[1:]},
            template="{% for x in documents %}{{ x.text }};{% endfor %}{{ knowledge[0].text }}",
        ),
        [B, C, ("two", "knowledge[1].text", "untrusted")],
    ),
    (
        "a custom template",
        with_values(MemoPrompt, documents(_reversed), template="{{ documents[1].text }} {{ documents[2].text }}"),
        [B, A],
    ),
    (
        "a list with a new name",
        with_values(
            TextPrompt, lambda ctx: {"best": ctx.documents[1:]}, template="{% for x in best %}{{ x.text }}/{% endfor %}"
        ),
        [B, C],
    ),
    (
        "an item with a new name",
        with_values(TextPrompt, lambda c: {"best": c.documents[2]}, template="{{ best.text }}"),
        [C],
    ),
    (
        "additional info",
        with_values(AdditionalInfoPrompt, documents(lambda items: items[:0:-1]), template="{{ documents[0].text }}"),
        [C],
    ),
    (
        "inside of a wrapper",
        WrapPrompt([with_values(MemoPrompt, documents(_reversed))], "<{{ wrapped_str }}>"),
        [C, B, A],
    ),
    (
        "a wrapper",
        with_values(
            WrapPrompt,
            documents(_reversed),
            wrapped_prompts=["x"],
            template="{{ documents[0].text }}{{ wrapped_str }}",
        ),
        [C],
    ),
]


def rendering(base: type[BasePrompt], change: Values, **options: Any) -> BasePrompt:
    """Return a prompt of a subclass of `base` that renders a changed context."""

    class Rendering(base):  # type: ignore[misc,valid-type]
        def render(self, ctx: PromptContext) -> Rendered:
            return super().render(ctx.evolve(**change(ctx)))  # type: ignore[no-any-return]

    return Rendering(**options)


class FreshContext(MemoPrompt):
    def render(self, ctx: PromptContext) -> Rendered:
        return super().render(PromptContext("other", documents=ctx.documents[::-1]))


class OtherPrompt(TextPrompt):
    template: Template = Template("")

    def render(self, ctx: PromptContext) -> Rendered:
        return WrapPrompt([MemoPrompt()]).render(ctx.evolve(documents=ctx.documents[1:]))


class OwnValuesAndRender(MemoPrompt):
    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        return {**super().values(ctx), "documents": ctx.documents[::-1]}

    def render(self, ctx: PromptContext) -> Rendered:
        return super().render(ctx.evolve(documents=ctx.documents[1:]))


REVERSED = documents(_reversed)
RENDERED: list[tuple[str, BasePrompt, list[tuple[str, str, str]]]] = [
    ("reverse", rendering(MemoPrompt, REVERSED), [C, B, A]),
    ("filter", rendering(MemoPrompt, documents(lambda items: items[1:])), [B, C]),
    ("repeat", rendering(MemoPrompt, documents(lambda items: (items[2], items[0], items[2]))), [C, A, C]),
    ("another field", rendering(MemoPrompt, lambda ctx: {"summary": "s"}), [A, B, C]),
    (
        "an item of the class",
        rendering(MemoPrompt, documents(lambda items: [Document("oldest", source="c.md"), items[1]])),
        [("oldest", "", "untrusted"), B],
    ),
    (
        "facts",
        rendering(KnowledgePrompt, lambda ctx: {"knowledge": ctx.knowledge[::-1]}),
        [("two", "knowledge[1].text", "untrusted"), ("one", "knowledge[0].text", "untrusted")],
    ),
    (
        "recalled",
        rendering(RecalledPrompt, lambda ctx: {"recalled": ctx.recalled[1:]}),
        [("last", "recalled[1].text", "untrusted")],
    ),
    ("a new context", FreshContext(), [C, B, A]),
    ("another prompt", OtherPrompt(), [B, C]),
    ("values, too", OwnValuesAndRender(), [C, B]),
    ("a wrapper", rendering(WrapPrompt, REVERSED, wrapped_prompts=[MemoPrompt(), "x"]), [C, B, A]),
    ("a nested wrapper", rendering(WrapPrompt, REVERSED, wrapped_prompts=[WrapPrompt([MemoPrompt()])]), [C, B, A]),
    (
        "a changed context of a changed context",
        rendering(WrapPrompt, REVERSED, wrapped_prompts=[rendering(MemoPrompt, documents(lambda items: items[:2]))]),
        [C, B],
    ),
    (
        "values in a changed context",
        rendering(WrapPrompt, documents(lambda items: items[1:]), wrapped_prompts=[with_values(MemoPrompt, REVERSED)]),
        [C, B],
    ),
    ("inside of a wrapper", WrapPrompt([rendering(MemoPrompt, REVERSED), MemoPrompt()]), [C, B, A, A, B, C]),
    (
        "a template of the wrapper",
        rendering(WrapPrompt, REVERSED, wrapped_prompts=["x"], template="{{ documents[0].text }} {{ wrapped_str }}"),
        [C],
    ),
]


def composed(prompt: BasePrompt, ctx: PromptContext = CTX, tokens: int | None = None) -> Composition:
    budget = None
    if tokens is not None:
        budget = Budget(tokens)
    return compose(Layers(before_input=[prompt], conversation=False), ctx, budget=budget)


def test_an_item_keeps_its_trust_and_its_origin_at_any_position() -> None:
    cases = [*CASES, *RENDERED]
    wrong = {name: origins(composed(prompt)) for name, prompt, right in cases if origins(composed(prompt)) != right}
    assert wrong == {}


def test_citations_and_explanations_follow_the_items() -> None:
    composition = composed(with_values(MemoPrompt, documents(lambda items: [items[2], items[1]])))
    cited = [citation.document.text for citation in citations("[c.md#0] [b.md#0]", composition)]
    assert cited == ["oldest", "middle"]
    assert unknown_labels("[c.md#0] [a.md#0]", composition) == ("a.md#0",)
    assert composition.why("documents[0]").spans == ()
    assert {span.trust for span in composition.why("documents[2]").spans} == {"trusted"}
    assert "c.md" in composition.why("documents[2]").reason
    composition = composed(with_values(MemoPrompt, documents(_reversed)))
    assert [source.origin for source in untrusted_sources(composition) if source.kind == "document"] == ["a.md#0"]


def test_equal_documents_are_distinguished_by_identity() -> None:
    ctx = CTX.evolve(documents=[Document("same", source="a.md"), Document("same", source="a.md")])
    changes: list[Values] = [
        lambda c: {"documents": c.documents[::-1]},
        lambda c: {"documents": c.view["documents"][::-1]},
    ]
    for change in changes:
        for prompt in (with_values(MemoPrompt, change), rendering(MemoPrompt, change)):
            shown = [span.pointer for span in composed(prompt, ctx).spans if span.text == "same"]
            assert shown == ["documents[1].text", "documents[0].text"]


def test_a_computed_text_names_only_the_items_that_it_can_show() -> None:
    prompt = with_values(
        MemoPrompt, documents(lambda items: items[:0:-1]), template="{{ documents | map(attribute='text') | join }}"
    )
    composition = composed(prompt)
    (span,) = [span for span in composition.spans if span.text == "oldestmiddle"]
    assert (span.pointer, span.trust) == ("documents[2], documents[1]", "trusted")
    assert [item.label for item in {c.document for c in citations("[a.md#0]", composition)}] == []


@pytest.mark.parametrize("render", [False, True])
def test_a_cut_keeps_the_origins_of_the_first_items(render: bool) -> None:
    prompt = with_values(MemoPrompt, documents(lambda items: sorted(items, key=lambda item: item.text, reverse=True)))
    if render:

        class Rendering(type(prompt)):  # type: ignore[misc]
            def render(self, ctx: PromptContext) -> Rendered:
                return super().render(ctx)  # type: ignore[no-any-return]

        prompt = Rendering()
    whole = composed(prompt)
    seen: list[int] = []
    for tokens in range(whole.tokens, 9, -1):
        shown = origins(composed(prompt, tokens=tokens))
        assert shown == [C, A, B][: len(shown)]
        seen.append(len(shown))
    assert {1, 2, 3} <= {*seen}


def test_a_cut_text_keeps_the_origins_of_the_items() -> None:
    cases: tuple[tuple[Cut, int, Any], ...] = (("head", 0, C), ("tail", -1, A))
    for cut, position, shown in cases:
        prompt = with_values(MemoPrompt, documents(_reversed), size=Size(cut=cut))
        composition = composed(prompt, tokens=composed(prompt).tokens - 4)
        assert origins(composition)[position] == shown


def test_examples_that_a_class_sorts_or_repeats_have_their_position_in_the_context() -> None:
    for own_examples in ((), (("with_values", "text"),)):
        prompt = with_values(
            ExamplesPrompt, lambda ctx: {"examples": [*ctx.examples[::-1], ctx.examples[1]]}, examples=own_examples
        )
        composition = composed(prompt)
        shown = [span.pointer for span in composition.spans if span.text.startswith("q")]
        assert shown == [f"examples[{number}].input" for number in (2, 1, 0, 1)]
        assert [span.text for span in composition.why("examples[2]").spans] == ["q3", "a3"]
    for prompt in (
        with_values(ExamplesPrompt, lambda ctx: {"examples": [Example("q9", "a9")]}),
        ExamplesPrompt([("q9", "a9")]),
    ):
        assert composed(prompt).why("examples[0]").spans == ()
    selecting = ExamplesPrompt(selector=StaticSelector(ids=["2"]))
    ctx = CTX.evolve(examples=[Example(f"q{number}", "a", id=f"{number}") for number in (1, 2, 3)])
    for prompt in (selecting, rendering(WrapPrompt, lambda c: {"examples": c.examples[1:]}, wrapped_prompts=selecting)):
        assert [span.text for span in composed(prompt, ctx).why("examples[1]").spans] == ["q2", "a"]


def test_messages_that_a_class_reverses_have_their_position_in_the_context() -> None:
    prompt = with_values(
        TextPrompt,
        lambda ctx: {"conversation": [*ctx.conversation][::-1]},
        template="{% for message in conversation %}{{ message.text }}\n{% endfor %}",
    )
    shown = [(span.text, span.pointer) for span in composed(prompt).spans if "conversation" in span.pointer]
    assert shown == [("after", "conversation[1].text"), ("before", "conversation[0].text")]


def test_a_cache_does_not_read_supplied_names_from_the_context() -> None:
    class Supplied(TextPrompt):
        supplies = frozenset({"weather"})
        template: Template = Template("{{ weather | default('sun') }} {{ summary }}")

    assert Supplied().reads == frozenset({"summary"})
    layers, cache = Layers([Supplied()], conversation=False), RenderCache()
    for _ in range(2):
        assert compose(layers, CTX.evolve(summary="s"), cache=cache).system.text == "sun s"
