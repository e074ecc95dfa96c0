"""Every keyword of JSON Schema is checked, and every problem has its place."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest

from agentkit import ToolCall
from agentkit.tools import Tool, ToolArgumentError, ToolContext


async def echo(**arguments: Any) -> Any:
    return arguments


SCHEMA = {
    "properties": {
        "day": {"type": "string", "format": "date"},
        "what": {"not": {"enum": ["nothing"]}},
        "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "names": {"type": "array", "contains": {"const": "a"}},
        "odd": {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
        "slow": {"type": "string", "pattern": "^(a+)+$"},
        "pair": {"prefixItems": [{"type": "string"}], "unevaluatedItems": False},
        "small": {"propertyNames": {"maxLength": 1}, "maxProperties": 2},
    },
    "dependentRequired": {"day": ["what"]},
}
WRONG = {
    "day": "tomorrow",
    "what": "nothing",
    "one": 1,
    "names": ["b"],
    "odd": {"x1": "y"},
    "pair": ["a", 1],
    "small": {"ab": 1},
}


def paths(made: Tool, arguments: Any) -> set[str]:
    with pytest.raises(ToolArgumentError) as caught:
        made.validate(json.dumps(arguments))
    return {problem.path for problem in caught.value.problems}


async def test_every_keyword_is_checked_and_every_problem_has_its_place() -> None:
    made = Tool.from_json_schema("t", "", SCHEMA, echo)
    assert paths(made, WRONG) == {"what", "one", "names", "odd.x1", "pair", "small.ab"}
    right = {"day": "any day", "what": "it", "one": 1.5, "names": ["a"], "odd": {"x1": 1, "y": "z"}, "slow": "aa"}
    result = await made.call(ToolCall("c", "t", json.dumps(right)), ToolContext(None))
    assert result.value == right
    assert paths(made, {"day": "2026-11-22"}) == {"what"}


def test_the_expected_and_the_actual_value_are_named() -> None:
    pet = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    schema = {
        "properties": {
            "id": {"type": ["integer", "null"]},
            "pet": {"anyOf": [{"type": "null"}, pet]},
            "n": {"const": 3},
        }
    }
    made = Tool.from_json_schema("t", "", schema, echo)
    with pytest.raises(ToolArgumentError) as caught:
        made.validate('{"id": "x", "pet": {"age": "old"}, "n": 4, "more": []}')
    assert sorted((problem.path, problem.got) for problem in caught.value.problems) == [
        ("id", '"x"'),
        ("more", "[]"),
        ("n", "4"),
        ("pet.age", '"old"'),
    ]


def test_patterns_end_within_a_short_time() -> None:
    made = Tool.from_json_schema("t", "", SCHEMA, echo)
    start = process_time()
    assert paths(made, {"slow": "a" * 5_000 + "!"}) == {"slow"}
    long = Tool.from_json_schema("t", "", {"properties": {"a": {"type": "string", "pattern": "[" * 40_000}}}, echo)
    assert long.validate('{"a": "x"}') == {"a": "x"}
    assert process_time() - start < 2
