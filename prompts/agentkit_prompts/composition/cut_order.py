"""The order in which parts that share a budget receive units.

All parts that can be cut are divided into units, and the units have one fixed order that depends only on the content.
The search keeps a prefix of that order by bisection over exact counts: the result never exceeds the limit, and a
larger limit never removes a unit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping

from agentkit_prompts.errors import BudgetError
from agentkit_prompts.tokens.budget import Size

__all__ = ["Node", "Siblings", "UnitBounds", "largest", "largest_from"]


def largest(upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return a number from `lower` (assumed to fit) to `upper` that fits: the largest if `fits` is monotone.

    The order of the search is fixed, so for two nested conditions the wider condition never gets a smaller result.
    """
    return lower + bisect_left(range(lower + 1, upper + 1), True, key=lambda number: not fits(number))


def largest_from(guess: int, upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return the same number as `largest`, with calls of the costly `fits` only near a guess."""
    # Doubled steps away from the guess, then bisection: few calls if the guess is near, and O(log n) calls always.
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
    """A part that can be cut.

    Attributes:
        size: Size requested by the prompt or the layers.
        units: Number of units.
        required: Number of units that must be sent, independent of the size.
        lost: Number of units removed by the `max` of a part inside it.
    """

    size: Size
    units: int
    required: int
    lost: int = 0

    def tokens(self, kept: int) -> int:
        """Return the tokens of the first `kept` units."""
        raise NotImplementedError


class UnitBounds:
    """Unit counts of a node that its `Size`, which counts tokens, allows.

    Attributes:
        whole: All units.
        most: Units that its `max` allows.
        least: Units that its `min` requires.
        target: Units before the surplus is shared.
    """

    __slots__ = ("_node", "least", "most", "target", "whole")

    def __init__(self, path: str, node: Node) -> None:
        self._node = node
        self.whole = node.units
        self.most = self._maximum(path)
        self.least = self._minimum()
        self.target = self.most
        goal = node.size.target
        if goal is not None:
            self.target = max(self.least, largest(self.most, lambda kept: node.tokens(kept) <= goal))

    def _maximum(self, path: str) -> int:
        node, limit = self._node, self._node.size.max
        if limit is None or node.tokens(node.units) <= limit:
            return node.units
        most = largest(node.units, self._fits)
        if most >= node.required and self._fits(most):
            return most
        needed = node.tokens(node.required)
        message = (
            f"{path}: needs {needed} tokens and may take {limit}; raise its max, or give it a cut that lets it shrink"
        )
        raise BudgetError(message, required=needed, limit=limit, name=path)

    def _minimum(self) -> int:
        node, floor, most = self._node, self._node.size.min, self.most
        least = node.required
        if floor > 0 and least < most:
            least = max(least, largest(most, lambda kept: kept == 0 or node.tokens(kept - 1) < floor))
        # A template can need more tokens for fewer items, for example if it writes the number of omitted items.
        while least < most and not self._fits(least):
            least += 1
        # The mark of a cut can need more tokens than the text that it replaces.
        if node.tokens(least) >= node.tokens(most):
            return most
        return least

    def held(self, given: int) -> int:
        """Return the number of the units `given` that fit the maximum: fewer if a part needs more tokens than the
        whole.

        A template can write more text for fewer units, such as a length; the result never decreases with `given`.
        """
        while given > self.least and not self._fits(given):
            given -= 1
        return given

    def _fits(self, kept: int) -> bool:
        limit = self._node.size.max
        return limit is None or self._node.tokens(kept) <= limit


class Siblings:
    """Nodes that share a budget, and the order in which they receive units."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.bounds = {path: UnitBounds(path, node) for path, node in nodes.items()}
        self.order: list[str] = []
        """Paths of the nodes, one for each unit."""
        for path, bounds in self.bounds.items():
            self.order += [path] * bounds.least
        self.required = len(self.order)
        ranked = sorted(nodes, key=lambda path: -nodes[path].size.priority)
        for path in ranked:
            self.order += [path] * (self.bounds[path].target - self.bounds[path].least)
        self.order += self._surplus()
        # Nodes without a share (flex=0) receive the remaining units last, so that the order contains all units.
        for path in ranked:
            if not nodes[path].size.flex:
                self.order += [path] * (self.bounds[path].most - self.bounds[path].target)

    def _surplus(self) -> list[str]:
        """Return the order of the units beyond the targets, shared in proportion to `flex`."""
        shares: list[tuple[float, int, int, str]] = []
        for index, (path, node) in enumerate(self.nodes.items()):
            bounds, flex = self.bounds[path], node.size.flex
            extra = bounds.most - bounds.target
            if extra and flex:
                each = max(1, node.tokens(bounds.most) - node.tokens(bounds.target)) / extra / flex
                shares += [(number * each, -node.size.priority, index, path) for number in range(1, extra + 1)]
        return [path for *_, path in sorted(shares)]

    @property
    def lost(self) -> int:
        """Number of units removed by a `max` of these nodes or of a part inside them."""
        return sum(bounds.whole - bounds.most + self.nodes[path].lost for path, bounds in self.bounds.items())

    def counts(self, units: int) -> dict[str, int]:
        """Return the number of units of each node among the first `units` of the order."""
        given = Counter(self.order[:units])
        return {path: bounds.held(given[path]) for path, bounds in self.bounds.items()}
