"""Contract of the TFRobot document about prompt classes: the behaviour of its source listings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    Image,
    KwargsError,
    PromptContext,
    PromptError,
    Template,
    TextPrompt,
    UserInput,
    UserInputPrompt,
    WrapPrompt,
)

ROOT = {"type": "object", "properties": {"root": {"type": "string"}}, "required": ["root"]}
INFO = AdditionalInfoPrompt(Template("root {{ additional_kwargs.root }}", params_schema=ROOT))
CAT = Image(b"cat", name="cat.png")
ASKED = PromptContext(user_input=UserInput(["What is ", CAT, "?"], additional_kwargs={"root": "src"}))


def test_the_kwargs_that_a_prompt_needs_are_shown_and_checked() -> None:
    assert INFO.additional_kwargs_schema is not None
    assert INFO.additional_kwargs_schema["required"] == ["root"]
    assert WrapPrompt((INFO,), "{{ wrapped_str }}").additional_kwargs_schema is not None
    assert TextPrompt("x").additional_kwargs_schema is None
    with pytest.raises(KwargsError) as caught:  # The original can crash during the rendering.
        INFO.format_2_str(PromptContext(user_input="x"))
    assert [*caught.value.problems] == ["root"]


def test_a_schema_that_forbids_other_fields_is_refused_at_construction() -> None:
    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        root: str

    with pytest.raises(PromptError):
        AdditionalInfoPrompt(Template("{{ root }}", params_schema=Closed))

    class Plain(BaseModel):
        root: str

    with pytest.raises(PromptError):
        AdditionalInfoPrompt(Template("{{ root }}", params_schema=Plain))

    class Open(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        root: str

    made = AdditionalInfoPrompt(Template("{{ root }}", params_schema=Open))
    assert made.validate_prompt() is made


def test_both_formats_are_derived_from_one_render() -> None:
    with pytest.raises(TypeError):
        BasePrompt()  # type: ignore[abstract]

    class Own(BasePrompt):
        def format_2_str(self, ctx: PromptContext) -> str:
            return "own"

        def format_2_multimodal(self, ctx: PromptContext) -> tuple[str, dict[str, Any]]:
            return "own", {}

    assert WrapPrompt((Own(),), "<{{ wrapped_str }}>").format_2_str(ASKED) == "<own>"


def test_a_multimodal_text_is_returned_with_its_media() -> None:
    text, media = UserInputPrompt().format_2_multimodal(ASKED)
    (label,) = media
    assert label in text and [*media[label].values()] == [CAT.source]


def test_a_wrap_joins_its_children_by_newlines_and_inserts_them_into_its_template() -> None:
    wrap = WrapPrompt((INFO, TextPrompt("two")), "<p>\n{{ wrapped_str }}\n</p> {{ user_input }}")
    context = PromptContext(user_input=UserInput("Hi", additional_kwargs={"root": "src"}))
    assert wrap.format_2_str(context) == "<p>\nroot src\ntwo\n</p> Hi"


def test_a_wrap_keeps_the_media_of_its_children() -> None:
    # The original renders its children as text first, and loses them.
    wrap = WrapPrompt((UserInputPrompt(),), "<p>{{ wrapped_str }}</p>")
    text, media = wrap.format_2_multimodal(ASKED)
    (label,) = media
    assert label in text and text.startswith("<p>What is ") and [*media[label].values()] == [CAT.source]
