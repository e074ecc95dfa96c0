"""The order in which prompts and histories that share a budget receive units.

Each of them is a node of units, such as items of a list or turns of a history. All units have one fixed order that
depends only on the content. Bisection over exact token counts finds the longest prefix of the order that fits: the
result never exceeds the limit, and a larger limit never removes a unit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping

from agentkit_prompts.errors import BudgetError
from agentkit_prompts.tokens.budget import Size


def largest(upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return a number from `lower` (assumed to fit) to `upper` that fits: the largest if `fits` is monotone.

    The order of the search is fixed: if one condition is true whenever another condition is true, its result is never
    smaller.
    """
    return lower + bisect_left(range(lower + 1, upper + 1), True, key=lambda number: not fits(number))


def largest_from(guess: int, upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return a number as `largest` does, but call the costly `fits` only for numbers near `guess`."""
    # Steps that double away from the guess, then bisection: few calls for a good guess, O(log n) calls for any guess.
    step = 1
    if fits(guess):
        lower = guess
        while lower < upper and fits(number := min(upper, lower + step)):
            lower, step = number, 2 * step
        return largest(min(upper, max(lower, lower + step - 1)), fits, lower)
    upper = guess
    while upper > lower and not fits(number := max(lower, upper - step)):
        upper, step = number, 2 * step
    return largest(max(lower, upper - 1), fits, max(lower, upper - step))


class Node:
    """A prompt or a history that can be cut to its first units.

    Attributes:
        size: Size that the prompt or the layers request.
        units: Number of units.
        required: Number of units that must be sent, independent of the size.
        lost: Number of units that the `max` of an inner prompt has already removed.
    """

    size: Size
    units: int
    required: int
    lost: int = 0

    def tokens(self, count: int) -> int:
        """Return the tokens of the first `count` units."""
        raise NotImplementedError

    def item_after(self, count: int) -> str:
        """Return the path of the item that follows the first `count` units; empty if the unit is no item of the
        context.
        """
        return ""


class UnitBounds:
    """Limits of the `Size` of a node, converted from tokens to numbers of units.

    Attributes:
        whole: Number of all units.
        maximum: Number of units that `Size.max` allows.
        minimum: Number of units that `Size.min` requires.
        target: Number of units that `Size.target` requests; the surplus of the budget is shared after the targets.
    """

    __slots__ = ("_node", "maximum", "minimum", "target", "whole")

    def __init__(self, path: str, node: Node) -> None:
        self._node = node
        self.whole = node.units
        self.maximum = self._maximum(path)
        self.minimum = self._minimum()
        self.target = self.maximum
        goal = node.size.target
        if goal is not None:
            self.target = max(self.minimum, largest(self.maximum, lambda count: node.tokens(count) <= goal))

    def _maximum(self, path: str) -> int:
        node, limit = self._node, self._node.size.max
        if limit is None or node.tokens(node.units) <= limit:
            return node.units
        maximum = largest(node.units, self._fits)
        if maximum >= node.required and self._fits(maximum):
            return maximum
        needed = node.tokens(node.required)
        message = (
            f"{path}: needs {needed} tokens and may take {limit}; raise its max, or give it a cut that lets it shrink"
        )
        raise BudgetError(message, required=needed, limit=limit, name=path)

    def _minimum(self) -> int:
        node, floor, maximum = self._node, self._node.size.min, self.maximum
        minimum = node.required
        if floor > 0 and minimum < maximum:
            minimum = max(minimum, largest(maximum, lambda count: count == 0 or node.tokens(count - 1) < floor))
        # A template can need more tokens for fewer items, for example if it writes the number of omitted items.
        while minimum < maximum and not self._fits(minimum):
            minimum += 1
        # The ellipsis of a cut can need more tokens than the text that it replaces.
        if node.tokens(minimum) >= node.tokens(maximum):
            return maximum
        return minimum

    def limited(self, count: int) -> int:
        """Return the largest number of units from `count` downwards that fits the maximum.

        A smaller number is necessary if a template writes more text for fewer units, such as the number of omitted
        items. The result never decreases with `count`.
        """
        while count > self.minimum and not self._fits(count):
            count -= 1
        return count

    def _fits(self, count: int) -> bool:
        limit = self._node.size.max
        return limit is None or self._node.tokens(count) <= limit


class Siblings:
    """Nodes that share a budget, and the order in which they receive units."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.bounds = {path: UnitBounds(path, node) for path, node in nodes.items()}
        self.order: list[str] = []
        """Paths of the nodes, one for each unit."""
        for path, bounds in self.bounds.items():
            self.order += [path] * bounds.minimum
        self.required = len(self.order)
        ranked = sorted(nodes, key=lambda path: -nodes[path].size.priority)
        for path in ranked:
            self.order += [path] * (self.bounds[path].target - self.bounds[path].minimum)
        self.order += self._surplus()
        # Nodes without a share (flex=0) receive the remaining units last, so that the order contains all units.
        for path in ranked:
            if not nodes[path].size.flex:
                self.order += [path] * (self.bounds[path].maximum - self.bounds[path].target)

    def _surplus(self) -> list[str]:
        """Return the order of the units beyond the targets, shared in proportion to `flex`."""
        shares: list[tuple[float, int, int, str]] = []
        for index, (path, node) in enumerate(self.nodes.items()):
            bounds, flex = self.bounds[path], node.size.flex
            extra = bounds.maximum - bounds.target
            if extra and flex:
                each = max(1, node.tokens(bounds.maximum) - node.tokens(bounds.target)) / extra / flex
                shares += [(number * each, -node.size.priority, index, path) for number in range(1, extra + 1)]
        return [path for *_, path in sorted(shares)]

    @property
    def lost(self) -> int:
        """Number of units that the `max` of these nodes or of their inner prompts removes."""
        return sum(bounds.whole - bounds.maximum + self.nodes[path].lost for path, bounds in self.bounds.items())

    def counts(self, units: int) -> dict[str, int]:
        """Return the number of units of each node among the first `units` of the order."""
        counts = Counter(self.order[:units])
        return {path: bounds.limited(counts[path]) for path, bounds in self.bounds.items()}
