"""Fitting a composition into a budget.

Everything that may give way is cut into units, and all units stand in one fixed order that depends on the content
alone. What is kept is a prefix of that order, found by bisection over exact counts: never over the limit, and a
larger limit never removes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import BudgetError, PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.tokens.counter import TokenCounter, message_tokens
from agentkit_prompts.tokens.size import Size
from agentkit_prompts.tree.prompt import BasePrompt, fenced

__all__ = ["History", "Node", "largest", "node_of", "unit_order"]

_STEPS = 256
"""Into how many pieces text is cut at most."""


def largest(upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return a number from `lower` (taken to fit) to `upper` that fits, the largest where `fits` is monotone.

    The search asks in an order of its own, so for two nested conditions the wider one never gets a smaller answer.
    """
    while lower < upper:
        middle = (lower + upper + 1) // 2
        if fits(middle):
            lower = middle
        else:
            upper = middle - 1
    return lower


class Node(Protocol):
    """Something that can be kept in part."""

    @property
    def size(self) -> Size:
        """What its owner asked for."""
        ...

    @property
    def units(self) -> int:
        """Into how many units it falls."""
        ...

    @property
    def required(self) -> int:
        """How many of them must be kept whatever its size says."""
        ...

    @property
    def lost(self) -> int:
        """How many more there were before the `max` of something inside it took them away."""
        ...

    def tokens(self, kept: int) -> int:
        """Return what it costs with the first `kept` units of its order."""
        ...


class Bounds:
    """The unit counts that the token numbers of a `Size` stand for."""

    __slots__ = ("_node", "least", "most", "target", "whole")

    def __init__(self, path: str, node: Node) -> None:
        size, units = node.size, node.units
        self._node = node
        self.whole = units
        self.most = units
        if size.max is not None and node.tokens(units) > size.max:
            limit = size.max
            self.most = largest(units, lambda kept: node.tokens(kept) <= limit)
            if self.most < node.required or node.tokens(self.most) > limit:
                raise BudgetError(
                    f"{path}: needs {node.tokens(node.required)} tokens and may take {limit}; "
                    "raise its max, or give it a cut that lets it shrink"
                )
        self.least = node.required
        if size.min > 0 and self.least < self.most:
            floor = size.min
            reached = largest(self.most, lambda kept: kept == 0 or node.tokens(kept - 1) < floor)
            self.least = max(self.least, reached)
        while self.least < self.most and not self._fits(self.least):
            self.least += 1
        self.target = self.most
        if size.target is not None:
            goal = size.target
            self.target = max(self.least, largest(self.most, lambda kept: node.tokens(kept) <= goal))

    def held(self, given: int) -> int:
        """Return how many of the units `given` can be kept: fewer where a part takes more than the whole may.

        A template may say more of less, such as how long it is; a larger `given` never holds fewer.
        """
        while given > self.least and not self._fits(given):
            given -= 1
        return given

    def _fits(self, kept: int) -> bool:
        limit = self._node.size.max
        return limit is None or self._node.tokens(kept) <= limit


def unit_order(nodes: Sequence[tuple[str, Node]]) -> tuple[list[int], int, list[Bounds]]:
    """Return the order in which siblings receive units, as indices into `nodes`, and how many of them are required."""
    bounds = [Bounds(path, node) for path, node in nodes]
    order: list[int] = []
    for index, bound in enumerate(bounds):
        order += [index] * bound.least
    required = len(order)
    ranked = sorted(range(len(nodes)), key=lambda i: -nodes[i][1].size.priority)
    for index in ranked:
        order += [index] * (bounds[index].target - bounds[index].least)
    surplus: list[tuple[float, int, int]] = []
    for index, (bound, (_, node)) in enumerate(zip(bounds, nodes, strict=True)):
        extra, flex = bound.most - bound.target, node.size.flex
        if extra and flex:
            each = max(1, node.tokens(bound.most) - node.tokens(bound.target)) / extra / flex
            surplus += [(number * each, -node.size.priority, index) for number in range(1, extra + 1)]
    surplus.sort()
    order += [index for _, _, index in surplus]
    for index in ranked:  # what takes no share gets what nobody else wants, so that all units are all there is
        if not nodes[index][1].size.flex:
            order += [index] * (bounds[index].most - bounds[index].target)
    return order, required, bounds


