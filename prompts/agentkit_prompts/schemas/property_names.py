"""Names of properties that a provider refuses: what is sent in their place, and the way back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise
from typing import Any

__all__ = ["OF_ANTHROPIC", "OF_GEMINI", "original_names", "wire_property", "with_original_names", "with_wire_names"]

OF_ANTHROPIC = r"[a-zA-Z0-9_.-]{1,64}"
OF_GEMINI = r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"
"""The names of properties that a provider takes: where that is written stands in `provider_rules`."""

_MAX_CHARS = 64
_REFUSED = re.compile(r"[^a-zA-Z0-9_]+")
# The narrowest of them.
_PLAIN = re.compile(OF_GEMINI)
_PATTERNS = (OF_ANTHROPIC, OF_GEMINI)
_VALUES = ("enum", "const", "default", "examples", "example")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def wire_property(name: str, accepted: str) -> str:
    """Return a name that matches the pattern `accepted`: `name` itself where it does, "" being any.

    Others end in 8 hex digits of their hash, so that `filter[id]` and `filter(id)` stay apart, in every process.
    """
    if not accepted or re.fullmatch(accepted, name):
        return name
    # A hash, because a number would depend on the other names of the tool.
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    readable = _REFUSED.sub("_", name).strip("_")[: _MAX_CHARS - len(digest) - 2] or "field"
    return f"{'_' if readable[0].isdigit() else ''}{readable}_{digest}"


def original_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the names in a schema that some provider refuses, by those that are sent in their place."""
    refused = [name for name in dict.fromkeys(_names(schema)) if not _PLAIN.fullmatch(name)]
    return {wire: name for name in refused for pattern in _PATTERNS if (wire := wire_property(name, pattern)) != name}


def with_original_names(text: str, names: Mapping[str, str]) -> str:
    """Return the JSON text of arguments with their own names; text that is not JSON as it is."""
    if not any(wire in text for wire in names):
        return text
    try:
        return json.dumps(_renamed(json.loads(text), names), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def with_wire_names(schema: Mapping[str, Any], accepted: str) -> Mapping[str, Any]:
    """Return a schema whose properties have names that match `accepted`; the very same where they have."""
    if all(re.fullmatch(accepted, name) for name in _names(schema)):
        return schema
    rewritten: Mapping[str, Any] = _rewritten(schema, accepted)
    return rewritten


def _rewritten(schema: Any, accepted: str) -> Any:
    if isinstance(schema, list | tuple):
        return [_rewritten(item, accepted) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _rewritten_keyword(keyword, value, accepted) for keyword, value in schema.items()}


def _rewritten_keyword(keyword: str, value: Any, accepted: str) -> Any:
    if keyword == "properties" and isinstance(value, Mapping):
        return {wire_property(name, accepted): _rewritten(item, accepted) for name, item in value.items()}
    if keyword in _NAMED and isinstance(value, Mapping):
        return {name: _rewritten(item, accepted) for name, item in value.items()}
    if keyword == "required" and isinstance(value, list | tuple):
        return [_rewritten_name(name, accepted) for name in value]
    if keyword == "$ref" and isinstance(value, str) and "/properties/" in value:
        return "/".join(_rewritten_steps(value.split("/"), accepted))
    if keyword in _VALUES:
        return value
    return _rewritten(value, accepted)


def _rewritten_name(name: Any, accepted: str) -> Any:
    if isinstance(name, str):
        return wire_property(name, accepted)
    return name


def _rewritten_steps(steps: list[str], accepted: str) -> Iterator[str]:
    for before, step in pairwise(["", *steps]):
        name = step.replace("~1", "/").replace("~0", "~")
        wire = wire_property(name, accepted)
        if before == "properties" and wire != name:
            yield wire
        else:
            yield step


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    return {names.get(name, name): _renamed(item, names) for name, item in value.items()}


def _names(schema: Any) -> Iterator[str]:
    """Yield the names of the properties of a schema and of all that is inside of it."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting += [item for item in node if isinstance(item, Mapping | list | tuple)]
        elif isinstance(node, Mapping):
            for key, inner in node.items():
                if key == "properties" and isinstance(inner, Mapping):
                    yield from inner
                if key in _NAMED and isinstance(inner, Mapping):
                    waiting += inner.values()
                elif key not in _VALUES and isinstance(inner, Mapping | list | tuple):
                    waiting.append(inner)
