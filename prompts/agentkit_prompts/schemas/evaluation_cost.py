"""Upper bound on the time that validating a value by a JSON Schema takes, known before the library starts.

The library has no time limit, and it holds the interpreter while it works. Alternatives that contain each other are
evaluated again at each level, so a schema of forty lines can take years.

The bound is the weight of the schema times the size of the value. The weight is the number of evaluations for each
value, at most. It depends on the schema and on the depth of the value only, so it is computed once for each depth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.keywords import NAMED
from agentkit_prompts.schemas.pattern_size import pattern_size
from agentkit_prompts.schemas.references import APPLIED_IN_PLACE, ReferenceTable, in_place

__all__ = ["ErrorCost", "EvaluationCost", "TooExpensiveError"]

_MAX_EVALUATIONS = 20_000_000
"""Evaluations of schemas, at most 80 nanoseconds each."""
_MAX_WEIGHTS = 200_000
"""Schemas that are weighed for one depth, some microseconds each."""
_MAX_ERRORS = 200_000
"""Errors that the library makes at once, some microseconds each."""
_MAX_ERRORS_OF_ALTERNATIVE = 2_000
"""Errors inside one alternative, which the library copies into one error."""
_CHARS_PER_UNIT = 100
_MAX_HASHED_BITS = 62
_BITS_PER_COMPARISON = 32
_PATTERN_CHARS_PER_UNIT = 10
_BACKTRACKING = 1_500
"""Weight of a pattern with look-around or back-references, which is tried once and has a limit of steps."""
_NOT_LINEAR = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9kK]")
"""Look-around, atomic groups and back-references, in a pattern."""
_ALTERNATIVES = frozenset({"anyOf", "oneOf", "not"})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})

_ONE_PER_PART = ("properties", "additionalProperties", "prefixItems", "items")
"""Keywords that together apply one schema to each part of the value."""
_ALL_PER_PART = ("patternProperties", "propertyNames", "contains", *sorted(_UNEVALUATED))
"""Keywords whose schemas are all applied to each part of the value."""
_DATA = frozenset({"enum", "const", "required", "dependentRequired"})
_COPIED = _DATA | {"not"}
"""Keywords whose value is a part of an error."""
_NOT_APPLIED = frozenset({"$defs", "definitions", "default", "examples", "pattern"})
_KNOWN = frozenset({*_ONE_PER_PART, *_ALL_PER_PART, *APPLIED_IN_PLACE, *_DATA, *_NOT_APPLIED})


class TooExpensiveError(ValueError):
    """Validating the value takes too long, or the value is nested too deeply."""


class ErrorCost(NamedTuple):
    """Cost of describing why a value is not valid, at most."""

    errors: int
    """Errors that are possible, each with the size of the data that it contains."""
    errors_of_alternative: int
    """Errors inside one alternative."""

    @property
    def allows_one(self) -> bool:
        """True if the library can describe one error in time."""
        return self.errors_of_alternative <= _MAX_ERRORS_OF_ALTERNATIVE

    @property
    def allows_all(self) -> bool:
        """True if the library can list all errors in time."""
        return self.allows_one and self.errors <= _MAX_ERRORS


class EvaluationCost:
    """Estimates the cost of validating values by one schema."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._references = ReferenceTable(document)
        nodes = iter_nodes(document)
        self._has_unique_items = any(isinstance(node, Mapping) and "uniqueItems" in node for node in nodes)
        self._evaluations: dict[int, int] = {}
        """Depth of a value -> evaluations for each value inside it."""

    def check(self, value: Any) -> None:
        """Refuse a value that takes too long to validate.

        Raises:
            TooExpensiveError: It takes too long.
        """
        size, depth = _extent(value)
        if depth not in self._evaluations:
            try:
                weight = _Weighing(self._references, _evaluation_weight).weight(self._document, depth)
            # Each level of the value takes a call.
            except RecursionError:
                raise TooExpensiveError("is nested too deeply") from None
            self._evaluations[depth] = weight
        evaluations = self._evaluations[depth] * size
        if self._has_unique_items:
            evaluations += _comparisons(value)
        if evaluations > _MAX_EVALUATIONS:
            raise TooExpensiveError("takes too long to check: shorten it, or simplify its schema")

    def of_errors(self, value: Any) -> ErrorCost:
        """Return the cost of describing why a value that was checked is not valid."""
        size, depth = _extent(value)
        weighing = _Weighing(self._references, _error_weight)
        errors = weighing.weight(self._document, depth)
        alternatives = [node for node in weighing.schemas if not _ALTERNATIVES.isdisjoint(node)]
        weights = [(weighing.weight(node, depth), weighing.weight(node, 0)) for node in alternatives]
        # An alternative that ignores the parts of a value has the same weight for values of any depth.
        flat = max([weight for weight, weight_of_scalar in weights if weight == weight_of_scalar], default=0)
        deep = max([weight for weight, weight_of_scalar in weights if weight > weight_of_scalar], default=0)
        return ErrorCost(errors * size, max(flat, deep * size))


