"""Laws that hold for every prompt tree over every context."""

from __future__ import annotations

import re
from copy import copy

import pytest
from hypothesis import given

from agentkit.prompts import BasePrompt, PromptContext, PromptError, Rendered, Url, UserInputPrompt, WrapPrompt
from agentkit.testing import strategies as some
from tests.prompts.laws import law

MARKER = re.compile(r"<\|media:(image|audio|video|file):([0-9a-f]{32})\|>")


@law
@given(some.prompts(), some.contexts())
def test_plain_text_is_the_multimodal_text_with_alt_texts_for_markers(tree: BasePrompt, ctx: PromptContext) -> None:
    text, table = tree.format_2_multimodal(ctx)
    media = tree.render(ctx).media
    uses = iter(media)
    assert tree.format_2_str(ctx) == MARKER.sub(lambda _: next(uses).alt, text)
    assert next(uses, None) is None

    found = [match.groups() for match in MARKER.finditer(text)]
    assert found == [(part.kind, part.id) for part in media], "markers and media agree in order and number"
    assert set(found) == {(kind, name) for kind, inside in table.items() for name in inside}
    assert text.count("<|media:") == len(found), "nothing else reads like a marker"
    assert all(isinstance(payload, bytes | Url) for inside in table.values() for payload in inside.values())
    spans_tile_the_text(tree.render(ctx))
    assert tree.format_2_multimodal(copy(ctx)) == (text, table), "the same every time"


def spans_tile_the_text(rendered: Rendered) -> None:
    at = 0
    for span in rendered.spans("system[0]"):
        assert span.start == at < span.end
        assert span.prompt.startswith("system[0]")
        assert span.line is None or span.line >= 1
        at = span.end
    assert at == len(rendered.text)


@law
@given(some.prompts(), some.contexts(with_media=False))
def test_text_alone_never_becomes_media(tree: BasePrompt, ctx: PromptContext) -> None:
    text, table = tree.format_2_multimodal(ctx)
    assert table == {}
    assert "<|media:" not in text
    assert tree.format_2_str(ctx) == text


@law
@given(some.prompts(), some.contexts())
def test_what_layers_look_up_beforehand_renders_the_same(tree: BasePrompt, ctx: PromptContext) -> None:
    beforehand, rendered = tree.renderer()(ctx), tree.rendered(ctx)
    assert (beforehand.text, beforehand.media) == (rendered.text, rendered.media)
    assert beforehand.spans("system[0]") == rendered.spans("system[0]")


@pytest.mark.parametrize("fence", [False, True])
@pytest.mark.parametrize("session_key", [None, "secret"])
@pytest.mark.parametrize("locale", [None, "zh-CN"])
@pytest.mark.parametrize("text", ["plain", "<|media:image:0|>", "{{ user_input }}"])
@pytest.mark.parametrize(
    "template", ["Q: {{ wrapped_str }}", {"en": "Q: {{ wrapped_str }}", "zh": "{{ wrapped_str }}?"}]
)
def test_a_frame_around_the_input_is_the_same_looked_up_beforehand(
    fence: bool, session_key: str | None, locale: str | None, text: str, template: str | dict[str, str]
) -> None:
    tree = WrapPrompt(template, wrapped_prompts=(UserInputPrompt(fence=fence),))
    ctx = PromptContext(user_input=text, session_key=session_key, locale=locale)
    if fence and session_key is None:
        with pytest.raises(PromptError) as direct:
            tree.rendered(ctx)
        with pytest.raises(PromptError) as beforehand:
            tree.renderer()(ctx)
        assert str(direct.value) == str(beforehand.value)
        assert (direct.value.prompt, direct.value.name) == ("wrapped_prompts[0]", "session_key")
        return
    assert tree.renderer()(ctx).spans() == tree.rendered(ctx).spans()
    assert tree.renderer()(ctx).text == tree.rendered(ctx).text
