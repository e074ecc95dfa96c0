"""Invalid input: correct output, or a typed error with the problem, the place and the remedy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    ContextError,
    Conversation,
    ConversationPrompt,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    Image,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    PromptError,
    Template,
    TemplateError,
    TextPrompt,
    ToolPrompt,
    ToolSpec,
    UserInput,
    UserInputPrompt,
    WrapPrompt,
    compose,
)
from agentkit.prompts.example_selectors import StaticSelector
from tests.cases import for_cases

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

MEGABYTE = "ab \n" * 262_144
TEXTS: dict[str, str] = {
    "empty": "",
    "blank": " \n\t ",
    "a megabyte": MEGABYTE,
    "astral": "\U0001f9d1\u200d\U0001f33e\U0010ffff",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u0627",
    "lone surrogate": "a\ud800b",
    "reversed surrogates": "\udfff\ud800",
    "NUL": "a\0b",
    "braces": "{{ user_input }}{% raw %}{# x #}{}{0}{user_input}%s%(a)s",
    "line ends": "a\r\nb\rc\u2028d\x85e",
    "escape codes": "\x1b[31mred\x1b[0m",
}


def deep(levels: int = 10_000) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


PLACES: dict[str, tuple[BasePrompt, Callable[[str], PromptContext]]] = {
    "the input": (UserInputPrompt(), lambda text: PromptContext(user_input=text)),
    "a part": (UserInputPrompt(), lambda text: PromptContext(user_input=UserInput([text]))),
    "a document": (
        TextPrompt("{% for d in documents %}{{ d.text }}{% endfor %}"),
        lambda text: PromptContext(user_input="", documents=[text]),
    ),
    "a title": (
        TextPrompt("{% for d in documents %}{{ d.title }}{% endfor %}"),
        lambda text: PromptContext(user_input="", documents=[Document("x", title=text)]),
    ),
    "a fact": (
        TextPrompt("{% for f in knowledge %}{{ f.text }}{% endfor %}"),
        lambda text: PromptContext(user_input="", knowledge=[Fact(text)]),
    ),
    "a message": (
        TextPrompt("{% for m in conversation %}{{ m }}{% endfor %}"),
        lambda text: PromptContext(user_input="", conversation=[Message("user", text)]),
    ),
    "a tool result": (
        TextPrompt("{% for m in intermediate %}{{ m }}{% endfor %}"),
        lambda text: PromptContext(user_input="", intermediate=[Message("tool", text, tool_call_id="1")]),
    ),
    "an example": (
        TextPrompt("{% for e in examples %}{{ e.output }}{% endfor %}"),
        lambda text: PromptContext(user_input="", examples=[Example("i", text)]),
    ),
    "a kwarg": (
        AdditionalInfoPrompt("{{ note }}"),
        lambda text: PromptContext(user_input=UserInput("", additional_kwargs={"note": text})),
    ),
    "the extras": (TextPrompt("{{ extra.note }}"), lambda text: PromptContext(user_input="", extra={"note": text})),
    "a format template": (
        TextPrompt(Template("{user_input}", engine="fstring")),
        lambda text: PromptContext(user_input=text),
    ),
    "a wrapper": (
        WrapPrompt(wrapped_prompts=[WrapPrompt([UserInputPrompt()], "{{ wrapped_str }}")]),
        lambda text: PromptContext(user_input=text),
    ),
}


@for_cases(("place", "kind"), itertools.product(PLACES, TEXTS))
def test_any_text_is_rendered_without_a_change(place: str, kind: str) -> None:
    text = TEXTS[kind]
    prompt, context = PLACES[place]
    ctx = context(text)
    assert prompt.format_2_str(ctx) == text
    assert prompt.format_2_multimodal(ctx) == (text, {})
    composition = compose(Layers(before_input=prompt, input=[], conversation=False), ctx)
    assert composition.user.text == text
    assert composition.tokens >= 0
    composition.to_openai()
    composition.to_text()
    composition.explain()
    assert isinstance(composition.prefix_hash, str)


def test_a_template_of_a_megabyte_is_literal_or_refused() -> None:
    assert TextPrompt("a" * 900_000).format_2_str(PromptContext(user_input="")) == "a" * 900_000
    with pytest.raises(TemplateError):
        TextPrompt("a" * 1_100_000)


@pytest.mark.parametrize("make", [deep, cyclic])
def test_deep_or_cyclic_data_is_refused_in_each_field(make: Callable[[], list[Any]]) -> None:
    for item, place in (
        (lambda: Document("x", metadata={"a": make()}), "metadata"),
        (lambda: Fact("x", metadata={"a": make()}), "metadata"),
        (lambda: ToolSpec("look", parameters={"a": make()}), "parameters"),
    ):
        with pytest.raises(ContextError) as caught:
            item()
        assert [problem.place for problem in caught.value.problems] == [place]
    ctx = PromptContext(user_input=UserInput("", additional_kwargs={"a": make()}), extra={"a": make()})
    for prompt in (
        AdditionalInfoPrompt("{{ a }}"),
        AdditionalInfoPrompt(),
        TextPrompt("{{ extra }}"),
        TextPrompt("{{ extra.a | tojson }}"),
        TextPrompt("{{ extra.a | string }}"),
        WrapPrompt(wrapped_prompts=[TextPrompt("{{ additional_kwargs }}")]),
    ):
        with pytest.raises(PromptError):
            prompt.format_2_str(ctx)


class Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error

    __repr__ = __str__


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), RecursionError(), ZeroDivisionError()], ids=repr)
@pytest.mark.parametrize(
    "text", ["{{ thing }}", "{{ thing ~ 'x' }}", "{{ [thing] }}", "{{ thing | string }}", "{{ thing | upper }}"]
)
def test_an_object_whose_str_fails_names_its_class_and_place(error: BaseException, text: str) -> None:
    prompt = AdditionalInfoPrompt(Template("\n" + text, file="p.j2"))
    ctx = PromptContext(user_input=UserInput("", additional_kwargs={"thing": Failing(error)}))
    with pytest.raises(TemplateError) as caught:
        prompt.format_2_str(ctx)
    assert caught.value.line == 2
    assert "p.j2:2" in str(caught.value)


class Named:
    items = "my items"
    keys = "my keys"
    get = "my get"
    text = "my text"

    def method(self) -> str:
        raise AssertionError("a template must not call this")


@pytest.mark.parametrize("name", ["items", "keys", "get", "text"])
def test_a_field_with_the_name_of_a_method_is_the_field(name: str) -> None:
    kwargs: dict[str, Any] = {"thing": Named(), "data": {name: "in the dict"}}
    ctx = PromptContext(user_input=UserInput("", additional_kwargs=kwargs))
    assert AdditionalInfoPrompt("{{ thing." + name + " }}").format_2_str(ctx) == f"my {name}"
    assert AdditionalInfoPrompt("{{ data." + name + " }}").format_2_str(ctx) == "in the dict"


@pytest.mark.parametrize("name", ["method", "__class__", "_private", "missing"])
def test_an_attribute_that_is_not_a_field_is_a_template_error(name: str) -> None:
    ctx = PromptContext(user_input=UserInput("", additional_kwargs={"thing": Named()}))
    with pytest.raises(TemplateError):
        AdditionalInfoPrompt("{{ thing." + name + " }}").format_2_str(ctx)


@pytest.mark.parametrize("name", ["items", "keys", "values", "get", "copy", "update"])
def test_kwargs_can_have_the_names_of_dict_methods(name: str) -> None:
    ctx = PromptContext(user_input=UserInput("", additional_kwargs={name: "mine"}))
    assert TextPrompt("{{ additional_kwargs['" + name + "'] }}").format_2_str(ctx) == "mine"
    assert AdditionalInfoPrompt("{{ " + name + " }}").format_2_str(ctx) == "mine"


class Loop(WrapPrompt):
    """Prompt that contains itself."""

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        return (("again", self),)

    @property
    def additional_kwargs_schema(self) -> None:
        return None


def test_a_prompt_that_contains_itself_is_an_error() -> None:
    with pytest.raises(PromptError):
        Layers(Loop(wrapped_prompts=[]))
    for prompt in (Loop, lambda **data: WrapPrompt(wrapped_prompts=[Loop(**data)])):
        with pytest.raises(PromptError):
            prompt(wrapped_prompts=[]).format_2_str(PromptContext(user_input="x"))


def test_a_deep_finite_tree_renders_or_is_a_prompt_error() -> None:
    prompt: BasePrompt = UserInputPrompt()
    try:
        for _ in range(100):
            prompt = WrapPrompt([prompt], "<{{ wrapped_str }}>")
    except PromptError:
        return
    assert prompt.format_2_str(PromptContext(user_input="x")) == "<" * 100 + "x" + ">" * 100


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"user_input": None},
        {"user_input": 5},
        {"user_input": ["a", 5]},
        {"user_input": {"input": "x", "other": 1}},
        {"user_input": {"input": "x", "additional_kwargs": [1]}},
        {"user_input": {"input": "x", "additional_kwargs": {1: 2}}},
        {"user_input": deep()},
        {"user_input": "x", "documents": "text"},
        {"user_input": "x", "documents": Document("a")},
        {"user_input": "x", "documents": 5},
        {"user_input": "x", "documents": [5]},
        {"user_input": "x", "documents": [{"txt": "a"}]},
        {"user_input": "x", "knowledge": Fact("a")},
        {"user_input": "x", "tools": [{"title": "a"}]},
        {"user_input": "x", "conversation": "hello"},
        {"user_input": "x", "conversation": [{"role": "user", "body": "x"}]},
        {"user_input": "x", "conversation": [{"role": "boss"}]},
        {"user_input": "x", "extra": 5},
        {"user_input": "x", "locale": 5},
        {"user_input": "x", "unknown": 1},
    ],
    ids=lambda fields: ", ".join(f"{name}: {type(value).__name__}" for name, value in fields.items()),
)
def test_a_context_of_the_wrong_shape_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ContextError):
        PromptContext(**fields)
    if isinstance(fields.get("user_input"), str):
        with pytest.raises(ContextError):
            PromptContext(**{**fields, "user_input": UserInput("x")})


def test_a_context_accepts_the_short_forms() -> None:
    ctx = PromptContext(
        user_input={"input": ["look", Image(b"x", name="x.png")], "additional_info": {"root": "/"}},
        elements=["a", {"text": "b", "title": "B"}],
        conversation=[{"role": "user", "content": "hi"}],
        knowledge=[{"text": "f"}],
    )
    assert ctx.user_input.text == "look[image: x.png]"
    assert dict(ctx.user_input.additional_kwargs) == {"root": "/"}
    assert [document.text for document in ctx.documents] == ["a", "b"]
    assert ctx.conversation == Conversation([Message("user", "hi")])
    assert ctx.view["additional_kwargs"] is ctx.user_input.additional_kwargs


def test_a_context_cannot_be_changed() -> None:
    ctx = PromptContext(
        user_input=UserInput("x", additional_kwargs={"a": 1}), documents=[Document("d", metadata={"k": [1]})]
    )
    with pytest.raises(AttributeError):
        ctx.locale = "en"  # type: ignore[misc]
    with pytest.raises(TypeError):
        ctx.user_input.additional_kwargs["a"] = 2  # type: ignore[index]
    with pytest.raises(TypeError):
        ctx.view["locale"] = "en"  # type: ignore[index]
    with pytest.raises(TypeError):
        ctx.documents[0].metadata["k"].append(2)
    with pytest.raises(AttributeError):
        ToolSpec("a").name = "b"  # type: ignore[misc]


EMPTY: list[BasePrompt] = [
    UserInputPrompt(),
    ConversationPrompt(),
    MemoPrompt(),
    KnowledgePrompt(),
    ToolPrompt(),
    ExamplesPrompt(),
    AdditionalInfoPrompt(),
    TextPrompt(""),
    WrapPrompt(wrapped_prompts=[]),
]


@pytest.mark.parametrize("prompt", EMPTY, ids=lambda prompt: type(prompt).__name__)
def test_a_prompt_without_items_is_an_empty_string(prompt: BasePrompt) -> None:
    ctx = PromptContext(user_input="")
    assert prompt.format_2_str(ctx) == ""
    assert prompt.format_2_multimodal(ctx) == ("", {})
    assert compose(Layers(prompt, input=[prompt]), ctx).messages == ()


def test_the_error_names_a_selector_that_fails_or_returns_an_invalid_value() -> None:
    with pytest.raises(PromptError) as caught:
        StaticSelector(-1)
    assert caught.value.prompt is None
    ctx = PromptContext(user_input="x", examples=[Example("i", "o", id="a")])
    with pytest.raises(PromptError):
        ExamplesPrompt(selector=StaticSelector(ids=["b", "c"])).format_2_str(ctx)
