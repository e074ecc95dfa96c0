"""Contract of the prompt classes: two formats, one render, wrapping, templates, places in a turn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ConfigDict, Field, ValidationError

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    ConversationPrompt,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    File,
    Image,
    KnowledgePrompt,
    KwargsError,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    PromptError,
    RecalledMessage,
    RecalledPrompt,
    Rendered,
    Template,
    TemplateError,
    TextPrompt,
    ToolCall,
    ToolPrompt,
    ToolSpec,
    Trusted,
    UserInput,
    UserInputPrompt,
    WrapPrompt,
    compose,
)
from agentkit.prompts.example_selectors import StaticSelector

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

CAT = Image(b"cat", name="cat.png")
CTX = PromptContext(
    user_input=UserInput(["What is ", CAT, "?"], additional_kwargs={"root": "/src", "depth": 2}),
    conversation=[Message("user", "Hi"), Message("assistant", ["Hello ", File(b"pdf", name="a.pdf")])],
    documents=[Document("Cats purr.", "7", "Cats"), Document("Dogs bark.", source="dogs.md", position=3), "No name."],
    recalled=[
        RecalledMessage("I like cats.", "user", name="Ada", when=datetime(2026, 1, 2, 3, 4, tzinfo=UTC)),
        RecalledMessage("Noted.", "assistant"),
    ],
    knowledge=[Fact("It is May."), Fact("It rains.")],
    tools=[ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}})],
    examples=[Example("1+1", "2", id="a"), Example("2+2", "4", id="b")],
)

SHOWN: list[tuple[BasePrompt, str]] = [
    (TextPrompt("Be brief, {{ locale or 'friend' }}."), "Be brief, friend."),
    (UserInputPrompt(), "What is [image: cat.png]?"),
    (UserInputPrompt("Q: {{ user_input }}"), "Q: What is [image: cat.png]?"),
    (ConversationPrompt(), "user: Hi\nassistant: Hello [file: a.pdf]"),
    (MemoPrompt(), "[Cats#7] Cats\nCats purr.\n\n[dogs.md#3]\nDogs bark.\n\n[document#b6314b]\nNo name."),
    (RecalledPrompt(), "[user, 2026-01-02 03:04+00:00] Ada\nI like cats.\n\n[assistant]\nNoted."),
    (KnowledgePrompt(), "- It is May.\n- It rains."),
    (
        ToolPrompt(),
        '{"name": "look", "description": "Look it up.", '
        '"parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}',
    ),
    (ExamplesPrompt(), "Input: 1+1\nOutput: 2\n\nInput: 2+2\nOutput: 4"),
    (ExamplesPrompt(selector=StaticSelector(1)), "Input: 1+1\nOutput: 2"),
    (ExamplesPrompt(selector=StaticSelector(ids=["b"])), "Input: 2+2\nOutput: 4"),
    (ExamplesPrompt(examples=(Example("own", "mine"),)), "Input: own\nOutput: mine"),
    (AdditionalInfoPrompt(), "root: /src\ndepth: 2"),
    (AdditionalInfoPrompt("{{ root }} to {{ depth }}"), "/src to 2"),
    (WrapPrompt(wrapped_prompts=[TextPrompt("a"), TextPrompt("b")]), "a\nb"),
    (WrapPrompt([TextPrompt("a"), TextPrompt(""), TextPrompt("b")], "<{{ wrapped_str }}>"), "<a\n\nb>"),
    (TextPrompt(Template("{locale} {user_input}", engine="fstring")), "None What is [image: cat.png]?"),
]


@pytest.mark.parametrize(("prompt", "text"), SHOWN, ids=lambda value: getattr(value, "label", ""))
def test_each_prompt_renders_its_text_and_media(prompt: BasePrompt, text: str) -> None:
    assert prompt.format_2_str(CTX) == text
    marked, table = prompt.format_2_multimodal(CTX)
    assert prompt.render(CTX).text == marked
    assert prompt.render(CTX).plain == text
    assert ("<|media:" in marked) == bool(table)


def test_multimodal_text_has_its_payloads(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"png")
    url = File("https://example.org/b.pdf")  # type: ignore[arg-type]
    ctx = PromptContext(user_input=UserInput([Image(path), " and ", url, Image(b"raw")]))
    text, table = UserInputPrompt().format_2_multimodal(ctx)
    assert re.fullmatch(r"<\|media:image:\w{32}\|> and <\|media:file:\w{32}\|><\|media:image:\w{32}\|>", text)
    assert table == {"image": {Image(path).id: path, Image(b"raw").id: b"raw"}, "file": {url.id: url.source}}


def test_a_wrapper_keeps_media() -> None:
    prompt: BasePrompt = UserInputPrompt()
    for _ in range(4):
        prompt = WrapPrompt([prompt, TextPrompt("x")], "<{{ wrapped_str }}>")
    text, table = prompt.format_2_multimodal(CTX)
    assert text.count(CAT.marker) == 1
    assert table == {"image": {CAT.id: b"cat"}}


def test_wrapped_text_is_data_and_is_not_compiled() -> None:
    ctx = PromptContext(user_input="{{ 1 + 1 }}{% for x in y %}{# c #}")
    wrap = WrapPrompt([UserInputPrompt()], "{{ wrapped_str }} {{ wrapped_str | length }}")
    assert wrap.format_2_str(ctx) == "{{ 1 + 1 }}{% for x in y %}{# c #} 34"


def test_the_template_of_a_wrapper_reads_the_context() -> None:
    wrap = WrapPrompt([TextPrompt("a")], "{{ knowledge | length }}: {{ wrapped_str }}")
    assert wrap.format_2_str(CTX) == "2: a"


def test_only_a_wrapper_has_wrapped_str() -> None:
    with pytest.raises(TemplateError) as caught:
        TextPrompt("{{ wrapped_str }}")
    assert (caught.value.variable, caught.value.line) == ("wrapped_str", 1)


def test_templates_get_objects_without_a_dump() -> None:
    class Point:
        x = 3

    ctx = PromptContext(user_input=UserInput("", additional_kwargs={"point": Point(), "path": Path("a") / "b"}))
    assert AdditionalInfoPrompt("{{ point.x }} {{ path }}").format_2_str(ctx) == f"3 {Path('a') / 'b'}"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\n{{ user_input", 2), ("{% for x in documents %}", 1), ("\n\n{{ 1 + }}", 3), ("{% nope %}", 1)],
)
def test_a_syntax_error_is_raised_at_construction(text: str, line: int) -> None:
    with pytest.raises(TemplateError) as caught:
        TextPrompt(Template(text, file="greet.j2"))
    assert caught.value.file == "greet.j2"
    assert caught.value.line == line


def test_an_error_while_rendering_names_prompt_file_line_and_variable() -> None:
    inner = TextPrompt(Template("\n{{ documents[9].text }}", file="inner.j2"), name="Inner")
    layers = Layers(
        "x", before_input=WrapPrompt(wrapped_prompts=[TextPrompt("ok"), WrapPrompt(wrapped_prompts=[inner])])
    )
    with pytest.raises(TemplateError) as caught:
        compose(layers, CTX)
    assert caught.value.prompt == "before_input[0].wrapped_prompts[1].wrapped_prompts[0]"
    assert (caught.value.file, caught.value.line) == ("inner.j2", 2)


def test_the_error_of_a_missing_kwarg_names_the_kwarg_and_the_prompt() -> None:
    ctx = PromptContext(user_input="x")
    for prompt in (AdditionalInfoPrompt("{{ root }}"), TextPrompt("{{ additional_kwargs.root }}")):
        with pytest.raises(KwargsError) as caught:
            prompt.format_2_str(ctx)
        assert [*caught.value.problems] == ["root"]
        with pytest.raises(KwargsError) as caught:
            compose(Layers(prompt), ctx)
        assert [*caught.value.problems] == ["root"]
        assert caught.value.prompt == "system[0]" or caught.value.problems["root"][1] == ("system[0]",)


def test_a_locale_falls_back_from_region_to_language_to_the_first() -> None:
    template = Template({"en": "Hi", "zh": "你好", "pt_BR": "Oi", "zh-Hant": "您好"})
    expected = {
        None: "Hi", "en": "Hi", "en-GB": "Hi", "zh-CN": "你好", "zh_TW": "你好", "ZH": "你好", "zh-Hant-TW": "您好",
        "ZH_hant": "您好", "pt-BR": "Oi", "pt_BR": "Oi", "pt-br": "Oi", "pt": "Hi", "xx": "Hi", "": "Hi", "-": "Hi",
        "zh-" * 100_000: "你好",
    }  # fmt: skip
    for locale, text in expected.items():
        assert TextPrompt(template).format_2_str(PromptContext(user_input="", locale=locale)) == text
    with pytest.raises(PromptError, match="only in case or hyphens"):
        Template({"pt-BR": "Oi", "pt_br": "Olá"})


def test_a_template_file_is_read_as_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a.j2"
    path.write_text("Grüße {{ user_input }}", encoding="utf-8")
    assert TextPrompt(Template.from_file(path)).format_2_str(PromptContext(user_input="x")) == "Grüße x"
    path.write_bytes(b"\xff\xfe")
    for unreadable in (path, tmp_path / "missing.j2"):
        with pytest.raises(TemplateError) as caught:
            Template.from_file(unreadable)
        assert caught.value.file == str(unreadable)


@pytest.mark.parametrize("text", [{}, {"en": 5}, {"en": None}])
def test_a_template_needs_text(text: Any) -> None:
    with pytest.raises(PromptError) as caught:
        Template(text)
    assert type(caught.value) is PromptError


def test_a_template_renders_without_a_prompt() -> None:
    template = Template("{{ a }} {{ b }}", params_schema={"properties": {"b": {"default": 2}}, "required": ["a"]})
    assert template.render({"a": CAT}) == "[image: cat.png] 2"
    assert template.multimodal_render({"a": CAT, "b": 1}) == (f"{CAT.marker} 1", {"image": {CAT.id: b"cat"}})
    with pytest.raises(TemplateError) as caught:
        template.render({})
    assert caught.value.line is None, "the schema refuses the values before anything is rendered"
    assert Template("{{ a }}").json_schema == {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    assert Template("x").json_schema is None


def test_a_custom_prompt_takes_ten_lines() -> None:
    class Shouting(BasePrompt):
        template: Template = Template("{{ loud }}!")
        supplies = frozenset({"loud"})

        def values(self, ctx: PromptContext) -> Mapping[str, Any]:
            return {**ctx.view, "loud": ctx.user_input.text.upper()}

    class Own(BasePrompt):
        template: Template = Template("")

        def render(self, ctx: PromptContext) -> Rendered:
            return Rendered.from_text("own", pointer="user_input", trust="untrusted")

    ctx = PromptContext(user_input="hey")
    assert Shouting().format_2_str(ctx) == "HEY!"
    composition = compose(Layers([Shouting(), WrapPrompt(wrapped_prompts=[Own()])], conversation=False), ctx)
    assert composition.system.text == "HEY!\n\nown"
    assert composition.spans[-2].pointer == "user_input"
    assert composition.spans[-2].prompt == "system[1].wrapped_prompts[0]"


def test_a_prompt_cannot_be_changed() -> None:
    prompt = TextPrompt("x")
    with pytest.raises(ValidationError) as caught:
        prompt.name = "y"
    assert [error["type"] for error in caught.value.errors()] == ["frozen_instance"]
    with pytest.raises(AttributeError):
        prompt.template.text = "y"


def test_the_error_names_all_unknown_fields_with_a_suggestion() -> None:
    with pytest.raises(PromptError) as caught:
        MemoPrompt(fense=True)  # type: ignore[call-arg]
    assert (caught.value.name, caught.value.suggestion) == ("fense", "fence")
    with pytest.raises(PromptError) as caught:
        TextPrompt("x", nam="y", colour="red")  # type: ignore[call-arg]
    assert (caught.value.name, caught.value.suggestion) == ("nam, colour", "name")
    with pytest.raises(PromptError) as caught:
        Layers(sytem="x")  # type: ignore[call-arg]
    assert (caught.value.name, caught.value.suggestion) == ("sytem", "system")
    with pytest.raises(PromptError) as caught:
        TextPrompt("x", template="y")  # type: ignore[misc]
    assert caught.value.name == "template"


def test_a_class_with_aliases_or_extras_keeps_the_rules_of_pydantic() -> None:
    class Aliased(TextPrompt):
        colour: str = Field(default="red", alias="color")

    class Open(TextPrompt):
        model_config = ConfigDict(extra="allow")

    made = Aliased("x", color="blue")
    assert made.colour == made.model_copy(update={"name": "n"}).colour == "blue"
    assert Open("x", mood="calm").model_copy(update={"name": "n"}).model_extra == {"mood": "calm"}  # type: ignore[call-arg]


def test_the_places_of_a_turn() -> None:
    layers = Layers(
        ["one", "two"], before_input="before", input=[UserInputPrompt(), "beside"], after_input="after",
        after_intermediate="Go on.",
    )  # fmt: skip
    ctx = PromptContext(
        user_input="question",
        conversation=[Message("user", "old"), Message("assistant", "reply")],
        intermediate=[Message("assistant", "", (ToolCall("1", "look"),)), Message("tool", "seen", tool_call_id="1")],
    )
    assert [(message.role, message.text) for message in compose(layers, ctx).messages] == [
        ("system", "one\n\ntwo"),
        ("user", "old"),
        ("assistant", "reply"),
        ("user", "before\n\nquestion\n\nbeside\n\nafter"),
        ("assistant", ""),
        ("tool", "seen"),
        ("user", "Go on."),
    ]
    assert compose(layers, PromptContext(user_input="q")).messages[-1].text == "before\n\nq\n\nbeside\n\nafter"


def test_each_character_has_a_span_with_its_origin() -> None:
    layers = Layers(
        WrapPrompt([MemoPrompt()], "Use:\n{{ wrapped_str }}"), conversation=False,
        before_input=AdditionalInfoPrompt("{{ root }}"),
    )  # fmt: skip
    composition = compose(layers, CTX)
    found = {
        (span.prompt, span.pointer, span.trust): composition.marked_text(span.message)[span.start : span.end]
        for span in composition.spans
    }
    inner = "system[0].wrapped_prompts[0]"
    assert found[inner, "documents[0].text", "untrusted"] == "Cats purr."
    assert found["before_input[0]", "additional_kwargs.root", "untrusted"] == "/src"
    assert found["system[0]", "", "trusted"].endswith("Use:\n")
    assert found["input[0]", "user_input", "untrusted"] == "?"


def test_the_trust_of_an_expression_is_the_lowest_trust_of_its_values() -> None:
    ctx = PromptContext(
        user_input=UserInput("u", additional_kwargs={"note": Trusted("checked")}),
        documents=[Document("good", trust="trusted"), Document("bad")],
        extra={"note": "mine"},
    )

    def trust(text: str) -> set[str]:
        return {span.trust for span in TextPrompt(text).render(ctx).spans() if span.pointer}

    assert trust("{{ documents[1].text }}") == {"untrusted"}
    assert trust("{% for d in documents %}{{ d.text }}{% endfor %}") == {"trusted", "untrusted"}
    assert trust("{{ extra.note }}") == {"trusted"}
    assert trust("{{ extra.note ~ user_input }}") == {"untrusted"}
    assert trust("{{ documents | map(attribute='text') | join }}") == {"untrusted"}
    assert trust("{{ additional_kwargs.note }}") == {"trusted"}


def test_why_explains_sent_and_unsent_items() -> None:
    composition = compose(Layers(before_input=MemoPrompt()), CTX)
    assert {span.prompt for span in composition.why("documents[1]").spans} == {"before_input[0]"}
    assert composition.why("knowledge[0]").status == "unread"
    with pytest.raises(PromptError) as caught:
        composition.why("documents[7]")
    assert caught.value.name == "documents[7]"


def test_a_difference_names_the_first_layer_that_changed() -> None:
    layers = Layers(["Stable.", TextPrompt("{{ extra.mood }}")])
    one = compose(layers, PromptContext(user_input="a", extra={"mood": "calm"}))
    other = compose(layers, PromptContext(user_input="b", extra={"mood": "calm"}))
    assert other.diff(one).layer == "input[0]"
    third = compose(layers, PromptContext(user_input="b", extra={"mood": "cross"}))
    difference = third.diff(one)
    assert (difference.layer, difference.offset) == ("system[1]", len("Stable.\n\nc"))
    assert one.prefix_hash == other.prefix_hash != third.prefix_hash


# Known defects


THROUGH = [
    "{{ wrapped_str | trim }}",
    "{{ wrapped_str ~ '!' }}",
    "{% set inner %}{{ wrapped_str }}{% endset %}{{ inner }}",
    "{% macro show(x) %}{{ x }}{% endmacro %}{{ show(wrapped_str) }}",
]


@pytest.mark.parametrize("text", THROUGH)
def test_media_after_a_filter_are_sent(text: str) -> None:
    composition = compose(Layers(input=WrapPrompt([UserInputPrompt()], text)), CTX)
    assert composition.media == {"image": {CAT.id: b"cat"}, **{"file": {File(b"pdf").id: b"pdf"}}}
    assert CAT in composition.messages[-1].parts


def test_media_of_equal_content_and_two_kinds_are_kept_by_a_filter() -> None:
    ctx = PromptContext(user_input=UserInput([Image(b"x"), File(b"x")]))
    wrap = WrapPrompt([UserInputPrompt()], "{{ wrapped_str | trim }}")
    text, table = wrap.format_2_multimodal(ctx)
    assert re.findall(r"media:(\w+):", text) == ["image", "file"]
    assert set(table) == {"image", "file"}


def test_many_media_keep_their_places_after_a_filter() -> None:
    parts = [Image(b"%d" % number) for number in range(4_000)]
    prompt = WrapPrompt((UserInputPrompt(),), "{{ wrapped_str|trim }}")
    rendered = prompt.render(PromptContext(user_input=UserInput(parts)))
    assert [segment.media for segment in rendered.segments() if segment.media is not None] == parts


def test_media_of_equal_content_and_two_names_are_kept_by_a_filter() -> None:
    ctx = PromptContext(user_input=UserInput([Image(b"x", name="one"), Image(b"x", name="two")]))
    wrap = WrapPrompt([UserInputPrompt()], "{{ wrapped_str | trim }}")
    assert wrap.format_2_str(ctx) == "[image: one][image: two]"


def test_the_schema_of_an_optional_model_has_its_properties() -> None:
    from pydantic import BaseModel, ConfigDict, TypeAdapter

    class Needs(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        root: str

    layers = Layers(AdditionalInfoPrompt(Template("x", params_schema=TypeAdapter(Needs | None))))
    assert "root" in (layers.additional_kwargs_schema or {})["properties"]


def test_dropped_media_cannot_fail_the_request() -> None:
    from agentkit.prompts import Video

    history = [Message("user", [Video(b"clip")]), Message("assistant", "seen")]
    history += [Message("user", "and then?"), Message("assistant", "nothing")]
    composition = compose(Layers(history_block=0), PromptContext(user_input="x", conversation=history), budget=60)
    assert not composition.media
    assert composition.to_openai()["messages"]


def test_a_wrapper_of_empty_prompts_is_empty_unless_it_is_kept() -> None:
    memo, tags = MemoPrompt(), "<docs>{{ wrapped_str }}</docs>"
    inner = WrapPrompt([memo], "<i>{{ wrapped_str }}</i>")
    kept_inner = WrapPrompt([memo], "<i>{{ wrapped_str }}</i>", keep_empty=True)
    cases: list[tuple[WrapPrompt, str]] = [
        (WrapPrompt([memo], tags), ""),
        (WrapPrompt([memo], tags, keep_empty=True), "<docs></docs>"),
        (WrapPrompt([], tags), ""),
        (WrapPrompt([], tags, keep_empty=True), "<docs></docs>"),
        (WrapPrompt([memo, KnowledgePrompt(), TextPrompt("")], tags), ""),
        (WrapPrompt([TextPrompt(" ")], tags), "<docs> </docs>"),
        (WrapPrompt([memo, TextPrompt("x")], tags), "<docs>\nx</docs>"),
        (WrapPrompt([inner], tags), ""),
        (WrapPrompt([kept_inner], tags), "<docs><i></i></docs>"),
        (WrapPrompt([inner], tags, keep_empty=True), "<docs></docs>"),
        (WrapPrompt([memo], "{% if wrapped_str %}x{% else %}none{% endif %}"), ""),
        (WrapPrompt([memo], "{% if wrapped_str %}x{% else %}none{% endif %}", keep_empty=True), "none"),
        (WrapPrompt([memo], "{{ user_input.text }}{{ wrapped_str }}"), ""),
        (WrapPrompt([memo], tags, fence=True), ""),
        (WrapPrompt([TextPrompt("{{ user_input }}")], tags), "<docs>q</docs>"),
    ]
    for wrap, text in cases:
        ctx = PromptContext(user_input="q", session_key="k" * 32)
        assert wrap.format_2_str(ctx) == text, wrap
        rows = [row for row in compose(Layers(before_input=wrap), ctx).explain() if row.layer == "before_input[0]"]
        assert [row.tokens > 0 for row in rows] == [bool(text)], wrap
    image = WrapPrompt([UserInputPrompt()], tags)
    media = PromptContext(user_input=[Image(b"\x89PNG\r\n\x1a\n", name="lamp.png")])
    assert image.format_2_str(media) == "<docs>[image: lamp.png]</docs>"


def test_the_error_names_a_class_without_supplies_and_an_inline_template() -> None:
    class Weather(TextPrompt):
        def values(self, ctx: PromptContext) -> dict[str, Any]:
            return {**ctx.view, "weather": "rain"}

    with pytest.raises(TemplateError, match=r"^<template 'Now: {{ weather }}'>:2: .*supplies = {'weather'}") as caught:
        Weather("Hi\nNow: {{ weather }}")
    assert (caught.value.file, caught.value.line, caught.value.variable) == (None, 2, "weather")
    for line in ("{{ user_input.txt }}", "{{ 1/0 }}", "{{ x", "{{ user_input | no }}", "{% include 'x' %}"):
        with pytest.raises(TemplateError) as caught:
            TextPrompt(f"a\n{line}").format_2_str(PromptContext(user_input="q"))
        assert repr(line) in str(caught.value), line
        assert caught.value.file is None
    for supplies in (["weather"], "weather", None):
        with pytest.raises(PromptError):
            type("Listed", (Weather,), {"supplies": supplies})("{{ weather }}")


def test_trusted_is_refused_at_places_without_an_effect() -> None:
    text = Trusted("a")
    refused: dict[str, Any] = {
        "input": lambda: PromptContext(text),
        "part of an input": lambda: UserInput(["b", text]),
        "document": lambda: Document(text),
        "document as a mapping": lambda: PromptContext("b", documents=[{"text": text}]),
        "fact": lambda: Fact(text),
        "message": lambda: Message("user", text),
        "part of a message": lambda: Message("user", [text]),
        "summary": lambda: PromptContext("b", summary=text),
    }
    accepted = []
    for name, create in refused.items():
        try:
            create()
        except PromptError:
            continue
        accepted.append(name)
    assert accepted == []
    assert Document(text, trust="trusted").text == "a"


def test_invalid_values_of_fields_are_one_prompt_error() -> None:
    options: list[dict[str, Any]] = [{"volatility": "daily"}, {"fence": "maybe"}, {"size": 3}, {"name": 4}]
    for option in options:
        with pytest.raises(PromptError) as caught:
            MemoPrompt(**option)
        assert caught.value.name == next(iter(option))
    with pytest.raises(PromptError) as caught:
        MemoPrompt(volatility="daily", fence="maybe")  # type: ignore[arg-type]
    assert [place for place, _ in caught.value.problems] == ["volatility", "fence"]
