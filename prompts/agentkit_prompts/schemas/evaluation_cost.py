"""Cost of validating a value by a JSON Schema, known before the library starts.

The library has no time limit, and it holds the interpreter while it works. Alternatives that contain each other are
evaluated again at each level, so a schema of forty lines can take years. The cost of each pair of a schema and a value
is computed once here, however often the library would evaluate it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.pattern_size import pattern_size
from agentkit_prompts.schemas.references import ReferenceTable, in_place

__all__ = ["Cost", "EvaluationCost", "TooExpensiveError"]

_MAX_EVALUATIONS = 10_000_000
"""Evaluations of a schema for one value, some 20 nanoseconds each."""
_MAX_PAIRS = 200_000
"""Pairs of a schema and a value in one estimate, some microseconds each."""
_MAX_ALTERNATIVE = 2_000
"""Evaluations inside one alternative. The library collects the errors of all alternatives, and copies them."""
_MAX_LISTING = 500_000
"""Values and keywords in errors, a microsecond each. The library makes all errors before the first can be read."""
_OVERFLOW = 1 << 40
_NOT_LINEAR = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9kK]")
"""Look-around, atomic groups and references back, in a pattern."""
_CHARS_PER_UNIT = 100
_ENTRIES_PER_UNIT = 10
_ALTERNATIVES = ("anyOf", "oneOf", "not")


class TooExpensiveError(ValueError):
    """Validating the value takes too long, or is nested too deeply."""


class Cost(NamedTuple):
    """Cost of validating one value."""

    total: int = 0
    """Evaluations in all."""
    alternative: int = 0
    """Evaluations inside one alternative, at most."""
    listing: int = 0
    """Size of all errors that are possible: each contains the value and the data of the keyword."""

    @property
    def allows_errors(self) -> bool:
        """True if the library can describe one error in time."""
        return self.alternative <= _MAX_ALTERNATIVE

    @property
    def allows_all_errors(self) -> bool:
        """True if the library can list all errors in time."""
        return self.allows_errors and self.listing <= _MAX_LISTING

    def with_part(self, part: Cost) -> Cost:
        """Return the cost of a value together with the cost of a part, or of another schema for the same value."""
        return Cost(
            min(self.total + part.total, _OVERFLOW),
            max(self.alternative, part.alternative),
            min(self.listing + part.listing, _OVERFLOW),
        )


class _Weight(NamedTuple):
    """Weight of a schema: its evaluations, and the size of its errors."""

    evaluations: int
    size: int


class EvaluationCost:
    """Estimates the cost of validating values by one schema."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._references = ReferenceTable(document)
        self._weights = _Weights()

    def of(self, value: Any) -> Cost:
        """Return the cost of validating a value.

        Raises:
            TooExpensiveError: It takes too long.
        """
        estimate = _Estimate(self._references, self._weights)
        try:
            cost = estimate.of_all(self._document, [value])
        # Each level of the value takes a call, so the depth of the value is limited, too.
        except RecursionError:
            raise TooExpensiveError("is nested too deeply") from None
        if cost.total > _MAX_EVALUATIONS:
            raise TooExpensiveError("takes too long to check: shorten it, or simplify its schema")
        return cost


