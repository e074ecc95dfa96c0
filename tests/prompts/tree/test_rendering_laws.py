"""Laws of each prompt tree and each context."""

from __future__ import annotations

import re
from copy import copy

from hypothesis import given

from agentkit.prompts import BasePrompt, PromptContext, Rendered, Url
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
def test_text_does_not_become_media(tree: BasePrompt, ctx: PromptContext) -> None:
    text, table = tree.format_2_multimodal(ctx)
    assert table == {}
    assert "<|media:" not in text
    assert tree.format_2_str(ctx) == text
