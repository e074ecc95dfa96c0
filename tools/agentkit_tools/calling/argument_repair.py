"""Arguments that are nearly right, repaired: only where a policy or a strict schema asks for it.

What is cut, or could mean several things, is left alone: libraries that repair any text make a call of half of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

__all__ = ["repaired", "without_nulls"]

_TOKEN = re.compile(
    r"""(?P<quote>["'])|(?P<comma>,(?=\s*[}\]]))|(?P<word>\b(?:True|False|None)\b)""",
    re.S,
)
_ENDS = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*+{quote}", re.S) for quote in "\"'"}
_WORDS = {"True": "true", "False": "false", "None": "null"}


def repaired(text: str, parameters: Mapping[str, Any]) -> str | None:
    """Return JSON text for arguments with trailing commas, single quotes, Python's constants, a code fence around
    them, or JSON inside of a string; None when that is not what is wrong with them.
    """
    try:
        text = _unfenced(text)
        value = _load(text)
        # Some models write the whole object as a JSON string, even twice.
        while isinstance(value, str):
            value = _load(value)
        if not isinstance(value, dict):
            return None
        properties = parameters.get("properties", {})
        opened = {name: _opened(item, properties.get(name)) for name, item in value.items()}
        return to_json(opened).decode()
    except (ValueError, TypeError, RecursionError):
        return None


def without_nulls(text: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the arguments without the nulls that a strict schema makes a model write for what it leaves out.

    `parameters` is the schema before it was made strict. None when nothing is to be left out.
    """
    try:
        value = from_json(text)
        pruned = _Pruning(parameters).prune(value, parameters)
        if pruned == value:
            return None
        return to_json(pruned).decode()
    except (ValueError, TypeError, RecursionError):
        return None


def _load(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return from_json(_as_json(text))


def _unfenced(text: str) -> str:
    """Return the text inside a code fence that is all there is."""
    inner = text.strip()
    if not (inner.startswith("```") and inner.endswith("```")):
        return text
    opening, line, rest = inner[3:-3].partition("\n")
    if line and opening.strip() in ("", "json"):
        return rest.strip()
    return text


def _as_json(text: str) -> str:
    """Rewrite what other notations write differently. Every character is looked at a fixed number of times."""
    found: list[str] = []
    start = 0
    while (token := _TOKEN.search(text, start)) is not None:
        found.append(text[start : token.start()])
        start = token.end()
        if token["quote"] is None:
            found.append(_WORDS.get(token[0], ""))
            continue
        end = _ENDS[token["quote"]].match(text, start)
        # A string that does not end: the rest is not JSON.
        if end is None:
            found.append(text[token.start() :])
            return "".join(found)
        inner = text[start : end.end() - 1]
        if token["quote"] == "'":
            found.append(json.dumps(inner.replace("\\'", "'").replace('\\"', '"')))
        else:
            found.append(f'"{inner}"')
        start = end.end()
    return "".join([*found, text[start:]])


def _opened(value: Any, schema: Any) -> Any:
    """A string that holds the object or array its schema asks for."""
    if not isinstance(value, str) or not isinstance(schema, Mapping):
        return value
    kind = schema.get("type")
    is_nested = kind in ("object", "array") or (kind is None and "$ref" in schema)
    if not is_nested:
        return value
    try:
        data = _load(value)
    except (ValueError, TypeError, RecursionError):
        return value
    if isinstance(data, dict | list):
        return data
    return value


class _Pruning:
    """Leaves out nulls; which option of a union a value was written for is found once per schema and value."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.known: dict[tuple[int, int], tuple[Any, Mapping[str, Any] | None]] = {}

    def prune(self, value: Any, schema: Any) -> Any:
        schema = self.meant(value, schema)
        if schema is None:
            return value
        if isinstance(value, list):
            return [self.prune(item, schema.get("items")) for item in value]
        if not isinstance(value, dict):
            return value
        properties, required = schema.get("properties", {}), schema.get("required", ())
        return {
            name: self.prune(item, properties.get(name))
            for name, item in value.items()
            if item is not None or name in required or name not in properties or _takes_null(properties[name])
        }

    def meant(self, value: Any, schema: Any) -> Mapping[str, Any] | None:
        """Follow references, and unions to the option that `value` was written for."""
        key = (id(schema), id(value))
        if key not in self.known:
            # A reference that leads back to itself has no schema.
            self.known[key] = (value, None)
            self.known[key] = (value, self._followed(value, schema))
        return self.known[key][1]

    def _followed(self, value: Any, schema: Any) -> Mapping[str, Any] | None:
        # References can form a circle.
        for _ in range(8):
            if not isinstance(schema, Mapping):
                return None
            if isinstance(reference := schema.get("$ref"), str):
                definitions = self.document.get("$defs") or self.document.get("definitions", {})
                schema = definitions.get(reference.rpartition("/")[2])
            elif len(parts := schema.get("allOf", ())) == 1:
                schema = parts[0]
            elif options := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
                meant = (self.meant(value, option) for option in options)
                return next((one for one in meant if _is_for(value, one)), None)
            else:
                return schema
        return None


def _is_for(value: Any, schema: Mapping[str, Any] | None) -> bool:
    """Whether a strict schema made from `schema` lets a model write the properties that `value` has."""
    if schema is None:
        return False
    if isinstance(value, list):
        return schema.get("type") == "array"
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None or value.keys() != properties.keys():
        return False
    # Null is what a model writes for a property that it leaves out.
    return all(value[name] is None or _is_listed(value[name], one) for name, one in properties.items())


def _is_listed(value: Any, schema: Mapping[str, Any]) -> bool:
    """True if the schema lists the value, or lists no values."""
    if "const" in schema:
        return bool(value == schema["const"])
    values = schema.get("enum")
    return values is None or value in values


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return True
    if "allOf" in schema:
        return all(_takes_null(part) for part in schema["allOf"])
    if "enum" in schema or "const" in schema:
        return None in schema.get("enum", (schema.get("const", ""),))
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if options:
        return any(_takes_null(option) for option in options)
    kind = schema.get("type")
    if kind is None:
        # A schema without a type takes anything; that of a reference is not known here.
        return "$ref" not in schema
    return kind == "null" or (isinstance(kind, list) and "null" in kind)
