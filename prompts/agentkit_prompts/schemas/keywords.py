"""Keywords of JSON Schema by the kind of their values, and functions that visit all schemas in a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from agentkit_prompts.context.nested import iter_nodes, values_in

NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that contain schemas by name."""
DATA = frozenset({"enum", "const", "default", "examples", "example"})
"""Keywords whose values are data, not schemas."""


def as_object(schema: Any) -> Mapping[str, Any]:
    """Return a schema as an object; True and other values that are not objects become {}, which accepts all values."""
    if isinstance(schema, Mapping):
        return schema
    return {}


def iter_schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all schemas inside it, including objects in unknown keywords."""
    return (node for node in iter_nodes(schema, _schemas_in) if isinstance(node, Mapping))


def _schemas_in(node: Any) -> Iterable[Any]:
    """Return the values inside a schema or a list that are schemas or contain schemas."""
    if not isinstance(node, Mapping):
        return values_in(node)
    inner: list[Any] = []
    for keyword, value in node.items():
        if keyword in DATA or not isinstance(value, Mapping | list | tuple):
            continue
        if keyword in NAMED and isinstance(value, Mapping):
            inner += value.values()
        else:
            inner.append(value)
    return inner


def rewritten(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy of a schema; `change` receives each nested schema, innermost first, and returns its replacement."""
    if isinstance(schema, list | tuple):
        return [rewritten(item, change) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return change({keyword: _rewritten_value(keyword, value, change) for keyword, value in schema.items()})


def _rewritten_value(keyword: str, value: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if keyword in DATA:
        return value
    if keyword in NAMED and isinstance(value, Mapping):
        return {name: rewritten(item, change) for name, item in value.items()}
    return rewritten(value, change)


def listed_values(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that `const` or `enum` lists; None if the schema has neither."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    return None
