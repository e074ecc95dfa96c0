"""Conversion of invalid and outdated JSON Schemas, which servers and frameworks send, to valid JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from agentkit_prompts.limits import MAX_FOREIGN_NAME_CHARS, MAX_SCHEMA_PATTERN_CHARS
from agentkit_prompts.schemas.keywords import NAMED
from agentkit_tools.schemas.schema_values import kinds_of, without_contradictions
from agentkit_tools.schemas.wrapped_defaults import with_wrapped_defaults

MAX_LEVELS = 64
"""Maximum levels of a schema."""


_TYPES: dict[str, str] = {
    name: kind
    for kind, names in {
        "object": "object dict dictionary hashmap map record struct json hash mapping",
        "array": "array list arraylist tuple set vector sequence slice frozenset queue",
        "string": "string str char character text varchar datetime date time uuid url uri path bytes",
        "number": "number float double decimal real float32 float64 numeric bigdecimal",
        "integer": "integer int long short byte int8 int16 int32 int64 uint uint8 uint32 uint64 biginteger bigint",
        "boolean": "boolean bool",
        "null": "null none nil void nonetype undefined",
    }.items()
    for name in names.split()
}
_GENERIC = re.compile(r"\A\s*+([\w.]++)\s*+[\[<(](.*)[\]>)]\s*+", re.S)
_UNION = re.compile(r"(?<!\s)(?:\s*+\|\s*+|\s++or\s++)")
_ONE = (
    *("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else", "additionalItems"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NULLABLE = ("nullable", "x-nullable")
_TRANSLATED = frozenset(("type", "dependencies", "required", "optional", *_NULLABLE))


class SchemaError(ValueError):
    """An invalid schema."""


def normalise(schema: Any, level: int = 0) -> Any:
    """Return a copy of `schema` in valid JSON Schema, with foreign type names and contradictions replaced.

    An unknown type is removed, so that any value is accepted. If an enum and a type contradict each other, the enum
    takes precedence; if the type is `array`, it becomes the enum of the items. A default of null, like `nullable`,
    allows null. Any other default that `enum` or `type` excludes is accepted, too.

    Raises:
        SchemaError: The schema is nested too deeply, or is neither an object nor a boolean.
    """
    if level > MAX_LEVELS:
        raise SchemaError(f"the schema is nested deeper than {MAX_LEVELS} levels")
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise SchemaError(f"expected an object at level {level} of the schema, got {type(schema).__name__}")
    result = _well_formed(schema, level)
    _translate(result, schema, level)
    is_nullable = any(schema.get(keyword) is True for keyword in _NULLABLE)
    result = without_contradictions(result, is_nullable=is_nullable, is_root=level == 0)
    if level == 0:
        # References are known only when the whole schema is.
        result = with_wrapped_defaults(result)
    return result


def _well_formed(schema: Mapping[str, Any], level: int) -> dict[str, Any]:
    """Return the keywords with valid values, with their inner schemas normalised."""
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _INNER:
            if (inner := _INNER[keyword](value, level + 1)) is not None:
                result[keyword] = inner
        elif keyword not in _TRANSLATED and _WELL_FORMED.get(keyword, _is_not_null)(value):
            result[keyword] = value
    return result


def _one_schema(value: Any, level: int) -> Any:
    if isinstance(value, Mapping | bool):
        return normalise(value, level)
    return None


def _several_schemas(value: Any, level: int) -> list[Any] | None:
    if isinstance(value, list | tuple) and value:
        return [normalise(item, level) for item in value]
    return None


def _schemas_by_name(value: Any, level: int) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return {str(name): normalise(item, level) for name, item in value.items()}
    return None


def _distinct(value: Any, level: int) -> list[Any] | None:
    """Return the distinct values of an enum; None if it has no values."""
    if not isinstance(value, list | tuple) or not value:
        return None
    by_text: dict[str, Any] = {}
    for item in value:
        by_text.setdefault(json.dumps(item, sort_keys=True, default=str), item)
    return list(by_text.values())


def _translate(result: dict[str, Any], schema: Mapping[str, Any], level: int) -> None:
    """Convert foreign types and the keywords of older drafts to draft 2020-12."""
    # Before 2020-12, a list of schemas for `items` described a tuple.
    if "prefixItems" not in result and (heads := _several_schemas(schema.get("items"), level + 1)):
        result["prefixItems"] = heads
    _set_type(result, schema.get("type"), level)
    if required := _required(schema):
        result["required"] = required
    _set_exclusive_bounds(result)
    _set_dependencies(result, schema.get("dependencies"), level)


def _set_type(result: dict[str, Any], kind: Any, level: int) -> None:
    for keyword, value in _read_type(kind, level).items():
        result.setdefault(keyword, value)
    if "array" in kinds_of(result.get("type")):
        # Some providers refuse an array without items.
        result.setdefault("items", {})


def _read_type(kind: Any, level: int) -> Mapping[str, Any]:
    """Return the keywords for a type, which is a name, a list of names, or a schema instead of a type."""
    if isinstance(kind, str):
        return _parse_type(kind, level)
    if isinstance(kind, Mapping):
        inner: Mapping[str, Any] = normalise(kind, level + 1)
        return inner
    if not isinstance(kind, list | tuple):
        return {}
    names = [_type_named(name) for name in kind if isinstance(name, str)]
    # A list with one unknown type could accept any value.
    if not names or not all(names):
        return {}
    return {"type": list(dict.fromkeys(names))}


def _type_named(kind: str) -> str | None:
    return _TYPES.get(kind.strip().rpartition(".")[2].lower())


def _parse_type(kind: str, level: int) -> dict[str, Any]:
    """Read `String`, `List[int]`, `string[]`, `Dict<String, Integer>`, `Optional[int]`, `int | None`."""
    # The patterns below are quadratic for texts of spaces.
    if level > MAX_LEVELS or len(kind) > MAX_FOREIGN_NAME_CHARS:
        return {}
    if type_name := _type_named(kind):
        return {"type": type_name}
    if kind.endswith("[]"):
        return {"type": "array", "items": _parse_type(kind[:-2], level + 1)}
    if generic := _GENERIC.fullmatch(kind):
        return _parse_generic(generic[1].rpartition(".")[2].lower(), generic[2], level)
    options = _UNION.split(kind)
    if len(options) == 1:
        return {}
    return {"anyOf": [_parse_type(option, level + 1) for option in options]}


def _parse_generic(outer: str, inner: str, level: int) -> dict[str, Any]:
    if outer == "optional":
        return {"anyOf": [_parse_type(inner, level + 1), {"type": "null"}]}
    type_name = _TYPES.get(outer)
    if type_name is None:
        return {}
    if type_name == "array" and "," not in inner:
        return {"type": "array", "items": _parse_type(inner, level + 1)}
    return {"type": type_name}


def _required(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of required properties, also from the flags in the properties of older schemas."""
    names: list[str] = []
    if isinstance(schema.get("required"), list | tuple):
        names += [name for name in schema["required"] if isinstance(name, str)]
    if isinstance(schema.get("properties"), Mapping):
        names += [str(name) for name, item in schema["properties"].items() if _is_marked_required(item)]
    return list(dict.fromkeys(names))


