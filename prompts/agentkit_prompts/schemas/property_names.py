"""Replacement of property names that a provider rejects, and conversion of the replacements to the original names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from agentkit_prompts.limits import MAX_WIRE_NAME_CHARS
from agentkit_prompts.schemas.keywords import iter_schemas, rewritten

OF_ANTHROPIC = r"[a-zA-Z0-9_.-]{1,64}"
OF_GEMINI = r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"
"""Patterns of the property names that providers accept; see `provider_rules` for the sources."""

_REFUSED = re.compile(r"[^a-zA-Z0-9_]+")
# Every provider accepts names that match this pattern.
_PLAIN = re.compile(OF_GEMINI)
_PATTERNS = (OF_ANTHROPIC, OF_GEMINI)


def wire_property(name: str, accepted: str) -> str:
    """Return `name` if it matches the pattern `accepted`, or if `accepted` is ""; else a replacement that matches.

    A replacement ends with 8 hex digits of the hash of `name`, so that `filter[id]` and `filter(id)` get different
    names, which are the same in all processes.
    """
    if not accepted or re.fullmatch(accepted, name):
        return name
    # A hash, because a sequential number would depend on the other names of the tool.
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    readable = _REFUSED.sub("_", name).strip("_")[: MAX_WIRE_NAME_CHARS - len(digest) - 2] or "field"
    if readable[0].isdigit():
        readable = f"_{readable}"
    return f"{readable}_{digest}"


def original_names(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return a mapping from replacements to the original names, for the names in a schema that a provider rejects."""
    refused = [name for name in dict.fromkeys(_names(schema)) if not _PLAIN.fullmatch(name)]
    return {wire: name for name in refused for pattern in _PATTERNS if (wire := wire_property(name, pattern)) != name}


def with_original_names(text: str, names: Mapping[str, str]) -> str:
    """Return the JSON text of arguments with original names; `names` maps replacements to original names.

    Text that is not JSON, or contains a name and its replacement in the same object, is returned unchanged.
    """
    if not any(wire in text for wire in names):
        return text
    try:
        return json.dumps(_renamed(json.loads(text), names), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def with_wire_names(schema: Mapping[str, Any], accepted: str) -> Mapping[str, Any]:
    """Return a schema with replacements for property names that do not match `accepted`; the same object without such
    names.
    """
    if all(re.fullmatch(accepted, name) for name in _names(schema)):
        return schema

    def renamed(node: dict[str, Any]) -> dict[str, Any]:
        properties, required, reference = node.get("properties"), node.get("required"), node.get("$ref")
        if isinstance(properties, Mapping):
            node["properties"] = {wire_property(name, accepted): item for name, item in properties.items()}
        if isinstance(required, list):
            node["required"] = [wire_property(name, accepted) for name in required if isinstance(name, str)]
        if isinstance(reference, str):
            node["$ref"] = "/".join(_wire_steps(reference.split("/"), accepted))
        return node

    wire: Mapping[str, Any] = rewritten(schema, renamed)
    return wire


def _wire_steps(steps: list[str], accepted: str) -> Iterator[str]:
    """Yield the steps of a reference, with replacements for refused names of properties."""
    for before, step in pairwise(["", *steps]):
        name = step.replace("~1", "/").replace("~0", "~")
        wire = wire_property(name, accepted)
        # An accepted name keeps its spelling, which can contain escapes.
        if before == "properties" and wire != name:
            yield wire
        else:
            yield step


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {names.get(name, name): _renamed(item, names) for name, item in value.items()}
    if len(renamed) < len(value):
        raise ValueError("an object has a name and its replacement")
    return renamed


def _names(schema: Any) -> Iterator[str]:
    """Yield the names of the properties of a schema and of all schemas inside it."""
    for node in iter_schemas(schema):
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            yield from properties
