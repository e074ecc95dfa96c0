"""Cuts of a prompt under a budget: of its text, of its items, or of the prompts inside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agentkit_prompts.composition.cut_order import Node, Siblings
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.item_paths import composed_from
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment, Span, tile
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.prompt import BasePrompt, render_prompt, render_values, with_fence
from agentkit_prompts.tree.wrap import WrapPrompt, render_around

_MAX_PIECES = 256
"""Number of pieces into which a text is divided, at most."""
_MAX_WORD = 80
"""Characters to search for the end of a word; a longer word is cut inside."""
_SPACE = re.compile(r"\s+")
_ELLIPSIS = "\u2026"


class PromptNode(Node):
    """A prompt that can be cut. Each number of units is rendered once, with the fence of the prompt around the rest."""

    def __init__(self, prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> None:
        self.size = prompt.size
        self.units = 0
        self.required = 0
        self._prompt = prompt
        self._ctx = ctx
        self._whole = whole
        self._counter = counter
        self._renderings: dict[int, Rendered] = {}
        if whole.text:
            self.units = self._count()
        if self.size.cut == "none" or (self.size.cut == "drop" and self.size.min > 0):
            self.required = self.units

    def tokens(self, count: int) -> int:
        """Count the tokens of the rendering of the first `count` units."""
        return self.render(count).tokens(self._counter)

    def render(self, count: int) -> Rendered:
        """Render the first `count` units."""
        rendered = self._renderings.get(count)
        if rendered is None:
            rendered = self._renderings[count] = with_fence(self._prompt, self._cut(count), self._ctx)
        return rendered

    def _cut(self, count: int) -> Rendered:
        if count == self.units:
            return self._whole
        if count == 0:
            return Rendered.from_text("")
        return self._first(count)

    def _count(self) -> int:
        """Return the number of units of a prompt with text."""
        return 1

    def _first(self, count: int) -> Rendered:
        """Render the first `count` units: at least one, and not all."""
        raise AssertionError("a prompt that cannot be cut has one unit")


class _Items(PromptNode):
    """A prompt that is cut to its first items."""

    def _count(self) -> int:
        return len(_items(self._prompt, self._prompt.values(self._ctx)))

    def _first(self, count: int) -> Rendered:
        return _render_items(self._prompt, self._ctx, count)

    def item_after(self, count: int) -> str:
        name, items = str(self._prompt.items), _items(self._prompt, self._prompt.values(self._ctx))
        # A selector returns other items than the context, with other indices.
        if count >= len(items) or self._ctx.view.get(name) is not items:
            return ""
        return f"{name}[{count}]"


class _Text(PromptNode):
    """A prompt whose text is cut at the head, the tail or the middle."""

    def _count(self) -> int:
        self._points = cut_points(self._whole, _MAX_PIECES)
        return len(self._points)

    def _first(self, count: int) -> Rendered:
        whole, points = self._whole, self._points
        if self.size.cut == "head":
            return cut_text(whole, points[count - 1], len(whole.text))
        if self.size.cut == "tail":
            return cut_text(whole, 0, points[-count - 1])
        head = (count + 1) // 2
        return cut_text(whole, points[head - 1], points[head - count - 1])


class _CustomCut(PromptNode):
    """A prompt that is cut by a function of the developer."""

    def _count(self) -> int:
        return _MAX_PIECES

    def _first(self, count: int) -> Rendered:
        cut = cast("Callable[[str, int], str]", self.size.cut)
        label, allowed = self._prompt.label, self._whole.tokens(self._counter) * count // _MAX_PIECES
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


class _Tree(PromptNode):
    """A wrapper whose children are cut; the children share the units of the wrapper."""

    def __init__(self, prompt: WrapPrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> None:
        super().__init__(prompt, ctx, whole, counter)
        self._wrap = prompt
        self._children = {
            step: node_of(child, ctx, render_prompt(child, ctx), counter) for step, child in prompt.children
        }
        self._siblings = Siblings(self._children)
        self.units = len(self._siblings.order)
        self.required = self._siblings.required
        self.lost = self._siblings.lost

    def _cut(self, count: int) -> Rendered:
        counts = self._siblings.counts(count)
        parts = [node.render(counts[step]) for step, node in self._children.items()]
        return render_around(self._wrap, self._ctx, parts)

    def item_after(self, count: int) -> str:
        if count >= self.units:
            return ""
        step = self._siblings.order[count]
        return self._children[step].item_after(self._siblings.counts(count)[step])


_CLASSES: Mapping[str, type[PromptNode]] = {
    "none": PromptNode,
    "drop": PromptNode,
    "items": _Items,
    "head": _Text,
    "tail": _Text,
    "middle": _Text,
}
"""Class of the node, by the name of the cut."""


def node_of(prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> PromptNode:
    """Return the node of a prompt; if a wrapper has no cut, its children are cut."""
    if prompt.fence:
        # Without the fence, so that a cut cannot remove one of its lines; `PromptNode.render` adds the fence again.
        whole = prompt.render(ctx)
    cut = prompt.size.cut
    # A prompt with a custom `render` is cut as a whole: its rendering can contain more than its children.
    is_tree = isinstance(prompt, WrapPrompt) and type(prompt).render is WrapPrompt.render
    if is_tree and prompt.children and cut == "none" and whole.text:
        return _Tree(cast("WrapPrompt", prompt), ctx, whole, counter)
    if callable(cut):
        return _CustomCut(prompt, ctx, whole, counter)
    return _CLASSES[cut](prompt, ctx, whole, counter)


def _items(prompt: BasePrompt, values: Mapping[str, Any]) -> Sequence[Any]:
    """Return the items that a prompt shows one by one."""
    assert prompt.items is not None, "Size(cut='items') is refused for a prompt without items"
    items: Sequence[Any] = values[prompt.items]
    return items


def _render_items(prompt: BasePrompt, ctx: PromptContext, count: int) -> Rendered:
    """Render a prompt with only its first `count` items."""
    values = prompt.values(ctx)
    items = _items(prompt, values)[:count]
    first: dict[str, Any] = {str(prompt.items): items}
    if type(prompt).render is BasePrompt.render:
        return render_values(prompt, {**values, **first}, ctx)
    # A selector must not select again among the examples that it selected.
    if isinstance(prompt, ExamplesPrompt):
        prompt = prompt.model_copy(update={"examples": items, "selector": StaticSelector()})
    with composed_from(ctx):
        return prompt.render(ctx.evolve(**first))


def cut_points(rendered: Rendered, maximum: int) -> list[int]:
    """Return about `maximum` ascending offsets at which the text can be cut; the last offset is the end of the text.

    Offsets are between words if possible, and never inside a media marker or an atomic document.
    """
    text, size = rendered.text, len(rendered.text)
    whole = [span for span in tile(rendered.segments()) if span.segment.media is not None or span.segment.atomic]
    points = [0]
    for point in [*_even_points(size, maximum), size]:
        space = _SPACE.search(text, point, min(size, point + _MAX_WORD))
        if space is not None:
            point = space.end()
        point = _end_of_whole(whole, point)
        if point > points[-1]:
            points.append(point)
    return points[1:]


def _end_of_whole(whole: Sequence[Span], point: int) -> int:
    """Return `point`, or the end of the span that contains the point and must not be cut."""
    return next((span.end for span in whole if span.start < point < span.end), point)


def _even_points(size: int, maximum: int) -> list[int]:
    """Return evenly spaced offsets, closer near both ends, so that a small limit still shows some text."""
    halves = [size >> power for power in range(8, size.bit_length() - 4)]
    return sorted(
        {size * number // maximum for number in range(1, maximum)} | {*halves} | {size - half for half in halves}
    )


def cut_text(rendered: Rendered, start: int, end: int) -> Rendered:
    """Return the rendering with an ellipsis instead of the characters from `start` to `end`."""
    remaining: list[Segment] = []
    offset = 0
    placed = False
    for segment in rendered.segments():
        begin, stop = offset, offset + len(segment.text)
        offset = stop
        if begin < start:
            remaining.append(segment._replace(text=segment.text[: start - begin]))
        if not placed and stop > start:
            remaining.append(Segment(_ELLIPSIS, prompt=segment.prompt))
            placed = True
        if stop > end and segment.text:
            remaining.append(segment._replace(text=segment.text[max(0, end - begin) :]))
    return Rendered.from_segments(remaining)
