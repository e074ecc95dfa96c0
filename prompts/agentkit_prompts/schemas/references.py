"""References inside one JSON Schema document, and the keywords of a schema that contain other schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any
from urllib.parse import unquote

from agentkit_prompts.context.nested import iter_nodes

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LISTS = ("anyOf", "oneOf", "allOf")
_SINGLE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef")
APPLIED_IN_PLACE = (*_LISTS, *_SINGLE, "dependentSchemas", *_REFERENCES)
"""Keywords whose schemas are applied to the same value as the schema that contains them."""


def target_in(document: Mapping[str, Any], reference: object) -> Any:
    """Return the target of a reference such as `#/$defs/Page`; None if the target is missing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    if reference != "#" and not reference.startswith("#/"):
        return ReferenceTable(document).target(reference)
    target: Any = document
    for step in reference.split("/")[1:]:
        target = _inside(target, unquote(step).replace("~1", "/").replace("~0", "~"))
    return target


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list | tuple) and _INDEX.fullmatch(name) and int(name) < len(value):
        return value[int(name)]
    return None


def resolve(reference: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a reference as an object; False becomes `{"not": {}}`, and a missing target {}, which
    accepts all values.
    """
    target = target_in(document, reference)
    if target is False:
        return {"not": {}}
    if isinstance(target, Mapping):
        return target
    return {}


class ReferenceTable:
    """Table of the targets of references in a document: JSON pointers, anchors, and ids of schemas in the document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._named: dict[str, Any] = {}
        for node in iter_nodes(document):
            if isinstance(node, Mapping):
                self._add(node)

    def _add(self, node: Mapping[str, Any]) -> None:
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(keyword), str):
                self._named.setdefault(f"#{anchor}", node)
        if isinstance(identifier := node.get("$id"), str) and identifier:
            self._named.setdefault(identifier.partition("#")[0].rpartition("/")[2], node)

    def target(self, reference: str) -> Any:
        """Return the target of a reference; None if the document does not contain it.

        The target of an address is a schema whose `$id` ends with the same name. This is not exact, but sufficient for
        an estimate of costs.
        """
        if reference == "#" or reference.startswith("#/"):
            return target_in(self.document, reference)
        if reference.startswith("#"):
            return self._named.get(reference)
        # The validation library resolves addresses exactly, so only the estimate depends on this target.
        address, _, fragment = reference.partition("#")
        name = address.rpartition("/")[2]
        schema = self._named.get(name) if name else self.document
        if fragment.startswith("/") and isinstance(schema, Mapping):
            return target_in(schema, f"#{fragment}")
        if fragment:
            return self._named.get(f"#{fragment}", schema)
        return schema


def in_place(schema: Mapping[str, Any], references: ReferenceTable) -> Iterator[Any]:
    """Yield the schemas that are applied to the same value as `schema`."""
    for keyword in _LISTS:
        options = schema.get(keyword)
        if isinstance(options, list | tuple):
            yield from options
    for keyword in _SINGLE:
        if keyword in schema:
            yield schema[keyword]
    dependent = schema.get("dependentSchemas")
    if isinstance(dependent, Mapping):
        yield from dependent.values()
    yield from _targets(schema, references)


def _targets(schema: Mapping[str, Any], references: ReferenceTable) -> Iterator[Any]:
    """Yield the targets of the references of a schema."""
    for keyword in _REFERENCES:
        reference = schema.get(keyword)
        if isinstance(reference, str):
            yield references.target(reference)


def reference_cycle(document: Mapping[str, Any]) -> list[str]:
    """Return the references of a cycle of schemas that are applied to the same value; [] without such a cycle.

    Such a cycle describes no value, because it never reaches a part of the value.
    """
    graph = _in_place_graph(document)
    try:
        TopologicalSorter({key: [id(schema) for schema in inner] for key, (_, inner) in graph.items()}).prepare()
    except CycleError as error:
        names = [str(graph[key][0].get("$ref", "")) for key in error.args[1]]
        return [name for name in dict.fromkeys(names) if name]
    return []


def _in_place_graph(document: Mapping[str, Any]) -> dict[int, tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Return each schema, by its `id`, with the schemas that it applies to the same value."""
    references = ReferenceTable(document)
    graph: dict[int, tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = {}
    waiting = [node for node in iter_nodes(document) if isinstance(node, Mapping) and "$ref" in node]
    while waiting:
        schema = waiting.pop()
        if id(schema) not in graph:
            inner = [applied for applied in in_place(schema, references) if isinstance(applied, Mapping)]
            graph[id(schema)] = schema, inner
            waiting += inner
    return graph
