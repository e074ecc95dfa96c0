"""Fence around the rendering of a prompt: two lines that untrusted text cannot forge."""

from __future__ import annotations

import re
from bisect import bisect_right

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.templates.spans import broken_at, tile


def fenced(rendered: Rendered, ctx: PromptContext) -> Rendered:
    """Put a rendering between two lines with the nonce of the session; copies of the nonce in it are broken.

    Raises:
        PromptError: The context has no session key.
    """
    nonce = ctx.nonce
    if nonce is None:
        raise PromptError(
            "a fence needs PromptContext.session_key, a secret that is constant during a session", name="session_key"
        )
    inner = without_forged_nonce(rendered, nonce, keeps_trusted=False)
    return Joined([inner], before=f"<untrusted-{nonce}>\n", after=f"\n</untrusted-{nonce}>")


def without_forged_nonce(rendered: Rendered, nonce: str, *, keeps_trusted: bool = True) -> Rendered:
    """Return a rendering in which each copy of the nonce is broken; with `keeps_trusted`, except copies that are
    trusted text of one span.

    Two neighbouring values can form a copy together.
    """
    if nonce not in rendered.text:
        return rendered
    segments = rendered.segments()
    spans = [*tile(segments)]
    starts = [span.start for span in spans]
    cuts: list[int] = []
    # A look-ahead also matches overlapping copies.
    for match in re.finditer(f"(?={nonce})", rendered.text):
        span = spans[bisect_right(starts, match.start()) - 1]
        is_of_span = match.start() + len(nonce) <= span.end
        if not (keeps_trusted and is_of_span and span.trust == "trusted"):
            cuts.append(match.start() + 1)
    if not cuts:
        return rendered
    return Rendered.from_segments(broken_at(segments, [segment.text for segment in segments], cuts))
