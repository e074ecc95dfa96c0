"""Upper bound of the time to validate a value by a JSON Schema, computed before the validation.

The validation library has no time limit, and it blocks the interpreter during a validation. Alternatives that contain
each other are evaluated again at each level of the value, so a schema of forty lines can take years.

For each group of values, a schema has a weight: the maximum number of times that it is applied to each value of the
group. Weights are computed from the whole value inwards, and the sizes of errors from the innermost values outwards.

If a value takes too long, its cost is computed again with the cache of the library, which stores the result of a
recursive schema for each object and list. Each level of a tree then has the same cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.schema_graph import SchemaGraph, SchemaNode
from agentkit_prompts.schemas.value_groups import TooManyGroupsError, ValueGroup, grouped

_MAX_EVALUATIONS = 10_000_000
"""Maximum evaluations of schemas; an evaluation takes at most 80 nanoseconds."""
_MAX_STEPS = 500_000
"""Maximum applications of schemas to groups during the estimate; an application takes at most a microsecond."""
_MAX_UNITS = 4_000_000
"""Maximum values in all errors that the library creates; a value takes 0.3 microseconds."""
_UNITS_PER_ERROR = 30
"""Number of values that take as long as the creation of an error."""
_COPIES = 2
"""Number of times that the error of a schema contains the errors of its alternatives."""
_MAX_HASHED_BITS = 62
_BITS_PER_COMPARISON = 32
_Weights: TypeAlias = dict[ValueGroup, dict[int, int]]
_TOO_LONG = "takes too long to check: shorten it, or simplify its schema"


class TooExpensiveError(ValueError):
    """The validation of the value would take too long."""


class _ErrorSize(NamedTuple):
    """Upper bound of the size of the errors of a schema and of the schemas that it applies."""

    units: int
    """Number of values in the errors."""
    copied: int
    """Number of values in the errors and in all copies of the errors."""


class EvaluationCost:
    """Estimator of the validation cost of values with one schema."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._graph = SchemaGraph(document)

    def of(self, value: Any) -> ValueCost:
        """Return the cost of validating a value.

        Raises:
            TooExpensiveError: The validation would take too long.
        """
        return ValueCost(self._graph, value)


class ValueCost:
    """Cost of validating one value by the schemas of a graph."""

    def __init__(self, graph: SchemaGraph, value: Any) -> None:
        self._graph = graph
        try:
            self._groups = grouped(value, graph.places)
        except TooManyGroupsError:
            raise TooExpensiveError(_TOO_LONG) from None
        self._weights: _Weights | None = None
        try:
            self._weights = _Weighing(graph, self._groups, value).weights
        except TooExpensiveError:
            if not graph.cached_references:
                raise
            # With the cache, the library can decide if the value is valid, but it does not use the cache for errors.
            # So no errors are created: `_weights` stays None.
            _Weighing(graph, self._groups, value, graph.cached_references)

    @property
    def allows_one_error(self) -> bool:
        """True if the library can describe one error in time."""
        return self._weights is not None and self._errors(self._weights, of_one=True).largest_alternative <= _MAX_UNITS

    @property
    def allows_all_errors(self) -> bool:
        """True if the library can list all errors in time."""
        return self._weights is not None and self._errors(self._weights, of_one=False).all_with_copies <= _MAX_UNITS

    def _errors(self, weights: _Weights, *, of_one: bool) -> _Errors:
        errors = _Errors(self._graph, self._groups, of_one=of_one)
        # Inner groups first, and schemas before the schemas that apply them in place, because their sizes are summed.
        for group in reversed(self._groups):
            errors.add(group, sorted(weights[group]))
        return errors


