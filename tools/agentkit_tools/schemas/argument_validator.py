"""A validator of JSON text from a JSON Schema: what it accepts comes out exactly as the model wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import ge, gt, le, lt
from typing import Any

from pydantic_core import CoreSchema, PydanticCustomError, SchemaError, SchemaValidator, core_schema

from agentkit_prompts.schemas.check import target_in
from agentkit_prompts.schemas.json_values import is_multiple
from agentkit_prompts.schemas.pattern_size import pattern_size
from agentkit_prompts.schemas.validation_steps import StepsExceeded, counted, once

__all__ = ["validator_for"]

_ANY = core_schema.any_schema()
_READ = SchemaValidator(_ANY).validate_json
_FLOAT = core_schema.float_schema(strict=True, allow_inf_nan=False)
_ABSENT = object()
_MAX_ALTERNATIVES = 1_000
_MAX_PATTERNS = 50_000
"""Characters of all patterns, see `pattern_size`: some of them take a second to compile."""
_CHARS_PER_ALTERNATIVE = 100
_MAX_COUNT = 1 << 60
_MAX_LITERAL_CHARS = 500
"""Characters of the texts of an enum that pydantic notes anew for every value that is not one of them."""
_COMBINING = ("anyOf", "oneOf", "allOf", "$ref")


def validator_for(schema: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Return what reads the arguments that a normalised object schema describes from JSON text.

    Every definition refuses a value once, however many ways lead there, and what has alternatives or is long takes
    steps: see `schemas.steps`.

    Unknown arguments are refused when the schema lists properties and does not allow others. `oneOf` is read as
    `anyOf`; `not`, `if`, `contains`, `format`, `propertyNames`, `patternProperties`, what depends on other properties
    (`dependentRequired`, `dependentSchemas`, `unevaluatedProperties`), references to other documents or to anchors,
    patterns that are not regular (look-around, back-references), and those that come after very large ones are not
    checked.
    """
    closed = "properties" in schema and not any(key in schema for key in _COMBINING)
    if closed and "additionalProperties" not in schema and "patternProperties" not in schema:
        named: dict[str, Any] = {name: {} for name in schema.get("required", ())}
        schema = {**schema, "properties": {**named, **schema["properties"]}, "additionalProperties": False}
    builder = _Builder(schema)
    built = builder.build({"type": "object", **schema})
    definitions = [definition for definition in builder.definitions.values() if definition is not None]
    if definitions:
        built = core_schema.definitions_schema(built, definitions)
    validate = SchemaValidator(built).validate_python

    def read(text: str) -> dict[str, Any]:
        value: dict[str, Any] = _READ(text)
        validate(value)
        return value  # as it was written, the order of the keys included

    return read