class _Leaf:
    """A prompt without children, cut the way its size says."""

    lost: int = 0
    __slots__ = ("_cache", "_counter", "_ctx", "_points", "_prompt", "_whole", "size", "units")

    def __init__(self, prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> None:
        self.size = prompt.size
        self._prompt = prompt
        self._ctx = ctx
        self._whole = whole
        self._counter = counter
        self._cache: dict[int, Rendered] = {}
        self._points: list[int] = []
        cut = self.size.cut
        if not whole.text:
            self.units = 0
        elif cut == "none" or cut == "drop":
            self.units = 1
        elif cut == "items":
            self.units = prompt.item_count(ctx)
        elif callable(cut):
            self.units = _STEPS
        else:
            self._points = whole.cut_points(_STEPS)
            self.units = len(self._points)
        self._cache[self.units] = _in_fence(prompt, ctx, whole)
        self._cache.setdefault(0, Rendered.from_text(""))

    @property
    def required(self) -> int:
        """Everything, when it cannot be cut."""
        return self.units if self.size.cut == "none" or (self.size.cut == "drop" and self.size.min > 0) else 0

    def tokens(self, kept: int) -> int:
        """Count the rendering of the first units."""
        return self.render(kept).tokens(self._counter)

    def render(self, kept: int) -> Rendered:
        """Render the first units."""
        known = self._cache.get(kept)
        if known is None:
            known = self._cache[kept] = _in_fence(self._prompt, self._ctx, self._cut(kept))
        return known

    def _cut(self, kept: int) -> Rendered:
        cut, whole = self.size.cut, self._whole
        if cut == "items":
            return self._prompt.render_items(self._ctx, kept)
        if callable(cut):
            allowed = whole.tokens(self._counter) * kept // _STEPS
            try:
                text = cut(whole.plain, allowed)
            except PromptError:
                raise
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise PromptError(f"{self._prompt.label}: its cut failed on {allowed} tokens: {what}") from error
            if not isinstance(text, str):
                raise PromptError(f"{self._prompt.label}: its cut must return str, got {type(text).__name__}")
            return Rendered.from_text(text, trust=whole.trust)
        points, size = self._points, len(whole.text)
        if cut == "head":
            return whole.cut(points[kept - 1], size)
        if cut == "tail":
            return whole.cut(0, points[-kept - 1])
        head = (kept + 1) // 2
        tail = kept - head
        return whole.cut(points[head - 1], points[-tail - 1] if tail else size)


class _Tree:
    """A prompt around others: what is cut are its children, by the order among them."""

    __slots__ = (
        "_bounds",
        "_cache",
        "_children",
        "_counter",
        "_ctx",
        "_order",
        "_prompt",
        "lost",
        "required",
        "size",
        "units",
    )

    def __init__(
        self,
        prompt: BasePrompt,
        ctx: PromptContext,
        children: Sequence[tuple[str, _Leaf | _Tree]],
        counter: TokenCounter,
    ) -> None:
        self.size = prompt.size
        self._prompt = prompt
        self._ctx = ctx
        self._counter = counter
        self._children = children
        self._order, self.required, self._bounds = unit_order(children)
        self.units = len(self._order)
        self.lost: int = sum(
            one.whole - one.most + node.lost for one, (_, node) in zip(self._bounds, children, strict=True)
        )
        self._cache: dict[int, Rendered] = {}

    def tokens(self, kept: int) -> int:
        """Count the rendering of the first units."""
        return self.render(kept).tokens(self._counter)

    def render(self, kept: int) -> Rendered:
        """Render with the children that the first units leave."""
        known = self._cache.get(kept)
        if known is None:
            given = self._order[:kept]
            children = [
                node.render(bounds.held(given.count(index)))
                for index, ((_, node), bounds) in enumerate(zip(self._children, self._bounds, strict=True))
            ]
            around = self._prompt.render_around(self._ctx, children)
            known = self._cache[kept] = _in_fence(self._prompt, self._ctx, around)
        return known


def _in_fence(prompt: BasePrompt, ctx: PromptContext, kept: Rendered) -> Rendered:
    """Put the fence around what is kept: a cut must never take one of its lines."""
    return fenced(kept, ctx) if prompt.fence and kept.text else kept


def node_of(prompt: BasePrompt, ctx: PromptContext, whole: Rendered, counter: TokenCounter) -> _Leaf | _Tree:
    """Return the node of a prompt; one with children that is not cut itself lets its children give way.

    That needs a rendering that follows from those of the children: one with a `render` of its own stays whole.
    """
    if prompt.fence:
        whole = prompt.render(ctx)  # the fence is put around what is kept of it
    if prompt.children and prompt.size.cut == "none" and whole.text:
        inner = [child.rendered(ctx) for _, child in prompt.children]
        if prompt.render_around(ctx, inner).text == whole.text:
            children = [
                (path, node_of(child, ctx, rendered, counter))
                for (path, child), rendered in zip(prompt.children, inner, strict=True)
            ]
            return _Tree(prompt, ctx, children, counter)
    return _Leaf(prompt, ctx, whole, counter)


class History:
    """Messages in whole steps: a user's turn with everything that answers it, or a model's calls with their results.
    With `cut="drop"` all of them are one step.

    The newest steps are kept. Where that leaves a choice the cut moves to a block border, a point that depends on the
    messages before it alone, so that the start of the history stays the same over several turns.
    """

    lost: int = 0

    __slots__ = ("_count", "_messages", "_starts", "required", "size", "units")

    def __init__(
        self, messages: Conversation, counter: TokenCounter, size: Size, *, by_role: str, required: int = 0
    ) -> None:
        self.size = size
        self._messages = messages
        self._count = message_tokens(counter)
        starts = [index for index, message in enumerate(messages) if message.role == by_role]
        self._starts = starts if starts[:1] == [0] or not len(messages) else [0, *starts]
        if size.cut == "drop":
            self._starts = self._starts[:1]
        self.units = len(self._starts)
        self.required = self.units if size.cut == "none" else min(required, self.units)

    def tokens(self, kept: int) -> int:
        """Count the messages of the newest steps."""
        if kept <= 0:
            return 0
        totals, offset = self._messages.totals(self._count)
        return totals[offset + len(self._messages)] - totals[offset + self._starts[-kept]]

    def steps(self, kept: int, block: int = 0, least: int = 1) -> int:
        """Return how many of the `kept` newest steps remain from a block border on, where there is one among them.

        At least `least` of them do.
        """
        if not 0 < kept < self.units or not block:
            return max(0, min(kept, self.units))
        totals, offset = self._messages.totals(self._count)
        base = totals[offset]  # the cut follows from the messages alone, not from the log they are a view of
        for step in range(self.units - kept, self.units - max(1, least) + 1):
            here, before = (totals[offset + self._starts[at]] - base for at in (step, step - 1))
            if here // block != before // block:
                return self.units - step
        return kept

    def keep(self, steps: int) -> Conversation:
        """Return the newest steps."""
        if steps >= self.units:
            return self._messages
        if steps <= 0:
            return self._messages.window(0, 0)
        return self._messages.window(self._starts[-steps], len(self._messages))
