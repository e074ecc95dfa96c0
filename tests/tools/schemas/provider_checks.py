"""Rules of providers for tools, from their documentation, checked without the tables of agentkit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator

ROOT = ("anyOf", "oneOf", "allOf", "enum", "not", "$ref")


def words(text: str) -> set[str]:
    return set(text.split())


def parts(schema: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema inside of a schema, and itself."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        for name, item in (schema.get(key) or {}).items():
            yield from parts(item, f"{path}/{key}/{name}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, item in enumerate(schema.get(key) or ()):
            yield from parts(item, f"{path}/{key}/{number}")
    for key in ("items", "additionalProperties"):
        yield from parts(schema.get(key), f"{path}/{key}")


def openai_faults(entry: Mapping[str, Any]) -> Iterator[str]:
    function = entry["function"]
    schema = function["parameters"]
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"]):
        yield f"name {function['name']}"
    if len(function["description"]) > 1_024:
        yield "description"
    if schema.get("type") != "object" or "properties" not in schema or any(key in schema for key in ROOT):
        yield "root"
    for path, one in parts(schema):
        kind = one.get("type")
        if kind == "array" and "items" not in one and "prefixItems" not in one:
            yield f"{path} has no items"
    if function.get("strict"):
        yield from strict_faults(schema)


def strict_faults(root: Mapping[str, Any]) -> Iterator[str]:
    known = words(
        "type properties required additionalProperties items enum const anyOf $ref $defs description"
        " pattern format multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minItems"
        " maxItems title"
    )
    used = set(re.findall(r"#/\$defs/([^\"]+)\"", str(root).replace("'", '"')))
    for path, one in parts(root):
        if unknown := one.keys() - known:
            yield f"{path} uses {sorted(unknown)}"
        if "$ref" in one:
            if one.keys() != {"$ref"}:
                yield f"{path} has a reference that does not stand alone"
            if not one["$ref"].startswith("#/$defs/") or one["$ref"][8:] not in root.get("$defs", {}):
                yield f"{path} refers to {one['$ref']}"
            continue
        if "type" not in one and "anyOf" not in one:
            yield f"{path} has no type"
        kinds = one["type"] if isinstance(one.get("type"), list | tuple) else [one.get("type")]
        if "object" in kinds:
            if one.get("additionalProperties") is not False:
                yield f"{path} is open"
            if sorted(one.get("required", ())) != sorted(one.get("properties", {})):
                yield f"{path} does not require all"
        if "array" in kinds and not isinstance(one.get("items"), Mapping):
            yield f"{path} has no items"
        if "pattern" in one and re.search(r"\(\?[=!<]", one["pattern"]):
            yield f"{path} looks around"
    for name in set(root.get("$defs", {})) - used:
        yield f"{name} is not used"


def anthropic_faults(entry: Mapping[str, Any]) -> Iterator[str]:
    schema = entry["input_schema"]
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", entry["name"]):
        yield "name"
    if schema.get("type") != "object" or any(key in schema for key in ("anyOf", "oneOf", "allOf", "$ref")):
        yield "root"
    Draft202012Validator.check_schema(_plain(schema))
    for path, one in parts(schema):
        for name in one.get("properties", {}):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
                yield f"{path} has a property {name!r}"
        if set(one.get("required", ())) - set(one.get("properties", {})) and entry.get("strict"):
            yield f"{path} requires what is not there"
        if entry.get("strict"):
            unknown = one.keys() - words(
                "type properties required additionalProperties items enum const anyOf allOf $ref"
                " $defs description pattern format minItems title default"
            )
            if unknown:
                yield f"{path} uses {sorted(unknown)}"
            if one.get("type") == "object" and one.get("additionalProperties") is not False:
                yield f"{path} is open"
            if one.get("minItems", 0) not in (0, 1):
                yield f"{path} has minItems"


def gemini_faults(entry: Mapping[str, Any]) -> Iterator[str]:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", entry["name"]):
        yield "name"
    if entry.keys() - {"name", "description", "parameters"}:
        yield "fields"
    known = words(
        "type format title description nullable enum maxItems minItems properties required"
        " minProperties maxProperties minLength maxLength pattern example anyOf propertyOrdering"
        " default items minimum maximum"
    )
    for path, one in parts(entry.get("parameters")):
        if unknown := one.keys() - known:
            yield f"{path} uses {sorted(unknown)}"
        kind = one.get("type")
        if "anyOf" not in one and kind not in ("string", "number", "integer", "boolean", "array", "object"):
            yield f"{path} has the type {kind}"
        if "anyOf" in one and one.keys() - {"anyOf", "description", "nullable"}:
            yield f"{path} has more than alternatives"
        if one.get("properties") == {}:
            yield f"{path} has no properties"
        if kind == "array" and not isinstance(one.get("items"), Mapping):
            yield f"{path} has no items"
        if "enum" in one and (kind != "string" or not all(isinstance(v, str) and v for v in one["enum"])):
            yield f"{path} lists what is no text"
        formats = {"string": ("enum", "date-time"), "number": ("float", "double"), "integer": ("int32", "int64")}
        if "format" in one and one["format"] not in formats.get(kind or "", ()):
            yield f"{path} has the format {one['format']}"
        for name in one.get("properties", {}):
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", name):
                yield f"{path} has a property {name!r}"
        if set(one.get("required", ())) - set(one.get("properties", {})):
            yield f"{path} requires what is not there"
        if ("properties" in one or "required" in one) and kind != "object":
            yield f"{path} has properties and is no object"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