class _Weighing:
    """Weighs the schemas of one document; `own_weight` is the weight of a schema without the schemas inside it."""

    def __init__(self, references: ReferenceTable, own_weight: Callable[[Mapping[str, Any]], int]) -> None:
        self._references = references
        self._own_weight = own_weight
        self._weights: dict[tuple[int, int], int] = {}
        self.schemas: list[Mapping[str, Any]] = []
        """Schemas that were weighed; a schema can be in the list several times."""

    def weight(self, schema: Any, depth: int) -> int:
        """Return the weight of a schema for each value inside a value of that depth."""
        if not isinstance(schema, Mapping):
            return 1
        key = (id(schema), depth)
        if key in self._weights:
            return self._weights[key]
        if len(self._weights) > _MAX_WEIGHTS:
            raise TooExpensiveError("takes too long to check: simplify its schema")
        # A schema that leads back to itself without reaching a part of the value adds nothing.
        self._weights[key] = 1
        self.schemas.append(schema)
        weight = self._own_weight(schema) + self._in_place(schema, depth)
        if depth > 0:
            weight += max([self.weight(inner, depth - 1) for inner in _inside(schema, _ONE_PER_PART)], default=0)
            weight += sum([self.weight(inner, depth - 1) for inner in _inside(schema, _ALL_PER_PART)])
        # A larger number than the limit is the same as the limit, and may have millions of digits.
        self._weights[key] = weight = min(weight, _MAX_EVALUATIONS + 1)
        return weight

    def _in_place(self, schema: Mapping[str, Any], depth: int) -> int:
        """Return the weight of the schemas that are applied to the value itself."""
        weight = sum([self.weight(inner, depth) for inner in in_place(schema, self._references)])
        if not _UNEVALUATED.isdisjoint(schema):
            # The library evaluates them again, and their alternatives once more, to find the parts that are left.
            weight *= 3
        return weight + sum([self.weight(inner, depth) for inner in _unknown(schema)])


def _unknown(schema: Mapping[str, Any]) -> list[Any]:
    """Return the objects in keywords that are not known here: they count as schemas that are applied everywhere."""
    values = [value for keyword, value in schema.items() if keyword not in _KNOWN]
    return [node for node in iter_nodes(values) if isinstance(node, Mapping)]


def _inside(schema: Mapping[str, Any], keywords: tuple[str, ...]) -> Iterator[Any]:
    """Yield the schemas of keywords that contain one schema, a list of schemas, or schemas by name."""
    for keyword in keywords:
        value = schema.get(keyword, [])
        if keyword in NAMED:
            value = list(schema.get(keyword, {}).values())
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _error_weight(schema: Mapping[str, Any]) -> int:
    """Return the size of the data that errors of a schema contain."""
    return 1 + sum(_extent(schema[keyword])[0] for keyword in _COPIED & schema.keys())


def _evaluation_weight(schema: Mapping[str, Any]) -> int:
    patterns = [schema.get("pattern"), *schema.get("patternProperties", ())]
    weight = sum(_pattern_weight(pattern) for pattern in patterns if isinstance(pattern, str))
    return _error_weight(schema) + weight


def _pattern_weight(pattern: str) -> int:
    if _NOT_LINEAR.search(pattern) is None:
        return pattern_size(pattern) // _PATTERN_CHARS_PER_UNIT
    if pattern.startswith("^") and "|" not in pattern:
        return _BACKTRACKING
    # It is tried from each character.
    return _BACKTRACKING * _CHARS_PER_UNIT


def _comparisons(value: Any) -> int:
    """Return the cost of comparing integers of more than 64 bits: the library compares each with all others."""
    sizes = [node.bit_length() for node in iter_nodes(value) if isinstance(node, int)]
    large = [bits for bits in sizes if bits > _MAX_HASHED_BITS]
    return len(large) * sum(large) // _BITS_PER_COMPARISON


def _extent(value: Any) -> tuple[int, int]:
    """Return the size of a value with all values inside it, and the number of levels inside it."""
    size, depth = 0, -1
    level = [value]
    while level:
        depth += 1
        parts: list[Any] = []
        for node in level:
            size += 1
            if isinstance(node, str):
                size += len(node) // _CHARS_PER_UNIT
            elif isinstance(node, Mapping):
                size += sum(map(len, node)) // _CHARS_PER_UNIT
                parts += node.values()
            elif isinstance(node, list | tuple):
                parts += node
        level = parts
    return size, depth
