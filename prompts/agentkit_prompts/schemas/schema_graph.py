"""Graph of the schemas of a document: each node is a schema with its cost, each edge leads to a schema it applies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.keywords import DATA, NAMED
from agentkit_prompts.schemas.pattern_size import pattern_size
from agentkit_prompts.schemas.references import APPLIED_IN_PLACE, ReferenceTable, in_place
from agentkit_prompts.schemas.value_groups import CHARS_PER_UNIT, Places, number_units

_PATTERN_CHARS_PER_UNIT = 10
_BACKTRACKING = 1_500
"""Weight of a pattern with look-around or back-references, which is tried at one position with a limit of steps."""
_MULTIPLE_OF = 15
"""Weight of `multipleOf`, for which the library computes with exact decimals."""
_NOT_LINEAR = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9kK]")
"""Look-around, atomic groups and back-references, in a pattern."""
_ALTERNATIVES = frozenset({"anyOf", "oneOf", "not"})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_WITHOUT_MEMORY = frozenset({*_UNEVALUATED, "$id", "$anchor", "$dynamicAnchor", "$dynamicRef"})
"""Keywords that make the library bypass its cache of results, or use a separate cache."""
_DEFINITION = re.compile(r"#/(?:\$defs|definitions)/[^/]+")
"""`$ref` to a definition at the top of the document, which the library compiles only for references."""
_MAX_STEPS = 200_000
"""Maximum number of schemas that are visited to find cached references, at most half a microsecond each."""
_COMPARED_KEYWORDS = ("enum", "const", "required", "dependentRequired")
"""Keywords whose contents are compared with each value and are a part of an error."""
_WITH_ONE_SCHEMA = (
    *("additionalProperties", "propertyNames", "unevaluatedProperties"),
    *("items", "contains", "unevaluatedItems"),
)
"""Keywords that contain one schema, which is applied to properties or items."""
_KNOWN = frozenset({*APPLIED_IN_PLACE, *NAMED, *_WITH_ONE_SCHEMA, "prefixItems", *_COMPARED_KEYWORDS, *DATA, "pattern"})
_ANYTHING: Mapping[str, Any] = {}
"""Stand-in for the schemas True and False, which cost nothing."""


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A schema: its costs, and the graph indexes of the schemas that it applies."""

    evaluations: int
    """Cost of evaluating the schema, without the schemas inside it, for one unit of the size of a value."""
    error_size: int
    """Number of values of the schema that an error contains."""
    required: tuple[str, ...]
    """Required properties; each missing property is a separate error."""
    has_alternatives: bool
    has_unique_items: bool
    in_place: tuple[int, ...]
    """Schemas that are applied to the value itself."""
    properties: Mapping[str, int]
    prefix_items: tuple[int, ...]
    additional: tuple[int, ...]
    """Schemas of properties that `properties` does not name."""
    items_after_prefix: tuple[int, ...]
    """Schemas of items after the prefix."""
    property_names: tuple[int, ...]
    """Schemas of the names of properties."""
    all_properties: tuple[int, ...]
    all_items: tuple[int, ...]

    @property
    def applied(self) -> Iterable[int]:
        """The indexes of all schemas that this schema applies to a value or to parts of the value."""
        by_place = (self.in_place, self.prefix_items, self.additional, self.items_after_prefix, self.property_names)
        return chain(self.properties.values(), self.all_properties, self.all_items, *by_place)

    def of_property(self, name: str | None) -> tuple[int, ...]:
        """Return the schemas of a property; for None the schemas of a property that the document does not name."""
        if name is not None and name in self.properties:
            return (self.properties[name], *self.all_properties)
        return self.additional + self.all_properties

    def of_item(self, index: int | None) -> tuple[int, ...]:
        """Return the schemas of an item; for None the schemas of an item after the longest prefix."""
        if index is not None and index < len(self.prefix_items):
            return (self.prefix_items[index], *self.all_items)
        return self.items_after_prefix + self.all_items


