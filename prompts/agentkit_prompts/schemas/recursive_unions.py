"""Recursive unions in core schemas of pydantic. Pydantic tries each member of a union again at each level of a value,
so a recursive union takes exponential time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from agentkit_prompts.context.nested import iter_nodes, values_in

_MAX_LEVELS = 12
"""Maximum levels of a value that a recursive union validates."""
_MAX_VALUES = 4_000
"""Maximum number of values, at all levels, in a value that a recursive union validates."""
_SCALARS = frozenset({"any", "none", "bool", "int", "float", "str", "literal", "enum", "missing-sentinel"})
_DATA = frozenset({"metadata", "serialization", "default", "function", "cls", "config", "expected"})
"""Keys of a core schema whose values do not contain schemas of values."""


def has_recursive_union(schema: Any) -> bool:
    """True if a core schema has a union that leads back to itself, and several of whose members are not scalars."""
    unions = [node for node in core_nodes(schema) if _is_ambiguous(node)]
    if not unions:
        return False
    definitions = {node["ref"]: node for node in core_nodes(schema) if isinstance(node.get("ref"), str)}
    return any(_reaches(union, definitions) for union in unions)


def _is_ambiguous(node: Mapping[str, Any]) -> bool:
    if node.get("type") != "union":
        return False
    choices = [choice[0] if isinstance(choice, tuple) else choice for choice in node["choices"]]
    return sum(choice.get("type") not in _SCALARS for choice in choices) > 1


def _reaches(union: Mapping[str, Any], definitions: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if the references inside a union lead back to the union."""
    seen: set[str] = set()
    waiting: list[Any] = list(union["choices"])
    while waiting:
        for node in core_nodes(waiting.pop()):
            if node is union:
                return True
            reference = node.get("schema_ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                waiting.append(definitions.get(reference, {}))
    return False


def core_nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield each mapping in a core schema of pydantic once."""
    return (node for node in iter_nodes(schema, _schemas_in) if isinstance(node, dict))


def _schemas_in(node: Any) -> Iterable[Any]:
    """Return the values of a mapping or list that can contain schemas."""
    # Only in a core schema, which has a `type`: in a mapping of names to schemas, `default` can be the name of a field.
    if isinstance(node, dict) and isinstance(node.get("type"), str):
        return [value for key, value in node.items() if key not in _DATA]
    return values_in(node)


def recursion_problem(value: Any) -> str:
    """Return the problem of a value that is too large or too deep for a recursive union; "" for other values."""
    if sum(1 for _ in iter_nodes(value)) > _MAX_VALUES:
        return f"has more than {_MAX_VALUES:,} values, too many for alternatives that contain each other"
    level: list[Any] = [value]
    for _ in range(_MAX_LEVELS + 1):
        # By `id`, because the same part can be at several places.
        level = list({id(part): part for node in level for part in _parts(node)}.values())
        if not level:
            return ""
    return f"is nested more than {_MAX_LEVELS} levels deep, too deep for alternatives that contain each other"


def _parts(value: Any) -> list[Any]:
    """Return the mappings, lists and models inside a value."""
    if isinstance(value, BaseModel):
        value = vars(value)
    inner = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list | tuple):
        return []
    return [part for part in inner if isinstance(part, Mapping | list | tuple | BaseModel)]