class _Builder:
    """Translates one document; references are followed once each, so recursion ends."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.definitions: dict[str, CoreSchema | None] = {}
        self.patterns_left = _MAX_PATTERNS

    def build(self, schema: Any) -> CoreSchema:
        if schema is False:
            return core_schema.no_info_plain_validator_function(_refuse)
        if not isinstance(schema, Mapping):
            return _ANY
        steps: list[CoreSchema] = []
        base = self._base(schema)
        if base is not _ANY:
            steps.append(base)
        if isinstance(reference := schema.get("$ref"), str):
            steps.append(self._reference(reference))
        for key in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(key), list) and options:
                steps.append(_union([self.build(option) for option in options]))
        if isinstance(parts := schema.get("allOf"), list):
            steps.extend(self.build(part) for part in parts)
        if not steps:
            return _ANY
        return steps[0] if len(steps) == 1 else _all(steps)

    def _base(self, schema: Mapping[str, Any]) -> CoreSchema:
        if "const" in schema:
            return _enum([schema["const"]])
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return _enum(schema["enum"])
        kind = schema.get("type")
        if kind is None and ("properties" in schema or "required" in schema):
            kind = "object"
        kinds = kind if isinstance(kind, list) else [kind]
        built = [_KINDS[one](self, schema) for one in kinds if one in _KINDS]
        return _union(built) if built else _ANY

    def _reference(self, reference: str) -> CoreSchema:
        if reference not in self.definitions:
            target = target_in(self.document, reference)
            if target is None or self._is_endless(reference):
                return _ANY
            self.definitions[reference] = None  # under way: what refers to it meanwhile needs no second look
            built = self.build(target)
            self.definitions[reference] = once(built, reference, keep=True)
        return core_schema.definition_reference_schema(reference)

    def _is_endless(self, reference: str) -> bool:
        """Whether a reference leads back to itself without going into the value: it can judge none."""
        seen: set[str] = set()
        waiting = [target_in(self.document, reference)]
        while waiting:
            schema = waiting.pop()
            if len(seen) > _MAX_ALTERNATIVES:
                raise StepsExceeded(f"the schema has over {_MAX_ALTERNATIVES:,} references to judge one value by")
            if not isinstance(schema, Mapping):
                continue
            for key in ("anyOf", "oneOf", "allOf"):
                if isinstance(options := schema.get(key), list):
                    waiting.extend(options)
            if isinstance(found := schema.get("$ref"), str):
                if found == reference:
                    return True
                if found not in seen:
                    seen.add(found)
                    waiting.append(target_in(self.document, found))
        return False

    def _object(self, schema: Mapping[str, Any]) -> CoreSchema:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = set(schema.get("required", ()))
        fields = {
            name: core_schema.typed_dict_field(self.build(item), required=name in required)
            for name, item in properties.items()
        }
        extra = True if schema.get("patternProperties") else schema.get("additionalProperties", True)
        others = self.build(extra)
        fields |= {name: core_schema.typed_dict_field(others, required=True) for name in required - set(fields)}
        if extra is False:
            built = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
        else:
            built = core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=others)
        return self._sized(built, schema, "Properties", len(required))

    def _array(self, schema: Mapping[str, Any]) -> CoreSchema:
        heads, items = schema.get("prefixItems"), schema.get("items", True)
        built: CoreSchema
        if isinstance(heads, list) and heads:
            parts = [core_schema.with_default_schema(self.build(head), default=_ABSENT) for head in heads]
            more = [] if items is False else [self.build(items)]
            built = core_schema.tuple_schema([*parts, *more], variadic_item_index=len(parts) if more else None)
            built = core_schema.no_info_after_validator_function(_present, built)
        else:
            built = core_schema.list_schema(self.build(items), strict=True)
        if schema.get("uniqueItems") is True:
            built = core_schema.no_info_after_validator_function(_unique, built)
        return self._sized(built, schema, "Items")

    def _sized(self, built: CoreSchema, schema: Mapping[str, Any], noun: str, required: int = 0) -> CoreSchema:
        least, most = _count(schema.get(f"min{noun}")), _count(schema.get(f"max{noun}"))
        built = counted(built, required=required)
        if least is None and most is None:
            return built

        def check(value: Any) -> Any:
            if (least is not None and len(value) < least) or (most is not None and len(value) > most):
                bounds = f"at least {least or 0}" + ("" if most is None else f" and at most {most}")
                raise PydanticCustomError("size", "expected {bounds} {noun}", {"bounds": bounds, "noun": noun.lower()})
            return value

        return core_schema.no_info_after_validator_function(check, built)

    def _string(self, schema: Mapping[str, Any]) -> CoreSchema:
        least, most = _count(schema.get("minLength")), _count(schema.get("maxLength"))
        pattern = schema.get("pattern")
        size = pattern_size(pattern) if isinstance(pattern, str) else 0
        if size and size <= self.patterns_left:
            self.patterns_left -= size
            with suppress(SchemaError):  # not a regular expression in the sense of one that always ends
                built = core_schema.str_schema(min_length=least, max_length=most, pattern=pattern, strict=True)
                SchemaValidator(built)
                return counted(built, 1 + size // _CHARS_PER_ALTERNATIVE)
        return core_schema.str_schema(min_length=least, max_length=most, strict=True)


_KINDS: dict[str, Callable[[_Builder, Mapping[str, Any]], CoreSchema]] = {
    "object": _Builder._object,
    "array": _Builder._array,
    "string": _Builder._string,
    "integer": lambda _, schema: _bounded(_INTEGER, schema),
    "number": lambda _, schema: _bounded(_NUMBER, schema),
    "boolean": lambda _, __: core_schema.bool_schema(strict=True),
    "null": lambda _, __: core_schema.none_schema(),
}


def _all(steps: Sequence[CoreSchema]) -> CoreSchema:
    """Hold the same value against every step."""
    same: list[CoreSchema] = [core_schema.no_info_wrap_validator_function(_same, step) for step in steps]
    return counted(core_schema.chain_schema(same), len(steps))


def _same(value: Any, handler: Callable[[Any], Any]) -> Any:
    handler(value)
    return value


def _union(options: Sequence[CoreSchema], message: str | None = None) -> CoreSchema:
    if len(options) == 1:
        return options[0]
    if message is None:
        return counted(core_schema.union_schema(list(options), mode="left_to_right"), len(options))
    return core_schema.union_schema(
        list(options), mode="left_to_right", custom_error_type="type", custom_error_message=message
    )


def _whole(value: float) -> float:
    if not value.is_integer():
        raise PydanticCustomError("whole", "expected an integer")
    return value


# 5.0 is an integer to JSON Schema, and stays 5.0. `multiple_of` would take 1e-128 for one, too.
_WHOLE = core_schema.no_info_after_validator_function(_whole, _FLOAT)
_INTEGER: CoreSchema = _union([core_schema.int_schema(strict=True), _WHOLE], "expected an integer")
_NUMBER: CoreSchema = _union([core_schema.int_schema(strict=True), _FLOAT], "expected a number")


def _bounded(built: CoreSchema, schema: Mapping[str, Any]) -> CoreSchema:
    """Add the limits of a number."""
    rules: list[tuple[str, Callable[[float], bool]]] = []
    for key, exclusive, sign, least in (
        ("minimum", "exclusiveMinimum", ">", True),
        ("maximum", "exclusiveMaximum", "<", False),
    ):
        bound, strict = _number_or_none(schema.get(key)), schema.get(exclusive)
        if bound is not None and strict is not True:
            rules.append((f"{sign}= {bound}", partial(le if least else ge, bound)))
        limit = bound if strict is True else _number_or_none(strict)
        if limit is not None:
            rules.append((f"{sign} {limit}", partial(lt if least else gt, limit)))
    step = _number_or_none(schema.get("multipleOf"))
    if step:
        rules.append((f"a multiple of {step}", lambda value: is_multiple(value, step)))
    if not rules:
        return built

    def check(value: Any) -> Any:
        broken = [text for text, holds in rules if not holds(value)]
        if broken:
            raise PydanticCustomError("bounds", "expected a number {rules}", {"rules": " and ".join(broken)})
        return value

    return core_schema.no_info_after_validator_function(check, built)


def _enum(values: Sequence[Any]) -> CoreSchema:
    if all(type(value) is str for value in values) and sum(map(len, values)) <= _MAX_LITERAL_CHARS:
        return core_schema.literal_schema(list(values))
    allowed = {_text(value) for value in values}
    shown = ", ".join(_text(value) for value in values[:20]).encode("utf-8", "backslashreplace").decode()

    def check(value: Any) -> Any:
        if _text(value) not in allowed:
            raise PydanticCustomError("enum", "expected one of {values}", {"values": shown})
        return value

    return core_schema.no_info_plain_validator_function(check)


def _text(value: Any) -> str:
    """One text per JSON value: 1 and 1.0 are the same number, 1 and true are not the same value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _unique(value: list[Any]) -> list[Any]:
    if len({_text(item) for item in value}) < len(value):
        raise PydanticCustomError("unique", "expected items that all differ")
    return value


def _refuse(value: Any) -> Any:
    raise PydanticCustomError("nothing", "nothing is accepted here")


def _present(values: tuple[Any, ...]) -> list[Any]:
    """An array may be shorter than its schema has items, unless `minItems` forbids it."""
    return [value for value in values if value is not _ABSENT]


def _count(value: Any) -> int | None:
    return min(value, _MAX_COUNT) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number_or_none(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