class SchemaGraph:
    """All schemas that a document applies to a value and its parts.

    Attributes:
        nodes: The schemas; each follows the schemas that it applies in place, except in cycles.
        root: The index of the document.
        places: The places of a value that the schemas distinguish.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._references = ReferenceTable(document)
        self._indexes: dict[int, int] = {}
        self._schemas: list[Mapping[str, Any]] = [*self._ordered(document)]
        self.root = self._indexes[id(document)]
        self.nodes = [self._new_node(schema) for schema in self._schemas]
        self.places = Places(
            names=frozenset[str]().union(*[node.properties for node in self.nodes]),
            longest_prefix=max([len(node.prefix_items) for node in self.nodes]),
            with_names=any(node.property_names for node in self.nodes),
        )

    @cached_property
    def cached_references(self) -> Set[tuple[int, int]]:
        """References whose results the library caches for each object and list, as pairs (schema, target) of indexes.

        A reference is cached if it is reachable only through its target: the library then compiles the reference inside
        the target and uses the cache of the target.
        """
        if not _WITHOUT_MEMORY.isdisjoint(chain.from_iterable(self._schemas)):
            return frozenset()
        references: dict[int, list[int]] = {}
        for index, schema in enumerate(self._schemas):
            if _DEFINITION.fullmatch(str(schema.get("$ref"))):
                references.setdefault(self._index(self._references.target(schema["$ref"])), []).append(index)
        steps = 0
        cached_references: set[tuple[int, int]] = set()
        for target, sources in references.items():
            reachable = self._reachable_without(target)
            steps += len(self.nodes)
            if steps > _MAX_STEPS:
                break
            cached_references.update([(source, target) for source in sources if source not in reachable])
        return cached_references

    def _reachable_without(self, target: int) -> set[int]:
        """Return the schemas that are reachable from the root without passing through the target."""
        reached = {target}
        waiting = [self.root]
        while waiting:
            index = waiting.pop()
            if index not in reached:
                reached.add(index)
                waiting += self.nodes[index].applied
        return reached - {target}

    def _ordered(self, document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield each schema after the schemas that it applies in place, and index it."""
        entered: set[int] = set()
        starts: list[Any] = [document]
        while starts:
            waiting = [_as_object(starts.pop())]
            while waiting:
                schema = waiting[-1]
                if id(schema) not in entered:
                    entered.add(id(schema))
                    inner = map(_as_object, self._applied_in_place(schema))
                    waiting += [item for item in inner if id(item) not in entered]
                    starts += _applied_to_parts(schema)
                    continue
                waiting.pop()
                if id(schema) not in self._indexes:
                    self._indexes[id(schema)] = len(self._indexes)
                    yield schema

    def _applied_in_place(self, schema: Mapping[str, Any]) -> list[Any]:
        applied = [*in_place(schema, self._references)]
        if not _UNEVALUATED.isdisjoint(schema):
            # The library evaluates the schemas twice more, to find the parts that are not evaluated.
            applied *= 3
        return applied + _unknown(schema)

    def _new_node(self, schema: Mapping[str, Any]) -> SchemaNode:
        size = 1 + sum([_size(schema[keyword]) for keyword in _COMPARED_KEYWORDS if keyword in schema])
        return SchemaNode(
            evaluations=size + _weight_of_rules(schema),
            error_size=size + _size(schema.get("not")),
            required=_required(schema),
            has_alternatives=not _ALTERNATIVES.isdisjoint(schema),
            has_unique_items=schema.get("uniqueItems") is True,
            in_place=self._indexes_of(self._applied_in_place(schema)),
            properties={name: self._index(inner) for name, inner in _by_name(schema, "properties").items()},
            prefix_items=self._indexes_of(_listed(schema, "prefixItems")),
            additional=self._indexes_of(_single(schema, "additionalProperties")),
            items_after_prefix=self._indexes_of(_single(schema, "items")),
            property_names=self._indexes_of(_single(schema, "propertyNames")),
            all_properties=self._indexes_of(
                [*_by_name(schema, "patternProperties").values(), *_single(schema, "unevaluatedProperties")]
            ),
            all_items=self._indexes_of([*_single(schema, "contains"), *_single(schema, "unevaluatedItems")]),
        )

    def _index(self, schema: Any) -> int:
        return self._indexes[id(_as_object(schema))]

    def _indexes_of(self, schemas: Any) -> tuple[int, ...]:
        return tuple(map(self._index, schemas))


def _as_object(schema: Any) -> Mapping[str, Any]:
    if isinstance(schema, Mapping):
        return schema
    return _ANYTHING


# Objects in unknown keywords were not validated: in `_by_name` and `_listed`, a value can have any type.


def _by_name(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, Mapping) else {}


def _listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _single(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    return [schema[keyword]] if keyword in schema else []


def _applied_to_parts(schema: Mapping[str, Any]) -> list[Any]:
    """Return the schemas that are applied to properties and items."""
    applied = [*_by_name(schema, "properties").values(), *_by_name(schema, "patternProperties").values()]
    applied += _listed(schema, "prefixItems")
    for keyword in _WITH_ONE_SCHEMA:
        applied += _single(schema, keyword)
    return applied


def _unknown(schema: Mapping[str, Any]) -> list[Any]:
    """Return the objects in unknown keywords. They count as schemas that are applied in place, because references can
    lead to them.
    """
    waiting = [value for keyword, value in schema.items() if keyword not in _KNOWN]
    objects: list[Any] = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            objects.append(value)
        elif isinstance(value, list):
            waiting += value
    return objects


def _size(data: Any) -> int:
    """Return the number of values in the data of a keyword, plus 1 for each `CHARS_PER_UNIT` characters of text."""
    nodes = [*iter_nodes(data)]
    return len(nodes) + sum([len(node) for node in nodes if isinstance(node, str)]) // CHARS_PER_UNIT


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = _listed(schema, "required")
    for dependent in _by_name(schema, "dependentRequired").values():
        if isinstance(dependent, list):
            names = names + dependent
    return tuple([name for name in names if isinstance(name, str)])


def _weight_of_rules(schema: Mapping[str, Any]) -> int:
    patterns = [schema.get("pattern"), *_by_name(schema, "patternProperties")]
    weight = sum([_pattern_weight(pattern) for pattern in patterns if isinstance(pattern, str)])
    weight += sum([number_units(value) for value in schema.values() if isinstance(value, int | float)])
    if "multipleOf" in schema:
        weight += _MULTIPLE_OF
    return weight


def _pattern_weight(pattern: str) -> int:
    if _NOT_LINEAR.search(pattern) is None:
        return pattern_size(pattern) // _PATTERN_CHARS_PER_UNIT
    if pattern.startswith("^") and "|" not in pattern:
        return _BACKTRACKING
    # The engine tries a pattern without an anchor at each character.
    return _BACKTRACKING * CHARS_PER_UNIT
