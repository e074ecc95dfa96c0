"""Contexts as values: equality, hash, copy, pickle and JSON."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from agentkit.prompts import (
    Audio,
    ContextError,
    Conversation,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    File,
    Image,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    PromptError,
    RecalledMessage,
    SummaryPrompt,
    Text,
    TextPrompt,
    Thinking,
    ToolCall,
    ToolSpec,
    Url,
    UserInput,
    compose,
    select_examples,
)
from agentkit.prompts.example_selectors import KeywordSelector
from agentkit.testing import strategies as some
from tests.prompts.laws import law

HIDDEN = {"session_key", "selections", "kept_kwargs", "clearing"}
CONTEXT_NAMES = {"additional_kwargs", *(field.name for field in dataclasses.fields(PromptContext))} - HIDDEN
"""Names that templates can read."""
CONTEXTS: TypeAdapter[PromptContext] = TypeAdapter(PromptContext)
KWARGS: dict[str, Any] = {
    "root": Path("/srv/app"),
    "home": Url("https://example.org/a?b=c"),
    "raw": b"\xff\x00",
    "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "at": time(3, 4),
    "took": timedelta(days=-1, microseconds=1),
    "price": Decimal("1.10"),
    "id": UUID(int=7),
    "photo": Image(b"\xff\xd8", name="x.jpg"),
    "pair": (1, [2, (3,)]),
    "odd": {"$type": "path", "value": "/not/a/path", 1: True},
    "limit": float("inf"),
    "$type": "text",
}
FULL = PromptContext(
    user_input=UserInput(
        ["Look: ", Image(b"\xff"), Audio(Path("sounds/a.wav")), File("https://example.org/a.pdf")], KWARGS
    ),
    conversation=[Message("assistant", "", (ToolCall("1", "look"),)), Message("tool", "ok", tool_call_id="1")],
    documents=[
        Document("a", score=0.5, metadata={"seen": KWARGS["when"], "tags": ["x"]}, trust="trusted", atomic=True)
    ],
    knowledge=["The sky is blue."],
    recalled=[RecalledMessage("Blue?", "user", "Ada", KWARGS["when"], "talk", "m1", 0.5, 3, {"at": KWARGS["when"]})],
    tools=[ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}, strict=True)],
    examples=[Example("1+1", "2", id="sum")],
    intermediate=[Message("user", (Image(Path("pictures/b.png")),))],
    locale="en",
    now=KWARGS["when"],
    session_key="secret",
    extra=KWARGS,
    summary="They met.",
    kept_kwargs=("when",),
)


def is_utf8(ctx: PromptContext) -> bool:
    """True if JSON can encode all texts: JSON has no form of lone surrogates."""
    try:
        CONTEXTS.dump_json(ctx)
    except (UnicodeEncodeError, PydanticSerializationError):
        return False
    return True


def test_a_context_is_equal_after_json() -> None:
    back = CONTEXTS.validate_json(CONTEXTS.dump_json(FULL))
    assert back == FULL
    assert hash(back) == hash(FULL)
    for name, value in KWARGS.items():
        assert type(back.extra[name]) is type(value), name
    shown = TextPrompt("{{ extra.root }} {{ now }} {{ tools | tojson }} {{ documents | tojson }}")
    assert shown.format_2_str(back) == shown.format_2_str(FULL)


@law
@given(some.contexts())
def test_any_context_is_equal_after_json_and_pickle(ctx: PromptContext) -> None:
    if is_utf8(ctx):
        assert CONTEXTS.validate_json(CONTEXTS.dump_json(ctx)) == ctx
        assert CONTEXTS.validate_python(json.loads(CONTEXTS.dump_json(ctx))) == ctx
    assert pickle.loads(pickle.dumps(ctx)) == ctx
    assert copy.deepcopy(ctx) == ctx
    assert ctx.evolve() == ctx == dataclasses.replace(ctx)
    hash(ctx)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol(protocol: int) -> None:
    ctx = FULL.evolve(user_input=FULL.user_input.input, extra={})
    back = pickle.loads(pickle.dumps(ctx, protocol))
    assert back == ctx
    assert back.view == ctx.view
    with pytest.raises(AttributeError):
        back.locale = "de"
    for item in (*ctx.documents, *ctx.tools, *ctx.examples, ctx.user_input):
        assert pickle.loads(pickle.dumps(item, protocol)) == item


def test_a_deep_copy_shares_no_mutable_value() -> None:
    ctx = PromptContext(user_input=UserInput("x", {"files": ["a"]}), extra={"files": ["a"]})
    deep, shallow = copy.deepcopy(ctx), copy.copy(ctx)
    ctx.extra["files"].append("b")
    ctx.user_input.additional_kwargs["files"].append("b")
    assert deep.extra["files"] == deep.user_input.additional_kwargs["files"] == ["a"]
    assert shallow.extra["files"] == ["a", "b"]
    assert deep != ctx == shallow


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in 3.13")
def test_copy_replace() -> None:
    replaced = copy.replace(FULL, locale="de")  # type: ignore[attr-defined,unused-ignore]
    assert replaced == FULL.evolve(locale="de")
    assert copy.replace(FULL.user_input, input="x").text == "x"  # type: ignore[attr-defined,unused-ignore]


def test_a_template_can_read_each_field_that_is_not_hidden() -> None:
    assert FULL.view.keys() == CONTEXT_NAMES
    assert all(FULL.view[name] is getattr(FULL, name) for name in CONTEXT_NAMES - {"additional_kwargs"})


def test_contexts_with_different_fields_are_unequal() -> None:
    changes: list[dict[str, Any]] = [
        {"user_input": "x"},
        {"documents": ()},
        {"knowledge": ("a",)},
        {"summary": "a"},
        {"kept_kwargs": ("a",)},
        {"recalled": (RecalledMessage("a", "user"),)},
        {"tools": ()},
        {"examples": ()},
        {"conversation": ()},
        {"intermediate": ()},
        {"locale": None},
        {"now": None},
        {"session_key": "other"},
        {"extra": {}},
    ]
    seen = {FULL, *(FULL.evolve(**change) for change in changes)}
    assert len(seen) == len(changes) + 1


class Request(BaseModel):
    context: PromptContext
    documents: tuple[Document, ...] = ()


def test_a_context_is_a_field_of_a_model() -> None:
    request = Request.model_validate({"context": {"user_input": "hi", "elements": ["a"]}, "documents": ["b"]})
    assert request.context == PromptContext(user_input="hi", documents=["a"])
    assert Request(context=FULL).context is FULL
    assert Request.model_validate_json(request.model_dump_json()) == request
    with pytest.raises(ValidationError) as caught:
        Request.model_validate({"context": {"user_input": "hi", "docments": []}})
    assert [error["loc"] for error in caught.value.errors()] == [("context", "docments")]
    with pytest.raises(ValidationError) as caught:
        Request.model_validate({"context": FULL, "documents": [{"text": "a", "txt": "a"}]})
    assert [error["loc"] for error in caught.value.errors()] == [("documents", 0, "txt")]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_a_context_has_a_json_schema(mode: Any) -> None:
    schema = CONTEXTS.json_schema(mode=mode)
    fields = (
        schema["$defs"]["PromptContext"]["properties"]
        if "$defs" in schema and "properties" not in schema
        else (schema["properties"])
    )
    assert {"user_input", "documents", "tools", "now"} <= fields.keys()


@pytest.mark.parametrize(
    ("value", "place"),
    [(object(), "value"), ({1, 2j}, "value"), ([[object()]], "value[0][0]"), ({"a": {"b": len}}, "value.a.b")],
)
def test_the_error_names_a_value_without_a_json_form(value: object, place: str) -> None:
    with pytest.raises(PydanticSerializationError) as caught:
        CONTEXTS.dump_json(PromptContext(user_input="x", extra={"value": value}))
    assert f": {place}: " in str(caught.value)  # pydantic keeps the text of the error only


@pytest.mark.parametrize("value", [{"$type": "nonsense", "value": 1}, {"$type": "bytes", "value": 5}, {"$type": []}])
def test_damaged_json_forms_are_refused(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        CONTEXTS.validate_python({"user_input": {"input": "x"}, "extra": {"value": value}})
    assert [error["loc"] for error in caught.value.errors()] == [("extra",)]


async def test_a_choice_of_examples_is_part_of_the_context() -> None:
    pool = [Example("cook rice", "Boil it."), Example("patch a tyre", "Glue it.")]
    layers = Layers(ExamplesPrompt(selector=KeywordSelector(1)), conversation=False)
    ctx = await select_examples(layers, PromptContext(user_input="rice", examples=pool))
    (selection,) = ctx.selections
    assert (selection.prompt, selection.query, [item.output for item in selection.chosen]) == (
        "system[0]",
        "rice",
        ["Boil it."],
    )
    assert compose(layers, ctx).context is ctx, "nothing is selected again"
    stored = CONTEXTS.validate_json(CONTEXTS.dump_json(ctx))
    assert stored == ctx == pickle.loads(pickle.dumps(ctx))
    assert stored != ctx.evolve(selections=())
    assert compose(layers, stored).context.selections == ctx.selections


async def test_a_stored_choice_is_used_while_it_is_valid() -> None:
    class Never:
        async def select(self, query: str, examples: Any) -> Any:
            raise AssertionError("asked again")

    class First:
        async def select(self, query: str, examples: Any) -> Any:
            return examples[:1]

    pool = (Example("a", "A"), Example("b", "B"))
    ctx = await select_examples(
        Layers(ExamplesPrompt(selector=First()), conversation=False), PromptContext(user_input="q", examples=pool)
    )
    stored = CONTEXTS.validate_json(CONTEXTS.dump_json(ctx))
    later = Layers(ExamplesPrompt(selector=Never()), conversation=False)
    assert compose(later, stored).system.text == "Input: a\nOutput: A"
    for change in ({"user_input": "other"}, {"examples": pool[::-1]}):
        with pytest.raises(PromptError) as caught:
            compose(later, CONTEXTS.validate_json(CONTEXTS.dump_json(stored)).evolve(**change))  # type: ignore[arg-type]
        assert caught.value.prompt == "system[0]"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("tools", '"name": "look"'), ("documents", '"text": "a"'), ("examples", '"output": "2"')],
)
def test_templates_write_items_as_json(name: str, shown: str) -> None:
    ctx = FULL.evolve(documents=["a"])
    written = TextPrompt("{{ " + name + " | tojson }}").format_2_str(ctx)
    assert shown in written
    assert json.loads(written)[0].items() >= json.loads("{" + shown + "}").items()


def test_the_error_names_the_place_of_each_problem() -> None:
    with pytest.raises(ContextError) as caught:
        PromptContext(
            docments=[],  # type: ignore[call-arg]
            user_input={"input": ["a", 5], "additional_kwargs": [1]},
            documents=["a", {"text": 5, "txt": "a"}, 7, Document("b")],
            tools=[{"title": "a", "parameters": {"a": {1}}}],
            conversation=[{"role": "boss"}, 5],  # type: ignore[list-item]
            locale=5,  # type: ignore[arg-type]
            extra={1: 2},  # type: ignore[dict-item]
        )
    assert [place for place, _ in caught.value.problems] == [
        "docments",
        "user_input.input[1]",
        "user_input.additional_kwargs",
        "documents[1].txt",
        "documents[1].text",
        "documents[2]",
        "tools[0].title",
        "tools[0].name",
        "tools[0].parameters",
        "conversation[0].content",
        "conversation[0]",
        "conversation[1]",
        "locale",
        "extra",
    ]


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: PromptContext(user_input="x", documents=[], elements=[]), "elements"),
        (lambda: UserInput("x", {"a": 1}, additional_info={}), "additional_info"),
        (lambda: PromptContext(), "user_input"),
        (lambda: Document("x", metadata=5), "metadata"),  # type: ignore[arg-type]
        (lambda: Fact("x", trust="maybe"), "trust"),  # type: ignore[arg-type]
        (lambda: Example("x", None), "output"),  # type: ignore[arg-type]
        (lambda: ToolSpec("x", parameters={"a": object()}), "parameters"),
        (lambda: ToolSpec("x", strict=1), "strict"),  # type: ignore[arg-type]
        (lambda: FULL.evolve(documents=[5]), "documents[0]"),  # type: ignore[list-item]
        (lambda: FULL.evolve(now="today"), "now"),  # type: ignore[arg-type]
    ],
)
def test_the_error_names_a_single_problem(make: Any, place: str) -> None:
    with pytest.raises(ContextError) as caught:
        make()
    assert [at for at, _ in caught.value.problems] == [place]


def test_values_of_other_types_are_problems_with_a_place() -> None:
    for name in ("user_input", "documents", "recalled", "tools", "conversation", "extra", "selections"):
        for value in (object(), 1.5, b"x"):
            with pytest.raises(ContextError) as caught:
                PromptContext(**{"user_input": "x", name: value})  # type: ignore[arg-type]
            places = {problem.place for problem in caught.value.problems}
            assert places == {"user_input.input" if name == "user_input" else name}


def test_a_long_list_of_problems_is_cut() -> None:
    with pytest.raises(ContextError) as caught:
        PromptContext(user_input="x", documents=[5] * 1000)  # type: ignore[list-item]
    assert len(caught.value.problems) == 1000
    assert len(str(caught.value)) < 2_000


class Word(str, Enum):  # noqa: UP042 (what people wrote before there was a StrEnum)
    """Text whose `str()`, `format()` and `hash()` differ from its characters."""

    A = "a"


class Loud(str):
    def __str__(self) -> str:
        return "LOUD"

    __repr__ = __str__

    def __format__(self, how: str) -> str:
        return "LOUD"

    def __len__(self) -> int:
        raise ZeroDivisionError

    def __contains__(self, text: object) -> bool:
        raise ZeroDivisionError


def context_with(text: str) -> PromptContext:
    """Return a context with a text in each field."""
    return PromptContext(
        user_input=UserInput([Text(text), Image(text, text, text)]),
        conversation=[
            Message("user", text, name=text),
            Message("assistant", text, (ToolCall(text, text, text),), thinking=[Thinking(text, text, text, text)]),
            Message("tool", text, tool_call_id=text, name=text),
        ],
        documents=[Document(text, text, text, text)],
        knowledge=[Fact(text, text, text)],
        recalled=[RecalledMessage(text, "user", text, None, text, text)],
        tools=[ToolSpec(text, text)],
        examples=[Example(text, text, text)],
        summary=text,
        locale=text,
        session_key=text,
        kept_kwargs=[text],
    )


@pytest.mark.parametrize("text", [Word.A, Loud("a")], ids=["an enum", "a separate class"])
def test_text_of_a_subclass_is_its_characters(text: str) -> None:
    ctx, plain = context_with(text), context_with("a")
    assert ctx == plain and hash(ctx) == hash(plain) and repr(ctx) == repr(plain)
    assert CONTEXTS.validate_json(CONTEXTS.dump_json(ctx)) == plain
    layers = Layers(
        TextPrompt("{{ locale }}"), before_input=[MemoPrompt(), KnowledgePrompt(), ExamplesPrompt(), SummaryPrompt()]
    )
    assert UserInput(text) == UserInput("a") and type(UserInput(text).input) is str
    mine, other = (compose(layers, each.evolve(user_input="x")) for each in (ctx, plain))
    assert mine.to_openai() == other.to_openai() and mine.to_text() == other.to_text()


def test_a_conversation_can_be_a_field_of_a_model() -> None:
    history: TypeAdapter[Conversation] = TypeAdapter(Conversation)
    assert history.validate_json(history.dump_json(FULL.conversation)) == FULL.conversation
    assert history.validate_python(FULL.conversation) is FULL.conversation


def test_no_field_of_a_context_can_be_changed() -> None:
    made = PromptContext(user_input="hi", session_key="secret")
    ways = [made, made.evolve(locale="de"), copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    for one in ways:
        assert type(one) is PromptContext
        for item in dataclasses.fields(one):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(one, item.name, None)
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(one, item.name)
    assert ways[0] == ways[2] == ways[3] == ways[4] != ways[1]


def test_frozen_data_refuses_each_change_and_survives_copy_and_pickle() -> None:
    data: Any = ToolSpec("look", "", {"a": [1, {"b": (2,)}]}).parameters
    for change in (
        lambda: data.update(a=1),
        lambda: data.pop("a"),
        lambda: data["a"].append(1),
        lambda: data["a"].sort(),
        lambda: data["a"][1].clear(),
        lambda: data["a"].__iadd__([1]),
        lambda: data.__ior__({}),
    ):
        with pytest.raises(TypeError):
            change()
    for clone in (copy.copy(data), copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
        assert clone == data == {"a": [1, {"b": [2]}]}
        assert type(clone) is type(data)
        assert type(clone["a"]) is type(data["a"])
    assert copy.copy(data["a"]) == copy.deepcopy(data["a"]) == data["a"]
