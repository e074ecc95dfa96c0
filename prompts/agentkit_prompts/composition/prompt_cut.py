"""What is cut of a prompt under a budget: of its text or items, or of the prompts inside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agentkit_prompts.composition.cut_order import Node, Siblings
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import FromSegments, Plain, Rendered
from agentkit_prompts.templates.spans import Segment, Span, tile
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["node_of"]

_MAX_PIECES = 256
"""Into how many pieces text is cut."""
_MAX_WORD = 80
_SPACE = re.compile(r"\s+")
_ELLIPSIS = "\u2026"


class _Part(Node):
    """A prompt that can be kept in part, each part rendered once. A fence goes around what is kept."""

    def __init__(self, prompt: BasePrompt, ctx: PromptContext, counter: TokenCounter) -> None:
        self.size = prompt.size
        self._prompt = prompt
        self._ctx = ctx
        self._counter = counter
        self._cache: dict[int, Rendered] = {}

    def tokens(self, kept: int) -> int:
        """Count the rendering of the first units."""
        return self.render(kept).tokens(self._counter)

    def render(self, kept: int) -> Rendered:
        """Render the first units."""
        known = self._cache.get(kept)
        if known is None:
            known = self._cache[kept] = self._prompt.apart(self._cut(kept), self._ctx)
        return known

    def _cut(self, kept: int) -> Rendered:
        raise NotImplementedError


class _Leaf(_Part):
    """A prompt without children, cut the way its size says."""

    def __init__(self, prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> None:
        super().__init__(prompt, ctx, counter)
        self._whole = whole
        cut = self.size.cut
        self._points = cut_points(whole, _MAX_PIECES) if cut in ("head", "tail", "middle") and whole.text else []
        if not whole.text:
            self.units = 0
        elif cut == "none" or cut == "drop":
            self.units = 1
        elif cut == "items":
            self.units = prompt.item_count(ctx)
        else:
            self.units = len(self._points) or _MAX_PIECES
        # Everything, when it cannot be cut.
        self.required = self.units if cut == "none" or (cut == "drop" and self.size.min > 0) else 0

    def _cut(self, kept: int) -> Rendered:
        cut, whole = self.size.cut, self._whole
        if kept == self.units:
            return whole
        if kept == 0:
            return Plain("")
        if cut == "items":
            return self._prompt.render_items(self._ctx, kept)
        if callable(cut):
            allowed = whole.tokens(self._counter) * kept // _MAX_PIECES
            try:
                text = cut(whole.plain, allowed)
            except PromptError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise PromptError(
                    f"{self._prompt.label}: its cut failed on {allowed} tokens: {what}", name="cut"
                ) from error
            if not isinstance(text, str):
                returned = type(text).__name__
                raise PromptError(
                    f"{self._prompt.label}: its cut must return str, got {returned}", name="cut", value=returned
                )
            return Plain(text, trust=whole.trust)
        points, size = self._points, len(whole.text)
        if cut == "head":
            return cut_text(whole, points[kept - 1], size)
        if cut == "tail":
            return cut_text(whole, 0, points[-kept - 1])
        head = (kept + 1) // 2
        tail = kept - head
        return cut_text(whole, points[head - 1], points[-tail - 1] if tail else size)


class _Tree(_Part):
    """A prompt around others: what is cut are its children, by the order among them."""

    def __init__(
        self,
        prompt: BasePrompt,
        ctx: PromptContext,
        children: Sequence[tuple[str, _Leaf | _Tree]],
        counter: TokenCounter,
    ) -> None:
        super().__init__(prompt, ctx, counter)
        self._children = children
        self._siblings = Siblings(children)
        self.units = len(self._siblings.order)
        self.required = self._siblings.required
        self.lost = self._siblings.lost

    def _cut(self, kept: int) -> Rendered:
        given = zip(self._children, self._siblings.given(kept), strict=True)
        return self._prompt.render_around(self._ctx, [node.render(count) for (_, node), count in given])


def node_of(prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> _Leaf | _Tree:
    """Return the node of a prompt; one with children that is not cut itself lets its children give way.

    That needs a rendering that follows from those of the children: one with a `render` of its own stays whole.
    """
    if prompt.fence:
        whole = prompt.render(ctx)  # the fence is put around what is kept of it
    if prompt.children and prompt.size.cut == "none" and whole.text:
        inner = [child.rendered(ctx) for _, child in prompt.children]
        if [*prompt.render_around(ctx, inner).segments()] == [*whole.segments()]:
            children = [
                (path, node_of(child, ctx, rendered, counter))
                for (path, child), rendered in zip(prompt.children, inner, strict=True)
            ]
            return _Tree(prompt, ctx, children, counter)
    return _Leaf(prompt, ctx, whole, counter)


def cut_points(rendered: Rendered, most: int) -> list[int]:
    """Return about `most` ascending offsets, the end last, at which the text may be cut: between words where
    there are any, never inside a media marker or an atomic chunk.
    """
    text, size = rendered.text, len(rendered.text)
    points: list[int] = []
    kept_whole = [(span.start, span.end) for span in _whole_spans(rendered)]
    # Evenly spaced, and closer and closer towards both ends, so that little room still shows something.
    halves = [size >> power for power in range(8, size.bit_length() - 4)]
    wished = {size * number // most for number in range(1, most)} | {*halves} | {size - half for half in halves}
    for point in sorted(wished):
        space = _SPACE.search(text, point, min(size, point + _MAX_WORD))
        point = space.end() if space else point
        for start, end in kept_whole:
            if start < point < end:
                point = end
                break
        if point > (points[-1] if points else 0):
            points.append(point)
    if not points or points[-1] != size:
        points.append(size)
    return points


def _whole_spans(rendered: Rendered) -> Iterator[Span]:
    segments = list(rendered.segments())
    for segment, span in zip((part for part in segments if part.text), tile(segments), strict=True):
        if segment.media is not None or segment.atomic:
            yield span


def cut_text(rendered: Rendered, start: int, end: int) -> Rendered:
    """Return the rendering without the characters from `start` to `end`, an ellipsis in their place."""
    kept: list[Segment] = []
    offset = 0
    placed = False
    for segment in rendered.segments():
        begin, stop = offset, offset + len(segment.text)
        offset = stop
        if begin < start:
            kept.append(segment._replace(text=segment.text[: start - begin]))
        if not placed and stop > start:
            kept.append(Segment(_ELLIPSIS, segment.prompt, None, "", "trusted"))
            placed = True
        if stop > end and segment.text:
            kept.append(segment._replace(text=segment.text[max(0, end - begin) :]))
    return FromSegments(kept)
