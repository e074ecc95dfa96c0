"""Agreement of the type, the listed values and the default of a schema; null as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentkit_prompts.schemas.json_values import is_json, kind_of_json
from agentkit_prompts.schemas.keywords import iter_schemas, rewritten
from agentkit_prompts.schemas.subschemas import is_null_default, takes_null

WRAPPED = ("$ref", "anyOf", "oneOf", "allOf")
"""Keywords that can reject null although the type accepts null."""
_ANNOTATIONS = frozenset(
    ("description", "title", "default", "examples", "example", "deprecated", "readOnly", "writeOnly")
)


def without_contradictions(result: dict[str, Any], *, is_nullable: bool, is_root: bool) -> dict[str, Any]:
    """Return a schema whose type, enum and default agree, with its type first."""
    _settle_enum(result)
    # The arguments as a whole are an object, never null.
    if not is_root and (is_nullable or _is_null_default(result)):
        result = _or_null(result)
    result = _with_default(result, is_root=is_root)
    if "type" not in result:
        return result
    return {"type": result.pop("type"), **result}


def with_null_defaults(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which each property accepts null if its default is null, as for `project: str = None`."""
    if not any(_refuses_default(node) for node in iter_schemas(parameters)):
        return parameters
    result: dict[str, Any] = rewritten(parameters, lambda node: _or_null(node) if _refuses_default(node) else node)
    return result


def _refuses_default(schema: Mapping[str, Any]) -> bool:
    return is_null_default(schema) and not takes_null(schema)


def _settle_enum(result: dict[str, Any]) -> None:
    """Change the type so that exactly the listed values are accepted."""
    if "type" not in result:
        return
    kinds = kinds_of(result["type"])
    if "const" in result:
        _settle_type(result, kinds, [result["const"]])
    elif "enum" in result:
        _settle_listed(result, kinds)


def _settle_listed(result: dict[str, Any], kinds: list[str]) -> None:
    if "null" in kinds and len(kinds) > 1 and None not in result["enum"]:
        # The author of a list of types with null intended to accept null.
        result["enum"] = [*result["enum"], None]
    if "array" in kinds and _lists_items(result["enum"]):
        _move_enum_to_items(result, kinds)
    else:
        _settle_type(result, kinds, result["enum"])


def _settle_type(result: dict[str, Any], kinds: list[str], values: Sequence[Any]) -> None:
    """Set the type to the types of the listed values, if a value does not have the declared type."""
    missing_kinds = [kind_of_json(value) for value in values if not _has_kind(value, kinds)]
    if missing_kinds:
        result["type"] = _one_or_many([*[kind for kind in kinds if _occurs(kind, values)], *missing_kinds])


def _occurs(kind: str, values: Sequence[Any]) -> bool:
    return any(is_json(value, kind) for value in values)


def _lists_items(values: Sequence[Any]) -> bool:
    """True if no listed value of an array is an array: then they are the values of its items."""
    return any(value is not None for value in values) and not any(isinstance(value, list | tuple) for value in values)


def _move_enum_to_items(result: dict[str, Any], kinds: list[str]) -> None:
    values = result.pop("enum")
    inner = [value for value in values if value is not None]
    if isinstance(result.get("default"), list | tuple):
        # A default of the array can contain items that the enum does not list.
        inner += [value for value in result["default"] if not is_one_of(value, inner)]
    items = result.get("items")
    if not isinstance(items, Mapping):
        items = {}
    if "enum" not in items:
        result["items"] = {**items, "enum": inner}
        _settle_enum(result["items"])
    if len(inner) < len(values):
        result["type"] = _one_or_many([*kinds, "null"])


def _has_kind(value: Any, kinds: Sequence[str]) -> bool:
    return any(is_json(value, kind) for kind in kinds)


def _is_null_default(result: Mapping[str, Any]) -> bool:
    default = result.get("default", 0)
    if isinstance(default, str) and default.lower() in _NULL_WORDS:
        return "type" in result and "string" not in kinds_of(result["type"]) and "enum" not in result
    return default is None


def _or_null(result: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also accepts null."""
    if _is_null_default(result):
        result["default"] = None
    if any(keyword in result for keyword in WRAPPED):
        return _with_null_option(result)
    if "const" in result:
        result["enum"] = [result.pop("const")]
    if "enum" in result and None not in result["enum"]:
        result["enum"] = [*result["enum"], None]
    if "type" in result:
        result["type"] = _one_or_many([*kinds_of(result["type"]), "null"])
    return result


def _with_null_option(schema: dict[str, Any]) -> dict[str, Any]:
    null = {"type": "null"}
    if null in schema.get("anyOf", schema.get("oneOf", ())):
        return schema
    outside = {key: value for key, value in schema.items() if key in _ANNOTATIONS or key.startswith("x-")}
    inside = {key: value for key, value in schema.items() if key not in outside}
    if inside.keys() == {"anyOf"}:
        return {**outside, "anyOf": [*inside["anyOf"], null]}
    return {**outside, "anyOf": [inside, null]}


def _with_default(result: dict[str, Any], *, is_root: bool) -> dict[str, Any]:
    """Return a schema that accepts its own default, although `enum` or `type` excludes it.

    A model reads the default and sends it. Other keywords still apply to the default.
    """
    if "default" not in result:
        return result
    default = result["default"]
    is_of_type = "type" not in result or _has_kind(default, kinds_of(result["type"]))
    if "enum" in result:
        if not is_one_of(default, result["enum"]):
            result["enum"] = [*result["enum"], default]
        if not is_of_type:
            # Only the listed values have the additional type.
            result["type"] = _one_or_many([*kinds_of(result["type"]), kind_of_json(default)])
        return result
    if is_of_type:
        return result
    if is_root:
        # The arguments as a whole are an object.
        del result["default"]
        return result
    return _with_default_option(result)


def _with_default_option(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the union of a schema and its default, which has another type."""
    default = schema["default"]
    kind = kind_of_json(default)
    other = KEYWORDS_OF_KIND.keys() - {kind, "number" if kind == "integer" else kind}
    inner = {keyword for name in other for keyword in KEYWORDS_OF_KIND[name]}
    option = {key: value for key, value in schema.items() if key == "type" or key in inner}
    result = {key: value for key, value in schema.items() if key not in option}
    options = [option, {"type": kind, "enum": [default]}]
    if "anyOf" in result:
        result["allOf"] = [*result.get("allOf", ()), {"anyOf": options}]
        return result
    return {"anyOf": options, **result}


def is_one_of(value: Any, values: Sequence[Any]) -> bool:
    """True if a value is listed; `True` and 1 are different in JSON."""
    return any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in values)


KEYWORDS_OF_KIND: dict[str, tuple[str, ...]] = {
    "array": ("items", "prefixItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems"),
    "object": (
        *("properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties"),
        *("maxProperties", "dependentRequired", "dependentSchemas"),
    ),
    "string": ("minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType", "contentSchema"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that apply only to values of one type."""


def kinds_of(kind: Any) -> list[str]:
    """Return the types of a value of the keyword `type`."""
    if isinstance(kind, list):
        return kind
    return [kind]


def _one_or_many(kinds: list[str]) -> str | list[str]:
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) == 1:
        return distinct[0]
    return distinct


_NULL_WORDS = ("none", "null", "nil", "undefined")
