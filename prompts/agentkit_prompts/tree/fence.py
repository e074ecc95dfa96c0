"""The fence around what a prompt rendered: two lines that untrusted text cannot forge."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Around, FromSegments, Rendered
from agentkit_prompts.templates.spans import broken_at

__all__ = ["fenced", "without_forged_nonce"]


def fenced(rendered: Rendered, ctx: PromptContext) -> Rendered:
    """Put a rendering between two lines whose nonce it does not contain."""
    nonce = ctx.nonce
    if nonce is None:
        raise PromptError(
            "a fence needs PromptContext.session_key, a secret that stays the same for a session", name="session_key"
        )
    inner = rendered.replace(nonce, nonce[:1] + "\u200b" + nonce[1:])
    return Around(f"<untrusted-{nonce}>\n", inner, f"\n</untrusted-{nonce}>")


def without_forged_nonce(rendered: Rendered, nonce: str) -> Rendered:
    """Return a rendering in which the nonce stands in text of the developer only: two values may form it together."""
    if nonce not in rendered.text:
        return rendered
    segments = list(rendered.segments())
    texts = [segment.text for segment in segments]
    starts = [0, *accumulate(map(len, texts))]
    places = [found.start() for found in re.finditer(f"(?={nonce})", "".join(texts))]

    def is_trusted(at: int) -> bool:
        number = bisect_right(starts, at) - 1
        return segments[number].trust == "trusted" and at + len(nonce) <= starts[number + 1]

    cuts = [at + 1 for at in places if not is_trusted(at)]
    return FromSegments(broken_at(segments, texts, cuts)) if cuts else rendered