class _Weighing:
    """Weights of the schemas that are applied to each group of a value.

    Attributes:
        weights: Weights by the group and by the index of the schema.

    Raises:
        TooExpensiveError: The evaluations, or weighing them, take too long.
    """

    def __init__(
        self, graph: SchemaGraph, groups: list[ValueGroup], value: Any, cached: Set[tuple[int, int]] = frozenset()
    ) -> None:
        self._graph = graph
        self._value = value
        self._cached = cached
        self._evaluations = self._steps = 0
        self.weights: _Weights = {group: {} for group in groups}
        self.weights[groups[0]][graph.root] = 1
        for group in groups:
            self._weigh(group)

    def _weigh(self, group: ValueGroup) -> None:
        """Complete the weights of a group, and add these weights to the weights of its parts."""
        weights = self.weights[group]
        if self._cached:
            # The library caches results for objects and lists only.
            scalars = group.size - group.containers
            self._apply_in_place(dict(weights), group, scalars, frozenset())
            self._apply_in_place(weights, group, group.containers, self._cached)
        else:
            self._apply_in_place(weights, group, group.size, frozenset())
        for index, weight in weights.items():
            for inner, part in _applied_to_parts(self._graph.nodes[index], group):
                self._steps += 1
                weights_of_part = self.weights[part]
                weights_of_part[inner] = weights_of_part.get(inner, 0) + weight

    def _apply_in_place(
        self, weights: dict[int, int], group: ValueGroup, size: int, cached: Set[tuple[int, int]]
    ) -> None:
        """Complete the weights of the schemas that are applied to a group, and add the cost for values of `size`."""
        waiting = [-index for index in weights]
        heapify(waiting)
        targets: set[int] = set()
        while waiting:
            # The largest index first: a schema has a larger index than schemas that it applies in place, so its weight
            # is complete.
            index = -heappop(waiting)
            # All references with a cached result evaluate their target once.
            weights[index] += index in targets
            node, weight = self._graph.nodes[index], weights[index]
            self._charge(node, weight, group, size)
            for inner in node.in_place:
                # A schema that leads back to itself without reaching a part of the value adds no cost.
                if inner >= index:
                    continue
                if inner not in weights:
                    weights[inner] = 0
                    heappush(waiting, -inner)
                if (index, inner) in cached:
                    targets.add(inner)
                else:
                    weights[inner] += weight

    def _charge(self, node: SchemaNode, weight: int, group: ValueGroup, size: int) -> None:
        self._steps += 1 + len(node.in_place) + len(node.required) + len(group.properties) + len(group.items)
        evaluations = node.evaluations * size
        if node.has_unique_items:
            evaluations += self._comparisons
        self._evaluations += weight * evaluations
        if self._evaluations > _MAX_EVALUATIONS or self._steps > _MAX_STEPS:
            raise TooExpensiveError(_TOO_LONG)

    @cached_property
    def _comparisons(self) -> int:
        """Cost of the comparisons for `uniqueItems` in all lists of the value.

        The library compares each integer of more than 64 bits with all other such integers.
        """
        nodes = [*iter_nodes(self._value)]
        sizes = [node.bit_length() for node in nodes if isinstance(node, int)]
        large = [bits for bits in sizes if bits > _MAX_HASHED_BITS]
        return len(nodes) + len(large) * sum(large) // _BITS_PER_COMPARISON


class _Errors:
    """Sums of the sizes of errors: of all values of each group or, with `of_one`, of one value of each group.

    Attributes:
        all_with_copies: Size, with copies, of the errors that were added last: after all groups, of the whole value.
        largest_alternative: Maximum size of the errors of a schema with alternatives.
    """

    def __init__(self, graph: SchemaGraph, groups: list[ValueGroup], *, of_one: bool) -> None:
        self._graph = graph
        self._of_one = of_one
        self._sizes: dict[ValueGroup, int] = {}
        """Number of values inside the values of a group."""
        for group in reversed(groups):
            size = group.largest if self._of_one else group.size
            size += sum([self._sizes[part] * self._times(part) for part in group.parts])
            if group.names is not None:
                # An error about the name of a property contains the whole object.
                self._sizes[group.names] = size * (1 if self._of_one else group.names.max_per_value)
            self._sizes[group] = size
        self._errors: dict[ValueGroup, dict[int, _ErrorSize]] = {}
        self.all_with_copies = self.largest_alternative = 0

    def add(self, group: ValueGroup, indexes: list[int]) -> None:
        """Add the errors of the schemas that are applied to a group; inner groups must be added before."""
        self._errors[group] = {}
        for index in indexes:
            node = self._graph.nodes[index]
            errors = self._inner_errors(node, group)
            copied = errors.copied
            if node.has_alternatives:
                copied += _COPIES * errors.units
            own = self._own_units(node, group)
            self._errors[group][index] = _ErrorSize(own + errors.units, own + copied)
            self.all_with_copies = own + copied
            if node.has_alternatives:
                self.largest_alternative = max(self.largest_alternative, own + copied)

    def _own_units(self, node: SchemaNode, group: ValueGroup) -> int:
        """Return the number of values in the errors of a schema, without the errors of the schemas that it applies."""
        count = 1 if self._of_one else group.count
        errors = count
        for name in node.required:
            present = 0
            if not self._of_one and name in group.properties:
                present = group.properties[name].count
            errors += count - present
        # Each error contains a copy of its value.
        return errors * (_UNITS_PER_ERROR + node.error_size) + errors * self._sizes[group] // count

    def _inner_errors(self, node: SchemaNode, group: ValueGroup) -> _ErrorSize:
        units = copied = 0
        errors = self._errors[group]
        for inner in node.in_place:
            if inner in errors:
                units += errors[inner].units
                copied += errors[inner].copied
        for inner, part in _applied_to_parts(node, group):
            times = self._times(part)
            units += times * self._errors[part][inner].units
            copied += times * self._errors[part][inner].copied
        return _ErrorSize(units, copied)

    def _times(self, part: ValueGroup) -> int:
        """Return the number of values of a part in one outer value; 1 if all values are counted together."""
        return part.max_per_value if self._of_one else 1


def _applied_to_parts(node: SchemaNode, group: ValueGroup) -> Iterator[tuple[int, ValueGroup]]:
    """Yield the indexes of the schemas that a schema applies to the parts of a group, each with its part."""
    for name, part in group.properties.items():
        for inner in node.of_property(name):
            yield inner, part
    for index, part in group.items.items():
        for inner in node.of_item(index):
            yield inner, part
    if group.names is not None:
        for inner in node.property_names:
            yield inner, group.names