def _is_marked_required(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (schema.get("required") is True or schema.get("optional") is False)


def _set_dependencies(result: dict[str, Any], dependencies: Any, level: int) -> None:
    """Convert `dependencies` of older drafts to `dependentRequired` and `dependentSchemas`."""
    if not isinstance(dependencies, Mapping):
        return
    for name, needed in dependencies.items():
        if _is_list_of_names(needed):
            result["dependentRequired"] = {**result.get("dependentRequired", {}), name: list(needed)}
        elif isinstance(needed, Mapping | bool):
            inner = {name: normalise(needed, level + 1)}
            result["dependentSchemas"] = {**result.get("dependentSchemas", {}), **inner}


def _set_exclusive_bounds(result: dict[str, Any]) -> None:
    """Convert the booleans `exclusiveMinimum` and `exclusiveMaximum` of draft 4 to numbers."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(is_exclusive := result.get(exclusive), bool):
            del result[exclusive]
            if is_exclusive and bound in result:
                result[exclusive] = result.pop(bound)


def _is_not_null(value: Any) -> bool:
    return value is not None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_SCHEMA_PATTERN_CHARS


def _schemas_by_pattern(value: Any, level: int) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return _schemas_by_name({name: item for name, item in value.items() if _is_pattern(str(name))}, level)
    return None


_INNER: dict[str, Callable[[Any, int], Any]] = {
    **dict.fromkeys(_ONE, _one_schema),
    **dict.fromkeys(_MANY, _several_schemas),
    **dict.fromkeys(NAMED, _schemas_by_name),
    "patternProperties": _schemas_by_pattern,
    "enum": _distinct,
}
"""Converters of the values of keywords, with the level of the value. They return None for an invalid value."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_anchor(value: Any) -> bool:
    return isinstance(value, str) and _ANCHOR.fullmatch(value) is not None


_ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_WELL_FORMED: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "$ref", "$comment", "$dynamicRef"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _is_anchor),
    "$id": lambda value: _is_text(value) and "#" not in value,
    "pattern": _is_pattern,
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda value: isinstance(value, int | float)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("default", "const"), lambda value: True),
    "examples": lambda value: isinstance(value, list),
    "$schema": _is_text,
    "$vocabulary": lambda _: False,
    "dependentRequired": lambda value: isinstance(value, Mapping) and all(map(_is_list_of_names, value.values())),
}
"""Tests of the values of keywords. A keyword with an invalid value is removed."""
