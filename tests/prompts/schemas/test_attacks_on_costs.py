"""Values and schemas that would cost the validator of the library much: each is refused, or is checked in seconds."""

from __future__ import annotations

from time import process_time
from typing import Any

from agentkit_prompts.schemas.json_validator import JsonValidator

MAX_SECONDS = 2.5
LEVELS = 40


def chain(base: str, identifier: str) -> dict[str, Any]:
    """Return definitions that each try the next one twice, by a full address."""
    definitions: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"{base}#/$defs/d{level + 1}"}] * 2} for level in range(LEVELS)
    }
    definitions[f"d{LEVELS}"] = {"type": "string"}
    return {"$id": identifier, "$ref": "#/$defs/d0", "$defs": definitions}


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
