"""Values of arguments that a model writes as plain text.

The parameter of the tool decides: for a text parameter the text is unchanged, otherwise it is read as JSON or as a
Python literal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentkit_prompts.chat_templates.tool_calls.python_calls import python_value
from agentkit_prompts.chat_templates.tool_calls.reply_text import NoCallError
from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.schemas.json_values import is_json, kind_of_json
from agentkit_prompts.schemas.references import target_in

_ANY = frozenset(("string", "integer", "number", "boolean", "array", "object", "null"))


def schema_of(key: str, schema: object) -> object:
    """Return the schema of a property of an object; an empty schema if it is unknown."""
    if not isinstance(schema, Mapping):
        return {}
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return schema.get("additionalProperties", {})


def typed(text: str, schema: object, root: Mapping[str, Any]) -> object:
    """Return the value of a text for a parameter of this schema."""
    kinds = kinds_of(schema, root)
    if kinds == {"string"}:
        return text
    inner = text.strip()
    try:
        value = _literal(inner)
    except NoCallError:
        return text
    if "string" not in kinds or _is_of(kinds - {"string"}, value, inner):
        return value
    return text


def _is_of(kinds: frozenset[str], value: object, text: str) -> bool:
    """True if a value has one of these JSON types, and its text is canonical: 007 and 1.50 are strings."""
    is_usual = isinstance(value, list | dict) or json.dumps(value) == text
    return is_usual and any(is_json(value, kind) for kind in kinds)


def _literal(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return python_value(text)


def kinds_of(schema: object, root: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that the keywords of a schema allow."""
    kinds: set[str] = set()
    # A schema can contain itself by a reference.
    for option in iter_nodes(schema, lambda node: _schemas_inside(node, root)):
        if not isinstance(option, Mapping):
            return _ANY
        if not _schemas_inside(option, root):
            kinds.update(_own_kinds(option))
    return frozenset(kinds) or _ANY


def _schemas_inside(schema: object, root: Mapping[str, Any]) -> list[object]:
    """Return the nested schemas that define the type of a schema without `type`; none with `type`."""
    if not isinstance(schema, Mapping):
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        return [target_in(root, reference)]
    if not {"type", "enum", "const"}.isdisjoint(schema):
        return []
    options = [*_listed(schema, "anyOf"), *_listed(schema, "oneOf")]
    parts = _listed(schema, "allOf")
    if not options and len(parts) == 1:
        return parts
    return options


def _listed(schema: Mapping[str, Any], keyword: str) -> list[object]:
    value = schema.get(keyword)
    if isinstance(value, list):
        return value
    return []


def _own_kinds(schema: Mapping[str, Any]) -> Iterable[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [name for name in kind if isinstance(name, str)]
    values = schema.get("enum")
    if "const" in schema:
        values = [schema["const"]]
    return map(kind_of_json, values) if isinstance(values, list) else _ANY
