"""Values and schemas that are expensive for the validator of pydantic: refused, or checked in seconds."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest

from agentkit_prompts.schemas.json_validator import JsonValidator

MAX_SECONDS = 2.5
LEVELS = 40
PATTERN = f"a(?:{'|'.join([f'{number:04}' for number in range(60)])}|a)*$"


def chain(base: str, identifier: str) -> dict[str, Any]:
    """Return definitions, each with two absolute references to the next definition."""
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"{base}#/$defs/d{level + 1}"}] * 2} for level in range(LEVELS)
    }
    definitions[f"d{LEVELS}"] = {"type": "string"}
    return {"$id": identifier, "$ref": "#/$defs/d0", "$defs": definitions}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def nested(levels: int, value: Any = "text") -> Any:
    for _ in range(levels):
        value = {"c": value}
    return value


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "references by the full id": (chain("http://h/a", "http://h/a"), 5),
    "references by the last part of the id": (chain("a", "http://h/a"), 5),
    "references by an id with a fragment": (chain("http://h/a", "http://h/a#"), 5),
    "large integers that must differ": ({"uniqueItems": True}, [10**300 + number for number in range(8_000)]),
    "large integers in lists that must differ": ({"uniqueItems": True}, [[2**64 + number] for number in range(8_000)]),
    "errors that contain a large schema": (
        {"items": {"not": {"type": "object", "enum": [{}], "description": "x" * 50_000}}},
        [{}] * 20_000,
    ),
    "texts that each reference checks again": (
        {**ref("list"), "$defs": {"list": {"pattern": PATTERN, "allOf": [{"items": ref("list")}] * 80}}},
        [["a" * 5_000] * 1_000],
    ),
}


def test_costs_are_limited() -> None:
    failures = []
    for name, (schema, value) in CASES.items():
        start = process_time()
        problems = JsonValidator(schema).problems(value)
        seconds = process_time() - start
        if not problems or seconds > MAX_SECONDS:
            failures.append(f"{name}: {len(problems)} problems after {seconds:.1f} s")
    assert failures == [], "\n".join(failures)


TWICE: dict[str, dict[str, Any]] = {
    "anyOf": {"anyOf": [{"required": ["no"], "properties": {"c": ref("t")}}, {"properties": {"c": ref("t")}}]},
    "oneOf": {
        "oneOf": [{"properties": {"c": ref("t"), "no": False}}, {"required": ["no"], "properties": {"c": ref("t")}}]
    },
    "allOf": {"allOf": [{"properties": {"c": ref("t")}}] * 2},
    "not": {"not": {"not": {"properties": {"c": ref("t")}}}, "properties": {"c": ref("t")}},
    "then": {"if": {"properties": {"c": ref("t")}}, "then": {"properties": {"c": ref("t")}}},
    "else": {"if": {"required": ["no"], "properties": {"c": ref("t")}}, "else": {"properties": {"c": ref("t")}}},
    "patternProperties": {"patternProperties": {"c": ref("t"), "^c": ref("t")}},
    "additionalProperties": {"allOf": [{"additionalProperties": ref("t")}] * 2},
    "dependentSchemas": {"dependentSchemas": {"c": {"properties": {"c": ref("t")}}}, "properties": {"c": ref("t")}},
}
"""Schemas with two references to themselves. The validator caches the result for an object and such a schema."""


@pytest.mark.parametrize("keyword", TWICE)
def test_schemas_with_two_references_to_themselves_are_checked_once(keyword: str) -> None:
    validator = JsonValidator({**ref("t"), "$defs": {"t": TWICE[keyword]}})
    start = process_time()
    assert validator.problems(nested(LEVELS, {})) == []
    assert process_time() - start < MAX_SECONDS
