"""What is cut of a prompt under a budget: of its text or items, or of the prompts inside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkit_prompts.composition.cut_order import Node, Siblings
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment, tile
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.prompt import BasePrompt, render_prompt, render_values, with_fence
from agentkit_prompts.tree.wrap import WrapPrompt, render_around

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
            known = self._cache[kept] = with_fence(self._prompt, self._cut(kept), self._ctx)
        return known

    def _cut(self, kept: int) -> Rendered:
        raise NotImplementedError


class _Leaf(_Part):
    """A prompt without children, cut the way its size says."""

    def __init__(self, prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> None:
        super().__init__(prompt, ctx, counter)
        self._whole = whole
        cut = self.size.cut
        self._points: list[int] = []
        if cut in ("head", "tail", "middle") and whole.text:
            self._points = cut_points(whole, _MAX_PIECES)
        if not whole.text:
            self.units = 0
        elif cut == "none" or cut == "drop":
            self.units = 1
        elif cut == "items":
            self.units = len(_items(prompt, prompt.values(ctx)))
        else:
            self.units = len(self._points) or _MAX_PIECES
        self.required = 0
        if cut == "none" or (cut == "drop" and self.size.min > 0):
            self.required = self.units

    def _cut(self, kept: int) -> Rendered:
        cut, whole = self.size.cut, self._whole
        if kept == self.units:
            return whole
        if kept == 0:
            return Rendered.from_text("")
        if cut == "items":
            return _render_items(self._prompt, self._ctx, kept)
        if callable(cut):
            return self._custom_cut(cut, kept)
        points = self._points
        if cut == "head":
            return cut_text(whole, points[kept - 1], len(whole.text))
        if cut == "tail":
            return cut_text(whole, 0, points[-kept - 1])
        head = (kept + 1) // 2
        return cut_text(whole, points[head - 1], points[head - kept - 1])

    def _custom_cut(self, cut: Callable[[str, int], str], kept: int) -> Rendered:
        """Return the result of the developer's function."""
        label, allowed = self._prompt.label, self._whole.tokens(self._counter) * kept // _MAX_PIECES
        try:
            text = cut(self._whole.plain, allowed)
        except PromptError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise PromptError(f"{label}: its cut failed on {allowed} tokens: {reason}", name="cut") from error
        if not isinstance(text, str):
            returned = type(text).__name__
            raise PromptError(f"{label}: its cut must return str, got {returned}", name="cut", value=returned)
        return Rendered.from_text(text, trust=self._whole.trust)


class _Tree(_Part):
    """A prompt around others: what is cut are its children, by the order among them."""

    def __init__(
        self,
        prompt: WrapPrompt,
        ctx: PromptContext,
        children: Sequence[tuple[str, _Leaf | _Tree]],
        counter: TokenCounter,
    ) -> None:
        super().__init__(prompt, ctx, counter)
        self._wrap = prompt
        self._children = children
        self._siblings = Siblings(children)
        self.units = len(self._siblings.order)
        self.required = self._siblings.required
        self.lost = self._siblings.lost

    def _cut(self, kept: int) -> Rendered:
        given = zip(self._children, self._siblings.given(kept), strict=True)
        return render_around(self._wrap, self._ctx, [node.render(count) for (_, node), count in given])


def node_of(prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> _Leaf | _Tree:
    """Return the node of a prompt; one with children that is not cut itself lets its children give way.

    A prompt with a custom `render` is cut as a whole, because its rendering can be more than that of its children.
    """
    if prompt.fence:
        # A cut must not cut the fence: it goes around the part that is kept.
        whole = prompt.render(ctx)
    if (
        isinstance(prompt, WrapPrompt)
        and type(prompt).render is WrapPrompt.render
        and prompt.children
        and prompt.size.cut == "none"
        and whole.text
    ):
        children = [(step, node_of(child, ctx, render_prompt(child, ctx), counter)) for step, child in prompt.children]
        return _Tree(prompt, ctx, children, counter)
    return _Leaf(prompt, ctx, whole, counter)


def _items(prompt: BasePrompt, values: Mapping[str, Any]) -> Sequence[Any]:
    """Return the items that a prompt shows one by one."""
    assert prompt.items is not None, "Size(cut='items') is refused for a prompt without items"
    items: Sequence[Any] = values[prompt.items]
    return items


def _render_items(prompt: BasePrompt, ctx: PromptContext, count: int) -> Rendered:
    """Render the first items of a prompt only."""
    values = prompt.values(ctx)
    items = _items(prompt, values)[:count]
    first: dict[str, Any] = {str(prompt.items): items}
    if type(prompt).render is BasePrompt.render:
        return render_values(prompt, {**values, **first}, ctx)
    # A selector must not select again among the examples that it selected.
    if isinstance(prompt, ExamplesPrompt):
        prompt = prompt.model_copy(update={"examples": items, "selector": StaticSelector()})
    return prompt.render(ctx.evolve(**first))


def cut_points(rendered: Rendered, most: int) -> list[int]:
    """Return about `most` ascending offsets at which the text can be cut, the end last.

    They are between words if there are words, and never inside a media marker or an atomic chunk.
    """
    text, size = rendered.text, len(rendered.text)
    spans = [span for span in tile(rendered.segments()) if span.segment.media is not None or span.segment.atomic]
    # Evenly spaced, and closer and closer towards both ends, so that little room still shows something.
    halves = [size >> power for power in range(8, size.bit_length() - 4)]
    wished = {size * number // most for number in range(1, most)} | {*halves} | {size - half for half in halves}
    points = [0]
    for point in sorted(wished):
        space = _SPACE.search(text, point, min(size, point + _MAX_WORD))
        if space is not None:
            point = space.end()
        point = next((span.end for span in spans if span.start < point < span.end), point)
        if point > points[-1]:
            points.append(point)
    if points[-1] != size:
        points.append(size)
    return points[1:]


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
            kept.append(Segment(_ELLIPSIS, prompt=segment.prompt))
            placed = True
        if stop > end and segment.text:
            kept.append(segment._replace(text=segment.text[max(0, end - begin) :]))
    return Rendered.from_segments(kept)
