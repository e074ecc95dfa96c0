"""Checking values against JSON Schema: every problem at once, in words for whoever fills them in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

__all__ = ["Problem", "bound_faults", "json_problems", "resolve"]

Problem: TypeAlias = tuple[str, str]
"""Name of the value (dotted) and what is wrong with it."""

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (Mapping, BaseModel),
    "null": (type(None),),
}


_BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minimum": ((int, float), lambda value, bound: value >= bound, "should be at least {}"),
    "maximum": ((int, float), lambda value, bound: value <= bound, "should be at most {}"),
    "exclusiveMinimum": ((int, float), lambda value, bound: value > bound, "should be more than {}"),
    "exclusiveMaximum": ((int, float), lambda value, bound: value < bound, "should be less than {}"),
    "multipleOf": ((int, float), lambda value, step: not step or value % step == 0, "should be a multiple of {}"),
    "minLength": ((str,), lambda value, bound: len(value) >= bound, "should have at least {} characters"),
    "maxLength": ((str,), lambda value, bound: len(value) <= bound, "should have at most {} characters"),
    "pattern": ((str,), lambda value, pattern: re.search(pattern, value) is not None, "should match {!r}"),
    "minItems": ((list, tuple), lambda value, bound: len(value) >= bound, "should have at least {} items"),
    "maxItems": ((list, tuple), lambda value, bound: len(value) <= bound, "should have at most {} items"),
    "minProperties": ((Mapping,), lambda value, bound: len(value) >= bound, "should have at least {} entries"),
    "maxProperties": ((Mapping,), lambda value, bound: len(value) <= bound, "should have at most {} entries"),
}
"""Keyword -> types it applies to, its test, and the message where that fails."""


def json_problems(
    schema: Mapping[str, Any], value: Any, root: Mapping[str, Any], where: str, depth: int = 0
) -> Iterator[Problem]:
    """Yield what is wrong with a value; `root` is the document that `#/...` references lead into.

    Not looked at: `format`, `patternProperties`, `if`, `dependentSchemas`, and references to other documents.
    """
    if isinstance(schema, bool):
        if not schema:
            yield where or "(value)", "is not allowed"
        return
    if depth > 64:
        yield where, "is nested more than 64 levels deep"
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        yield from json_problems(resolve(reference, root), value, root, where, depth + 1)
        return
    for keyword, allowed in (("anyOf", len(schema.get("anyOf", ()))), ("oneOf", 1)):
        options = schema.get(keyword, ())
        fitting = sum(not list(json_problems(option, value, root, where, depth + 1)) for option in options)
        if options and not 1 <= fitting <= allowed:
            how_many = f"{fitting} of the schemas, and only one may fit" if fitting else "none of the allowed schemas"
            yield where or "(value)", f"matches {how_many}"
            return
    expected = schema.get("type")
    names = [expected] if isinstance(expected, str) else list(expected or ())
    if names and not any(_is_json(value, name) for name in names):
        yield where or "(value)", f"should be {' or '.join(names)}, got {type(value).__name__}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield where, f"should be one of {schema['enum']!r}"
    if "const" in schema and value != schema["const"]:
        yield where, f"should be {schema['const']!r}"
    for part in schema.get("allOf", ()):
        yield from json_problems(part, value, root, where, depth + 1)
    if "not" in schema and not list(json_problems(schema["not"], value, root, where, depth + 1)):
        yield where or "(value)", "matches what is not allowed"
    for keyword, (kinds, holds, complaint) in _BOUNDS.items():
        if keyword in schema and isinstance(value, kinds) and not isinstance(value, bool):
            bound = schema[keyword]
            if not holds(value, bound):
                yield where or "(value)", complaint.format(bound)
    if isinstance(value, Mapping):
        prefix = f"{where}." if where else ""
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{prefix}{name}", "Field required"
        named = schema.get("properties", {})
        for name, item in named.items():
            if name in value:
                yield from json_problems(item, value[name], root, f"{prefix}{name}", depth + 1)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            for name in value:
                if name not in named:
                    yield from json_problems(others, value[name], root, f"{prefix}{name}", depth + 1)
    items = schema.get("items")
    if isinstance(items, Mapping) and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from json_problems(items, item, root, f"{where}[{index}]", depth + 1)


def bound_faults(schema: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield every bound of a schema that nothing can be compared with."""
    for keyword in _BOUNDS:
        if keyword not in schema:
            continue
        bound = schema[keyword]
        if keyword == "pattern":
            try:
                re.compile(bound)
            except (re.error, TypeError) as error:
                yield f"{where}.pattern must be a regular expression, got {bound!r} ({error})"
        elif isinstance(bound, bool) or not isinstance(bound, int | float):
            yield f"{where}.{keyword} must be a number, got {bound!r}"


def _is_json(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, float) and name == "integer":
        return value.is_integer()  # JSON has one kind of number
    return isinstance(value, _JSON_TYPES.get(name, (object,)))


def resolve(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a `#/...` reference inside a schema; {} where it leads nowhere."""
    found: Any = root
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}
