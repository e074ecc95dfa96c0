"""Laws that hold for every prompt tree over every context."""

from __future__ import annotations

import re

from hypothesis import given
from laws import law

from agentkit.prompts import BasePrompt, PromptContext, Url
from agentkit.testing import strategies as some

MARKER = re.compile(r"<\|media:(image|audio|video|file):([0-9a-f]{32})\|>")


@law
@given(some.prompts(), some.contexts())
def test_the_plain_text_is_the_multimodal_text_with_alt_texts_for_markers(tree: BasePrompt, ctx: PromptContext) -> None:
    text, _ = tree.format_2_multimodal(ctx)
    uses = iter(tree.render(ctx).media)
    assert tree.format_2_str(ctx) == MARKER.sub(lambda _: next(uses).alt, text)
    assert next(uses, None) is None


@law
@given(some.prompts(), some.contexts())
def test_markers_and_media_agree_in_order_and_number(tree: BasePrompt, ctx: PromptContext) -> None:
    text, table = tree.format_2_multimodal(ctx)
    found = [match.groups() for match in MARKER.finditer(text)]
    assert found == [(part.kind, part.id) for part in tree.render(ctx).media]
    assert set(found) == {(kind, name) for kind, inside in table.items() for name in inside}
    assert text.count("<|media:") == len(found)


@law
@given(some.prompts(), some.contexts())
def test_the_media_table_holds_the_payloads_the_user_gave(tree: BasePrompt, ctx: PromptContext) -> None:
    _, table = tree.format_2_multimodal(ctx)
    for inside in table.values():
        for payload in inside.values():
            assert isinstance(payload, bytes | Url)


@law
@given(some.prompts(), some.contexts(with_media=False))
def test_text_alone_never_becomes_media(tree: BasePrompt, ctx: PromptContext) -> None:
    text, table = tree.format_2_multimodal(ctx)
    assert table == {}
    assert "<|media:" not in text
    assert tree.format_2_str(ctx) == text


@law
@given(some.prompts(), some.contexts())
def test_spans_tile_the_text_of_a_prompt(tree: BasePrompt, ctx: PromptContext) -> None:
    rendered = tree.render(ctx)
    at = 0
    for span in rendered.spans("system[0]"):
        assert span.start == at < span.end
        assert span.prompt.startswith("system[0]")
        assert span.line is None or span.line >= 1
        at = span.end
    assert at == len(rendered.text)


@law
@given(some.prompts(), some.contexts())
def test_rendering_twice_gives_the_same_text(tree: BasePrompt, ctx: PromptContext) -> None:
    assert tree.format_2_multimodal(ctx) == tree.format_2_multimodal(ctx.model_copy())
