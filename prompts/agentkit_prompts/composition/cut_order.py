"""The order in which what shares a budget receives units.

Everything that may give way is cut into units, and all units stand in one fixed order that depends on the content
alone. What is kept is a prefix of that order, found by bisection over exact counts: never over the limit, and a
larger limit never removes anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from agentkit_prompts.errors import BudgetError
from agentkit_prompts.tokens.budget import Size

__all__ = ["Node", "Siblings", "UnitBounds", "largest", "largest_from"]


def largest(upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return a number from `lower` (taken to fit) to `upper` that fits, the largest where `fits` is monotone.

    The search asks in an order of its own, so for two nested conditions the wider one never gets a smaller answer.
    """
    return lower + bisect_left(range(lower + 1, upper + 1), True, key=lambda number: not fits(number))


def largest_from(guess: int, upper: int, fits: Callable[[int], bool], lower: int = 0) -> int:
    """Return the same, looked for near a guess: far from there, where it may be costly, `fits` is not asked."""
    # Doubled steps away from the guess, then bisection: few calls if the guess is near, and never many.
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
    """Something that can be kept in part.

    Attributes:
        size: What its owner asked for.
        units: Into how many units it falls.
        required: How many of them must be kept whatever its size says.
        lost: How many more there were before the `max` of something inside it took them away.
    """

    size: Size
    units: int
    required: int
    lost: int = 0

    def tokens(self, kept: int) -> int:
        """Return what it costs with the first `kept` units of its order."""
        raise NotImplementedError


class UnitBounds:
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
                    "raise its max, or give it a cut that lets it shrink",
                    required=node.tokens(node.required),
                    limit=limit,
                    name=path,
                )
        self.least = node.required
        if size.min > 0 and self.least < self.most:
            floor = size.min
            reached = largest(self.most, lambda kept: kept == 0 or node.tokens(kept - 1) < floor)
            self.least = max(self.least, reached)
        # A template can take more tokens for fewer items, for example if it writes how many are left out.
        while self.least < self.most and not self._fits(self.least):
            self.least += 1
        # The mark of a cut can take more tokens than the text that it replaces.
        if node.tokens(self.least) >= node.tokens(self.most):
            self.least = self.most
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


class Siblings:
    """Nodes that share what there is, and the order in which they receive units."""

    def __init__(self, nodes: Sequence[tuple[str, Node]]) -> None:
        self.nodes = nodes
        self.bounds = [UnitBounds(path, node) for path, node in nodes]
        self.order: list[int] = []
        """Indices into `nodes`, one for each unit."""
        for index, bound in enumerate(self.bounds):
            self.order += [index] * bound.least
        self.required = len(self.order)
        ranked = sorted(range(len(nodes)), key=lambda index: -nodes[index][1].size.priority)
        for index in ranked:
            self.order += [index] * (self.bounds[index].target - self.bounds[index].least)
        self.order += self._surplus()
        # Layers without a share (flex=0) receive the remaining units last, so that the order contains all units.
        for index in ranked:
            if not nodes[index][1].size.flex:
                self.order += [index] * (self.bounds[index].most - self.bounds[index].target)

    def _surplus(self) -> list[int]:
        """Return the order of what lies beyond the targets, shared in proportion to `flex`."""
        shares: list[tuple[float, int, int]] = []
        for index, (bound, (_, node)) in enumerate(zip(self.bounds, self.nodes, strict=True)):
            extra, flex = bound.most - bound.target, node.size.flex
            if extra and flex:
                each = max(1, node.tokens(bound.most) - node.tokens(bound.target)) / extra / flex
                shares += [(number * each, -node.size.priority, index) for number in range(1, extra + 1)]
        return [index for _, _, index in sorted(shares)]

    @property
    def lost(self) -> int:
        """How many units a `max` among them or inside them took away."""
        return sum(
            bound.whole - bound.most + node.lost for bound, (_, node) in zip(self.bounds, self.nodes, strict=True)
        )

    def given(self, units: int) -> tuple[int, ...]:
        """Return how many units each node keeps of the first `units` of the order."""
        counts = [0] * len(self.nodes)
        for index in self.order[:units]:
            counts[index] += 1
        return tuple(bound.held(count) for bound, count in zip(self.bounds, counts, strict=True))
