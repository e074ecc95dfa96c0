"""Repair of arguments that are nearly valid, for tools whose policy or strict schema requires it.

Truncated and ambiguous text is not repaired: a repaired half of a call would be a different call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from agentkit_prompts.schemas.subschemas import is_null_default, takes_null
from agentkit_tools.calling.shown_arguments import check_unique_names

_TOKEN = re.compile(
    r"""(?P<quote>["'])|(?P<comma>,(?=\s*[}\]]))|(?P<word>\b(?:True|False|None)\b)""",
    re.S,
)
_ENDS = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*+{quote}", re.S) for quote in "\"'"}
_WORDS = {"True": "true", "False": "false", "None": "null"}


def repaired(text: str, parameters: Mapping[str, Any]) -> str | None:
    """Return valid JSON text for arguments with trailing commas, single quotes, Python's constants, a code fence
    around them, or JSON inside of a string; None for arguments with other problems.
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
    """Return the arguments without the nulls that a strict schema requires for omitted properties.

    `parameters` is the schema before its conversion to a strict schema. None if no null is removed.
    """
    return _pruned(text, _Pruning(parameters, is_strict=True))


def without_null_defaults(text: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the arguments without the nulls of properties whose default is null; None if no null is removed.

    The annotation of such a parameter, as in `project: str = None`, refuses null.
    """
    if "null" not in text:
        return None
    return _pruned(text, _Pruning(parameters, is_strict=False))


def _pruned(text: str, pruning: _Pruning) -> str | None:
    try:
        value = from_json(text)
        pruned = pruning.prune(value, pruning.document)
        if pruned == value:
            return None
        return to_json(pruned).decode()
    except (ValueError, TypeError, RecursionError):
        return None


def _load(text: str) -> Any:
    try:
        value = from_json(text)
    except ValueError:
        text = _as_json(text)
        value = from_json(text)
    # Ambiguous: `from_json` keeps the last value of a name that occurs twice.
    check_unique_names(text)
    return value


def _unfenced(text: str) -> str:
    """Return the content of a text that is one code fence, and any other text unchanged."""
    inner = text.strip()
    if not (inner.startswith("```") and inner.endswith("```")):
        return text
    opening, line, rest = inner[3:-3].partition("\n")
    if line and opening.strip() in ("", "json"):
        return rest.strip()
    return text


def _as_json(text: str) -> str:
    """Rewrite the strings, constants and commas of other notations as JSON, in linear time."""
    chunks: list[str] = []
    start = 0
    while (token := _TOKEN.search(text, start)) is not None:
        chunks.append(text[start : token.start()])
        start = token.end()
        if token["quote"] is None:
            chunks.append(_WORDS.get(token[0], ""))
            continue
        end = _ENDS[token["quote"]].match(text, start)
        # The rest of a text with an unterminated string is not JSON.
        if end is None:
            chunks.append(text[token.start() :])
            return "".join(chunks)
        inner = text[start : end.end() - 1]
        if token["quote"] == "'":
            chunks.append(json.dumps(inner.replace("\\'", "'").replace('\\"', '"')))
        else:
            chunks.append(f'"{inner}"')
        start = end.end()
    return "".join([*chunks, text[start:]])


def _opened(value: Any, schema: Any) -> Any:
    """Parse a string that contains the object or array that its schema requires; return any other value unchanged."""
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
    """Remover of nulls. The option of a union that matches a value is searched once per schema and value."""

    def __init__(self, document: Mapping[str, Any], *, is_strict: bool) -> None:
        self.document = document
        self.is_strict = is_strict
        self.resolved: dict[tuple[int, int], tuple[Any, Mapping[str, Any] | None]] = {}
        # The value is stored too: an object created after it was freed could have the same id.

    def prune(self, value: Any, schema: Any) -> Any:
        schema = self.resolve(value, schema)
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
            if item is not None or name in required or name not in properties or not self._omits(properties[name])
        }

    def _omits(self, schema: Any) -> bool:
        """True if a property with this schema is omitted by the value null."""
        return is_null_default(schema) or (self.is_strict and not takes_null(schema))

    def resolve(self, value: Any, schema: Any) -> Mapping[str, Any] | None:
        """Return the schema of a value, with references and unions resolved; None if it is unknown."""
        key = (id(schema), id(value))
        if key not in self.resolved:
            # A reference that leads back to itself has no schema.
            self.resolved[key] = (value, None)
            self.resolved[key] = (value, self._target(value, schema))
        return self.resolved[key][1]

    def _target(self, value: Any, schema: Any) -> Mapping[str, Any] | None:
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
                candidates = (self.resolve(value, option) for option in options)
                is_for = _is_for if self.is_strict else _can_be_for
                return next((candidate for candidate in candidates if is_for(value, candidate)), None)
            else:
                return schema
        return None


def _is_for(value: Any, schema: Mapping[str, Any] | None) -> bool:
    """True if the strict form of `schema` accepts exactly the properties of `value`."""
    if schema is None:
        return False
    if isinstance(value, list):
        return schema.get("type") == "array"
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None or value.keys() != properties.keys():
        return False
    # A model writes null for an omitted property.
    return all(value[name] is None or _is_listed(value[name], option) for name, option in properties.items())


def _can_be_for(value: Any, schema: Mapping[str, Any] | None) -> bool:
    """True if `schema` can accept the properties of `value`."""
    if schema is None:
        return False
    if isinstance(value, list):
        return schema.get("type") == "array"
    properties = schema.get("properties")
    if not isinstance(value, dict) or properties is None:
        return False
    is_complete = all(name in value for name in schema.get("required", ()))
    return is_complete and all(_is_listed(item, properties.get(name, {})) for name, item in value.items())


def _is_listed(value: Any, schema: Mapping[str, Any]) -> bool:
    """True if the schema lists the value, or lists no values."""
    if "const" in schema:
        return bool(value == schema["const"])
    values = schema.get("enum")
    return values is None or value in values
