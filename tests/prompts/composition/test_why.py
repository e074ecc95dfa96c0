"""Answers of `why` to all names of a composition, and errors for unknown names."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    BudgetError,
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
    PromptError,
    Size,
    TextPrompt,
    ToolCall,
    ToolSpec,
    UserInput,
    WrapPrompt,
    compose,
)
from agentkit.prompts.example_selectors import KeywordSelector, StaticSelector
from agentkit.testing import strategies as some
from tests.prompts.laws import law

PLACES = {"system", "before_input", "input", "after_input", "after_intermediate"}
CONTEXT_NAMES = {"additional_kwargs", *(field.name for field in fields(PromptContext))} - {
    *("session_key", "selections", "kept_kwargs", "clearing"),
}
pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

TRAFFIC = [Message("assistant", (), (ToolCall("1", "look"),)), Message("tool", "r", tool_call_id="1")]


def composed(layers: Layers | None = None, budget: int | None = None, **fields: Any) -> Composition:
    return compose(layers or Layers("S"), PromptContext(**{"user_input": "x", **fields}), budget=budget)


def shown_names(composition: Composition) -> set[str]:
    """Return each name in the table, the layers or the spans."""
    sources = {name for row in composition.explain() for name in row.source.split(", ")} - {"", "text", "output type"}
    pointers = {span.pointer for span in composition.spans if ", " not in span.pointer} - {""}
    paths = {path for path, _ in composition.layers.walk()}
    return {row.layer for row in composition.explain()} | sources | pointers | paths | CONTEXT_NAMES | {*PLACES}


@law
@given(some.contexts(orphans=True), some.layers(sized=True), st.none() | st.integers(50, 400))
def test_why_answers_each_name_of_a_composition(ctx: PromptContext, layers: Layers, budget: int | None) -> None:
    try:
        composition = compose(layers, ctx, budget=budget)
    except BudgetError:
        return
    spans = composition.spans
    for name in shown_names(composition):
        answer = composition.why(name)
        assert answer.reason, name
        assert set(answer.spans) <= set(spans)
        assert bool(answer.spans) == (answer.status == "shown"), str(answer)
    for path in {span.prompt for span in spans}:
        assert {span for span in spans if span.prompt == path} <= {*composition.why(path).spans}
    for pointer in {span.pointer for span in spans if "examples" not in span.pointer} - {""}:
        if ", " not in pointer:
            assert {span for span in spans if span.pointer == pointer} <= {*composition.why(pointer).spans}


@law
@given(some.contexts(orphans=True), some.layers(sized=True))
def test_the_spans_of_a_path_have_pointers_that_begin_with_the_path(ctx: PromptContext, layers: Layers) -> None:
    composition = compose(layers, ctx)
    spans = [span for span in composition.spans if span.pointer and ", " not in span.pointer]
    # A selected example has another index in the context; tests below check the indexes.
    paths = {path for span in spans for path in prefixes(span.pointer) if "examples" not in path}
    for pointer in paths:
        expected = [span for span in spans if pointer in prefixes(span.pointer)]
        answer = composition.why(pointer)
        assert [span for span in answer.spans if ", " not in span.pointer] == expected, pointer
    for path, _ in layers.walk():
        inside = [span for span in composition.spans if path in prefixes(span.prompt)]
        assert list(composition.why(path).spans) == inside, path
    for row in composition.explain():
        assert list(row.spans) == [span for span in composition.spans if row.layer in prefixes(span.prompt)], row.layer


def prefixes(path: str) -> list[str]:
    """Return the path, and every path that leads to a value which contains its value."""
    ends = [match.start() for match in re.finditer(r"[.\[]", path)]
    return [path[:end] for end in (*ends, len(path)) if path[:end] != "user_input"]


@law
@given(some.contexts(), some.layers(), st.text(max_size=12) | st.sampled_from(["system", "input", "documents"]))
def test_why_refuses_unknown_names(ctx: PromptContext, layers: Layers, word: str) -> None:
    composition = compose(layers, ctx)
    labels = {prompt.label for _, prompt in layers.walk()} | {"root", "mode", "photo"}
    for name in (f"{word}[1234]", f"{word}.nothing", f"system[0].{word}", f"documents[{word}]", word):
        if name in shown_names(composition) | labels or re.fullmatch(r"documents\[\s*[0-3]\s*\]", name):
            continue
        with pytest.raises(PromptError) as caught:
            composition.why(name)
        assert caught.value.name == name


@law
@given(
    some.contexts(), some.layers(), st.sampled_from(["documents", "knowledge", "examples", "extra", "locale", "now"])
)
def test_a_field_that_is_unread_does_not_change_the_messages(ctx: PromptContext, layers: Layers, root: str) -> None:
    composition = compose(layers, ctx)
    if composition.why(root).status != "unread":
        return
    value: Any = {"extra": {"note": "other"}, "locale": "de", "now": None, "examples": [Example("i", "o")]}.get(
        root, ["o"]
    )
    assert compose(layers, ctx.evolve(**{root: value})).messages == composition.messages


def test_the_error_of_an_unknown_path_suggests_the_nearest_path() -> None:
    nearest = {
        "documents[99]": "documents[11]",
        "documents[-1]": "documents",
        "documents[0].txt": "text",
        "documents.text": "documents[11]",
        "before_input[3]": "before_input[0]",
        "before_input[0].wrapped_prompts[2]": "before_input[0].wrapped_prompts[0]",
        "befor_input[0]": "before_input[0]",
        "converstion": "conversation",
        "conversation[7]": "conversation[1]",
        "intermediate[0]": None,
        "additional_kwargs.rot": "root",
        "user_input.additional_kwargs.rot": "root",
        "user_input.txt": "text",
        "after_input[0]": "after_input",
        "output": None,
        "session_key": None,
        "": None,
        "..": None,
    }
    composition = composed(
        Layers("S", before_input=WrapPrompt(wrapped_prompts=MemoPrompt())),
        user_input=UserInput("x", additional_kwargs={"root": "/srv"}),
        documents=[f"<{number}>" for number in range(12)],
        conversation=[Message("user", "hi"), Message("assistant", "ho")],
    )
    for name, suggestion in nearest.items():
        with pytest.raises(PromptError) as caught:
            composition.why(name)
        assert (caught.value.name, caught.value.suggestion) == (name, suggestion)


def test_a_step_with_invalid_python_syntax_is_an_error() -> None:
    composition = composed(documents=["d"])
    for step in ("9" * 5000, r"'\x'", r"'\N{foo}'", r"'\d'", "'\0'", "'\ud800'", "'\n'"):
        with pytest.raises(PromptError) as caught:
            composition.why(f"documents[{step}]")
        assert caught.value.name == f"documents[{step}]"[:80]


@pytest.mark.parametrize("pointer", [None, 3, ("documents", 0)])
def test_a_path_that_is_not_text_is_refused(pointer: Any) -> None:
    with pytest.raises(PromptError) as caught:
        composed().why(pointer)
    assert (caught.value.name, caught.value.value) == ("pointer", type(pointer).__name__)


def test_why_reports_the_spans_the_status_and_the_trim_of_a_layer() -> None:
    layers = Layers("S", before_input=MemoPrompt(), after_input=TextPrompt("{{ extra.note }}", name="note"))
    documents = [f"{number} " * 30 for number in range(9)]
    composition = composed(layers, 120, documents=documents, extra={"note": ""})
    (row,) = [row for row in composition.explain() if row.layer == "before_input[0]"]
    assert row.trim is not None
    assert row.trim.why in composition.why("before_input[0]").reason
    assert composition.why("system[0]").spans == composition.spans[:1]
    statuses = {
        "before_input[0]": "shown",
        "system[0]": "shown",
        "system": "shown",
        "note": "empty",
        "after_intermediate": "empty",
        "overhead": "sent",
        "documents[0]": "shown",
        "documents[8]": "cut",
        "documents[0].title": "unknown",
        "knowledge": "unread",
    }
    assert {name: composition.why(name).status for name in statuses} == statuses
    assert row.trim.why in composition.why("documents[8]").reason
    dropped = composed(Layers("S", before_input=MemoPrompt()), 12, documents=documents)
    assert dropped.why("before_input[0]").status == "cut"
    assert (dropped.trims["before_input[0]"].remaining, dropped.trims["before_input[0]"].of) == (0, 9)


def test_the_reason_has_a_separate_column() -> None:
    documents = [f"{number} " * 30 for number in range(9)]
    table = composed(Layers("S", before_input=MemoPrompt()), 120, documents=documents).explain()
    head, _, *rows, _, _ = str(table).split("\n")
    for row, line in zip(table, rows, strict=True):
        assert line[head.index("source") : head.index("why")].strip() == row.source
        assert line[head.index("why") :] == row.why
    assert any(row.why for row in table)


def test_why_answers_for_messages_without_text_and_without_results() -> None:
    history = [Message("user", "q"), *TRAFFIC, Message("assistant", (), (ToolCall("2", "look"),)), Message("user", "r")]
    composition = composed(conversation=history, intermediate=TRAFFIC, tools=[ToolSpec("look")])
    statuses = {
        "conversation[1]": "sent",
        "conversation[1].tool_calls": "sent",
        "conversation[2]": "shown",
        "conversation[3]": "unread",
        "intermediate[0]": "sent",
        "tools": "sent",
    }
    assert {name: composition.why(name).status for name in statuses} == statuses
    assert "message 2 (assistant)" in composition.why("conversation[1]").reason
    assert "message 6 (assistant)" in composition.why("intermediate[0]").reason
    assert composition.messages[6].tool_calls == TRAFFIC[0].tool_calls
    closing = composed(Layers("S", after_intermediate="Go on."))
    assert closing.why("after_intermediate[0]").status == "empty"
    assert closing.why("intermediate").status == "empty"


def test_paths_of_examples_use_the_indexes_of_the_context() -> None:
    pool = [Example(f"in{number}", f"out{number}", id=str(number)) for number in range(4)]
    composition = composed(Layers(ExamplesPrompt(selector=StaticSelector(ids=["2", "0"]))), examples=pool)
    texts = [composition.marked_text(0)[span.start : span.end] for span in composition.why("examples[2]").spans]
    assert texts == ["in2", "out2"]
    assert composition.why("examples[1]").spans == ()


def test_paths_of_scored_examples_use_the_indexes_of_the_context() -> None:
    pool = [Example("patch a tyre", "Glue it."), Example("cook rice", "Boil it.")]
    composition = composed(Layers(ExamplesPrompt(selector=KeywordSelector(1))), user_input="rice", examples=pool)
    texts = [composition.marked_text(0)[span.start : span.end] for span in composition.why("examples[1]").spans]
    assert texts == ["cook rice", "Boil it."]
    assert composition.why("examples[0]").spans == ()


def test_examples_created_by_a_selector_are_not_part_of_the_context() -> None:
    class Own:
        def select(self, query: str, examples: Any) -> list[Example]:
            return [Example("mine", "too")]

    composition = composed(Layers(ExamplesPrompt(selector=Own())), examples=[Example("a", "b")])
    assert "mine" in composition.system.text
    assert composition.why("examples[0]").spans == ()


OWN_EXAMPLES = ExamplesPrompt([Example("hot", "cold"), Example("big", "small"), Example("up", "down " * 30)])


def test_examples_of_a_prompt_are_found_if_the_context_has_none() -> None:
    wrapped = WrapPrompt(OWN_EXAMPLES, "<e>{{ wrapped_str }}</e>")
    selected = OWN_EXAMPLES.model_copy(update={"selector": KeywordSelector(1)})
    cases: list[tuple[list[Any], int | None, str, str]] = [
        ([OWN_EXAMPLES], None, "shown", "system[0]"),
        ([selected], None, "shown", "system[0]"),
        ([wrapped], None, "shown", "system[0].wrapped_prompts[0]"),
        ([ExamplesPrompt(), OWN_EXAMPLES], None, "shown", "system[1]"),
        ([OWN_EXAMPLES], 40, "shown", "2 of 3 items kept"),
        ([OWN_EXAMPLES], 12, "cut", "3 items dropped"),
        ([ExamplesPrompt()], None, "empty", "examples is empty"),
    ]
    for prompts, budget, status, reason in cases:
        answer = composed(Layers(prompts), budget).why("examples")
        assert (answer.status, bool(answer.spans)) == (status, status == "shown"), str(answer)
        assert answer.pointer == "examples"
        assert reason in answer.reason, str(answer)
    with pytest.raises(PromptError) as caught:
        composed(Layers(OWN_EXAMPLES)).why("examples[0]")
    assert caught.value.suggestion == "system[0]"


def test_examples_of_the_context_are_not_read_by_a_prompt_with_examples() -> None:
    for prompt in (OWN_EXAMPLES, WrapPrompt(OWN_EXAMPLES, "<e>{{ wrapped_str }}</e>")):
        composition = composed(Layers(prompt), 40, examples=[Example("in", "out")])
        for pointer in ("examples", "examples[0]"):
            answer = composition.why(pointer)
            assert (answer.status, answer.spans) == ("unread", ()), str(answer)
            assert "other examples are in system[0]" in answer.reason
    both = composed(Layers([OWN_EXAMPLES, ExamplesPrompt()]), examples=[Example("in", "out")])
    assert {span.prompt for span in both.why("examples").spans} == {"system[1]"}


def test_the_reason_contains_the_source_of_an_item() -> None:
    items = [Document("Green tea: 80 degrees.", source="tea.md", position=3), Document("x" * 5000, source="milk.md")]
    facts = [Fact("Tea is a plant.", source="flora"), "Milk is white."]
    layers = Layers(before_input=(MemoPrompt(size=Size(max=100, cut="items")), KnowledgePrompt()))
    composition = composed(layers, documents=items, knowledge=facts)
    assert composition.why("documents[0].text").reason.endswith("; from tea.md#3")
    assert composition.why("documents[1]").status == "cut"
    assert "; from milk.md#" in composition.why("documents[1]").reason
    assert composition.why("knowledge[0]").reason.endswith("; from flora")
    for pointer in ("knowledge[1]", "knowledge", "documents"):
        assert "; from" not in composition.why(pointer).reason, pointer


def test_a_kwarg_is_found_by_each_path_of_templates() -> None:
    layers = Layers(AdditionalInfoPrompt("{{ root }}"), before_input=TextPrompt("{{ additional_kwargs['a, b'] }}"))
    sent = UserInput("x", additional_kwargs={"root": "/srv", "a, b": "odd", "unread": 1})
    composition = composed(layers, user_input=sent)
    for name in ("root", "additional_kwargs.root", "additional_kwargs['root']", "user_input.additional_kwargs.root"):
        answer = composition.why(name)
        assert answer.status == "shown", name
        assert [(span.prompt, span.text, span.trust) for span in answer.spans] == [("system[0]", "/srv", "untrusted")]
    assert [span.prompt for span in composition.why("additional_kwargs['a, b']").spans] == ["before_input[0]"]
    assert composition.why("additional_kwargs.unread").status == "unknown"


class Own(BasePrompt):
    """Prompt with text from code."""

    def format_2_str(self, ctx: PromptContext) -> str:
        return ctx.documents[0].text


def test_an_item_that_custom_code_can_show_is_unknown() -> None:
    composition = composed(Layers(Own()), documents=[Document("a fact")])
    assert composition.why("documents[0]").status == "unknown"
    assert "system[0]" in composition.why("documents[0]").reason
    answer = composition.why("Own")
    assert [(span.prompt, span.text, span.trust) for span in answer.spans] == [("system[0]", "a fact", "untrusted")]


def test_a_prompt_that_a_wrapper_changes_is_unknown() -> None:
    loud = WrapPrompt(TextPrompt("quiet"), "{{ wrapped_str | upper }}")
    assert composed(Layers(loud)).why("system[0].wrapped_prompts[0]").status == "unknown"


LONG = Document("The guarantee of a desk is five years. " * 20, source="desks.md", position=0)
SHORT = Document("Wheels: one year.", source="wheels.md", position=0)


def test_a_cut_names_the_item_that_does_not_fit() -> None:
    cases: list[tuple[list[Any], list[Document], list[str], str]] = [
        ([MemoPrompt()], [LONG, SHORT, SHORT], [], "documents[0] does not fit"),
        ([MemoPrompt()], [SHORT, LONG, SHORT], [], "documents[1] does not fit"),
        (
            [WrapPrompt([MemoPrompt()], "<d>{{ wrapped_str }}</d>")],
            [LONG, SHORT, SHORT],
            [],
            "documents[0] does not fit",
        ),
        # The facts have a higher priority, so that documents that fit are omitted because of a fact.
        ([MemoPrompt(), KnowledgePrompt()], [SHORT, SHORT, SHORT], ["fact " * 200], "knowledge[0] of before_input[1]"),
    ]
    wrong: list[str] = []
    for prompts, documents, knowledge, expected in cases:
        context = PromptContext("Hi", documents=documents, knowledge=knowledge)
        composition = compose(Layers(before_input=prompts), context, budget=60)
        answer = composition.why("documents[2]")
        if expected not in composition.explain()[0].why or expected not in str(answer) or answer.status != "cut":
            wrong.append(f"{expected}: {answer}")
    assert wrong == []


def test_only_items_after_the_item_that_does_not_fit_have_this_reason() -> None:
    context = PromptContext("Hi", documents=[SHORT, LONG, SHORT])
    composition = compose(Layers(before_input=MemoPrompt()), context, budget=60)
    reasons = ["only the first items" in str(composition.why(f"documents[{index}]")) for index in range(3)]
    assert reasons == [False, False, True]


def test_a_value_that_is_shown_in_part_names_the_cut() -> None:
    chat = [Message(role, "word " * 30) for _ in range(20) for role in ("user", "assistant")]
    contexts = {
        "documents": PromptContext("Hi", documents=[SHORT, LONG]),
        "conversation": PromptContext("Hi", conversation=chat),
        "extra": PromptContext("Hi", extra={"note": "word " * 900}),
    }
    in_items = Layers(before_input=MemoPrompt())
    wrapped = Layers(before_input=WrapPrompt([MemoPrompt()], "<d>{{ wrapped_str }}</d>"))
    as_text = Layers(before_input=MemoPrompt(size=Size(cut="head")))
    note = Layers(before_input=TextPrompt("{{ extra.note }}", size=Size(cut="tail")))
    cases: list[tuple[Layers, str, bool]] = [
        (in_items, "documents", True),
        (in_items, "documents[0]", False),
        (in_items, "documents[0].text", False),
        (Layers("S"), "conversation", True),
        (Layers("S"), "conversation[39]", False),
        (wrapped, "documents", True),
        (wrapped, "documents[0]", False),
        (as_text, "documents", True),
        (as_text, "documents[1]", True),
        (note, "extra", True),
        (note, "extra.note", True),
    ]
    wrong: list[str] = []
    for layers, pointer, has_cut in cases:
        context = contexts[re.split(r"\W", pointer)[0]]
        composition = compose(layers, context, budget=700 if context.conversation else 100)
        answer = composition.why(pointer)
        if answer.status != "shown" or any(trim.why in answer.reason for trim in composition.trims.values()) != has_cut:
            wrong.append(str(answer))
    assert wrong == []


def test_items_are_found_by_their_source_and_label() -> None:
    documents = [Document("a", source="one.md", position=0), Document("b", source="one.md", position=1), SHORT]
    context = PromptContext("Hi", documents=documents, knowledge=[Fact("c", source="facts.md")])
    composition = compose(Layers(before_input=[MemoPrompt(), KnowledgePrompt()]), context)
    for name, pointer in [("wheels.md", "documents[2]"), ("one.md#1", "documents[1]"), ("facts.md", "knowledge[0]")]:
        assert composition.why(name) == composition.why(pointer)
    both = composition.why("one.md")
    assert (both.status, {span.pointer for span in both.spans}) == (
        "shown",
        {f"documents[{index}].{field}" for index in (0, 1) for field in ("text", "label")},
    )
    with pytest.raises(PromptError) as caught:
        composition.why("weels.md#0")
    assert caught.value.suggestion == "wheels.md#0"