class _Estimate:
    """The estimate for one value. Costs are cached by the ids of schema and value, which both stay alive."""

    def __init__(self, references: ReferenceTable, weights: _Weights) -> None:
        self._references = references
        self._weights = weights
        self._costs: dict[tuple[int, int], Cost] = {}
        self._sizes: dict[int, int] = {}
        self._groups: dict[int, tuple[int, int]] = {}
        # Lists and names made here: their ids must not be reused.
        self._kept: list[Any] = []

    def cost(self, schema: Any, value: Any) -> Cost:
        """Return the cost of validating `value` by `schema`."""
        if not isinstance(schema, Mapping):
            return Cost(1)
        key = (id(schema), id(value))
        known = self._costs.get(key)
        if known is not None:
            return known
        if len(self._costs) > _MAX_PAIRS:
            raise TooExpensiveError("takes too long to check: shorten it, or simplify its schema")
        # A schema that leads back to itself without reaching a part of the value adds nothing.
        self._costs[key] = Cost(1)
        weight = self._weights.own(schema)
        cost = Cost(weight.evaluations * _own_size(value), 0, weight.size + self._size(value))
        if isinstance(value, str) and _backtracks(schema):
            # Such a pattern is tried from each character, with a limit of steps for each.
            cost = cost._replace(total=cost.total + len(value) ** 2)
        for inner in in_place(schema, self._references):
            cost = cost.with_part(self.cost(inner, value))
        for inner, values in self._below(schema, value):
            cost = cost.with_part(self.of_all(inner, values))
        if any(keyword in schema for keyword in _ALTERNATIVES):
            # The library keeps the errors of all alternatives inside the error of this schema.
            cost = cost._replace(alternative=cost.total)
        self._costs[key] = cost
        return cost

    def of_all(self, schema: Any, values: Collection[Any]) -> Cost:
        """Return the cost of validating each of `values`: a bound if that is low enough, and the exact cost if not."""
        weight = self._weights.of_all(schema)
        if weight is not None and values:
            size, largest = self._sizes_of(values)
            # Errors inside of a value contain parts of it, so a value is in as many errors as it has levels.
            bound = Cost(weight.evaluations * size, weight.evaluations * largest, weight.size * size)
            if bound.total <= _MAX_EVALUATIONS and bound.allows_all_errors:
                return bound
        cost = Cost()
        for value in values:
            cost = cost.with_part(self.cost(schema, value))
        return cost

    def _below(self, schema: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Collection[Any]]]:
        """Yield the schemas that are applied to parts of the value, each with these parts."""
        if isinstance(value, Mapping):
            yield from self._properties(schema, value)
        elif isinstance(value, list | tuple):
            heads = schema.get("prefixItems")
            if isinstance(heads, list | tuple):
                yield from [(head, [item]) for head, item in zip(heads, value, strict=False)]
            for keyword in ("items", "contains", "unevaluatedItems"):
                if keyword in schema:
                    yield schema[keyword], value

    def _properties(self, schema: Mapping[str, Any], value: Mapping[str, Any]) -> Iterator[tuple[Any, Collection[Any]]]:
        named = schema.get("properties")
        if isinstance(named, Mapping):
            # The library looks up the names of the shorter one in the longer one, too.
            shorter, longer = (named, value) if len(named) <= len(value) else (value, named)
            yield from [(named[name], [value[name]]) for name in shorter if name in longer]
        values = self._keep(list(value.values()))
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema:
                yield schema[keyword], values
        patterns = schema.get("patternProperties")
        if isinstance(patterns, Mapping):
            yield from [(inner, values) for inner in patterns.values()]
        if "propertyNames" in schema:
            yield schema["propertyNames"], self._keep([str(name) for name in value])

    def _keep(self, values: list[Any]) -> list[Any]:
        self._kept.append(values)
        return values

    def _sizes_of(self, values: Collection[Any]) -> tuple[int, int]:
        """Return the sum of the sizes of values, and the largest size."""
        if id(values) not in self._groups:
            sizes = [self._size(value) for value in values]
            self._groups[id(values)] = sum(sizes), max(sizes)
            self._kept.append(values)
        return self._groups[id(values)]

    def _size(self, value: Any) -> int:
        """Return the size of a value with all values inside it."""
        if not isinstance(value, Mapping | list | tuple):
            return _own_size(value)
        size = self._sizes.get(id(value))
        if size is None:
            inner = value.values() if isinstance(value, Mapping) else value
            size = self._sizes[id(value)] = 1 + sum(map(self._size, inner))
        return size


def _own_size(value: Any) -> int:
    """Return the size of a value without the values inside it."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARS_PER_UNIT
    if isinstance(value, Mapping):
        return 1 + len(value) // _ENTRIES_PER_UNIT + sum(map(len, value)) // _CHARS_PER_UNIT
    if isinstance(value, list | tuple):
        return 1 + len(value) // _ENTRIES_PER_UNIT
    return 1


class _Weights:
    """Weights of the schemas of one document."""

    def __init__(self) -> None:
        self._own: dict[int, _Weight] = {}
        self._all: dict[int, _Weight | None] = {}

    def own(self, schema: Mapping[str, Any]) -> _Weight:
        """Return the weight of the keywords of a schema, without the schemas inside it."""
        if id(schema) not in self._own:
            self._own[id(schema)] = _own_weight(schema)
        return self._own[id(schema)]

    def of_all(self, schema: Any) -> _Weight | None:
        """Return the weight of a schema and all schemas inside it; None if its cost is no multiple of a size."""
        if not isinstance(schema, Mapping):
            return _Weight(1, 1)
        if id(schema) not in self._all:
            nodes = [node for node in iter_nodes(schema) if isinstance(node, Mapping)]
            weights = [self.own(node) for node in nodes]
            is_exact = any("$ref" in node or "$dynamicRef" in node or _backtracks(node) for node in nodes)
            whole = _Weight(sum([weight.evaluations for weight in weights]), sum([weight.size for weight in weights]))
            self._all[id(schema)] = None if is_exact else whole
        return self._all[id(schema)]


def _backtracks(schema: Mapping[str, Any]) -> bool:
    """True if a pattern of a schema needs an engine that is not linear."""
    pattern = schema.get("pattern")
    return isinstance(pattern, str) and _NOT_LINEAR.search(pattern) is not None


def _own_weight(schema: Mapping[str, Any]) -> _Weight:
    entries, size = 0, 1
    for keyword, data in schema.items():
        if keyword == "pattern" and isinstance(data, str):
            entries += pattern_size(data)
        elif keyword == "patternProperties" and isinstance(data, Mapping):
            entries += sum(map(pattern_size, data))
        elif keyword in ("enum", "const"):
            parts = list(iter_nodes(data))
            entries += len(parts)
            size += sum(map(_own_size, parts))
        elif keyword in ("required", "dependentRequired") and isinstance(data, Mapping | list | tuple):
            entries += len(data)
            size += len(data)
    return _Weight(1 + entries // _ENTRIES_PER_UNIT, size)
