"""JSON Schemas with contradictions: one rule each, and the schema for the model accepts the same values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agentkit.tools import Tool, ToolArgumentError


async def echo(**arguments: Any) -> Any:
    return arguments


def made(schema: Any, **more: Any) -> Tool:
    parameters = {"type": "object", "properties": {"v": schema}, **more}
    return Tool.from_json_schema("echo", "Say it again.", parameters, echo)


def accepts(one: Tool, value: Any) -> bool:
    """Return True if the tool accepts a value, and check that its schema agrees."""
    sent = {"v": value}
    try:
        assert one.validate(json.dumps(sent)) == sent
    except ToolArgumentError:
        assert not Draft202012Validator(json.loads(one.spec.json)["parameters"]).is_valid(sent)
        return False
    assert Draft202012Validator(json.loads(one.spec.json)["parameters"]).is_valid(sent)
    return True


def test_an_enum_and_its_type_are_combined() -> None:
    cases: list[tuple[Any, Any, list[Any], list[Any]]] = [
        ({"type": "integer", "enum": ["1", "2"]}, {"type": "string", "enum": ["1", "2"]}, ["1"], [1]),
        ({"type": "string", "enum": [1, 2.5]}, {"type": ["integer", "number"], "enum": [1, 2.5]}, [1, 2.5], ["1"]),
        (
            {"type": "boolean", "enum": ["true", "false"]},
            {"type": "string", "enum": ["true", "false"]},
            ["true"],
            [True],
        ),
        (
            {"type": "string", "enum": ["a", None]},
            {"type": ["string", "null"], "enum": ["a", None]},
            ["a", None],
            ["b"],
        ),
        (
            {"type": ["string", "null"], "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
            ["a", None],
            ["b"],
        ),
        ({"type": "number", "enum": [1, 2]}, {"type": "number", "enum": [1, 2]}, [1, 2.0], [3]),
        ({"type": "object", "enum": ["a"]}, {"type": "string", "enum": ["a"]}, ["a"], [{}]),
        ({"type": "string", "const": 3}, {"type": "integer", "const": 3}, [3], ["3"]),
        (
            {"type": "array", "enum": ["a", "b"]},
            {"type": "array", "items": {"enum": ["a", "b"]}},
            [["a"], ["b", "a"], []],
            ["a", ["c"]],
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "enum": ["a", "b"]},
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            [["a"]],
            [[1], "a"],
        ),
        (
            {"type": "array", "enum": ["a", None]},
            {"type": ["array", "null"], "items": {"enum": ["a"]}},
            [["a"], None],
            [[None]],
        ),
        ({"type": "List<String>", "enum": ["a"]}, None, [["a"]], [["b"], "a"]),
        ({"type": "array", "enum": [["a"], ["b"]]}, None, [["a"]], [["a", "b"], "a"]),
        ({"type": "array", "items": {"enum": ["a"]}, "enum": ["a", "b"]}, None, [["a"]], [["b"]]),
    ]
    wrong: list[Any] = []
    for schema, shown, good, bad in cases:
        one = made(schema)
        if shown is not None and one.spec.parameters["properties"]["v"] != shown:
            wrong.append((schema, one.spec.parameters))
        wrong += [(schema, value) for value in good if not accepts(one, value)]
        wrong += [(schema, value) for value in bad if accepts(one, value)]
    assert wrong == []


def test_a_default_of_null_accepts_null() -> None:
    cases: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
        ({"type": "integer", "minimum": 1}, [1], [0, "1"]),
        ({"type": ["integer", "boolean"]}, [1, True], ["1"]),
        ({"type": "integer", "enum": [1]}, [1], [2]),
        ({"type": "integer", "const": 1}, [1], [2]),
        ({"type": "array", "items": {"type": "string"}}, [["a"]], [[1], "a"]),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, [{"a": "b"}], [{}]),
        ({"$ref": "#/$defs/Size"}, ["s"], ["m"]),
        ({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, [1], ["1"]),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}], "description": "D"}, [1], ["1"]),
        ({"allOf": [{"type": "integer"}, {"type": "integer", "minimum": 2}]}, [2], [1]),
    ]
    wrong: list[Any] = []
    for schema, good, bad in cases:
        for null in ({"default": None}, {"nullable": True}, {"x-nullable": True}):
            one = made({**schema, **null}, **{"$defs": {"Size": {"enum": ["s", "l"]}}})
            wrong += [(schema, null, value) for value in [None, *good] if not accepts(one, value)]
            wrong += [(schema, null, value) for value in bad if accepts(one, value)]
            assert "nullable" not in one.spec.json
    assert wrong == []


DEFINITIONS: dict[str, Any] = {
    "Size": {"enum": ["s", "l"]},
    "Code": {"type": "string", "pattern": "^[A-Z]+$"},
    "Loop": {"allOf": [{"type": "integer"}], "properties": {"loop": {"$ref": "#/$defs/Loop"}}, "minLength": 9},
}


def test_a_default_accepts_its_value_and_no_other_value() -> None:
    cases: list[tuple[dict[str, Any], Any, list[Any], list[Any]]] = [
        ({"type": "integer"}, "any", [1], ["other", 1.5, None]),
        ({"type": "integer", "minimum": 1}, 0.5, [1], [0.5, 0]),
        ({"type": "integer"}, 0.5, [1], [0.6]),
        ({"type": "boolean"}, "false", [True], ["true", 0]),
        ({"type": "string"}, 5, ["a"], [6]),
        ({"type": "string"}, False, ["a"], [True, 0]),
        ({"type": "string", "enum": ["a", "b"]}, "all", ["a"], ["c"]),
        ({"type": "string", "enum": ["a", "b"]}, 0, ["a"], [False, "0"]),
        ({"type": "string", "enum": ["a"], "pattern": "^a"}, "b", ["a"], ["b"]),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, "all", [["a"]], [["a", "b"], [1], "a"]),
        ({"type": "array", "items": {"enum": ["a"]}}, "all", [["a"]], [["all"]]),
        ({"type": "array", "enum": ["a"]}, "all", [["a"]], ["a"]),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, "no", [{"a": "b"}], [{}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [], [{"a": 1}], [{"a": "1"}, [1]]),
        ({"$ref": "#/$defs/Size", "type": "string"}, 5, ["s"], ["m", 6]),
        ({"$ref": "#/$defs/Size"}, "m", ["s"], ["n", None]),
        ({"allOf": [{"$ref": "#/$defs/Size"}], "maxLength": 1}, "m", ["s"], ["n"]),
        ({"allOf": [{"$ref": "#/$defs/Size"}], "maxLength": 1}, "medium", ["s"], ["medium"]),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "any", [1, None], ["other", 0]),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, 0, [1, None], [0]),
        ({"oneOf": [{"enum": ["a"]}, {"enum": ["b"]}]}, "all", ["a", "b"], ["c"]),
        ({"type": "string", "anyOf": [{"enum": ["a"]}, {"$ref": "#/$defs/Size"}]}, 1, ["a", "s"], [True, "c"]),
        ({"anyOf": [{"$ref": "#/$defs/Code"}, {"type": "integer"}]}, "no", ["AB", 1], ["no"]),
        ({"$ref": "#/$defs/Loop"}, "m", [], ["m", "s"]),
        ({"type": ["integer", "null"]}, "any", [1, None], ["other"]),
        ({"type": "float", "not": {"const": "any"}}, "any", [1.5], ["any"]),
    ]
    wrong: list[Any] = []
    for schema, default, good, bad in cases:
        expected = {repr(value): True for value in [*good, default]} | {repr(value): False for value in bad}
        inner = {**schema, "default": default}
        for is_listed, shown in ((False, inner), (True, {"type": "array", "items": inner})):
            one = made(shown, **{"$defs": DEFINITIONS})
            for value in [*good, *bad, default]:
                if accepts(one, [value] if is_listed else value) != expected[repr(value)]:
                    wrong.append((shown, value))
    assert wrong == []


@pytest.mark.parametrize("word", ["None", "null", "nil"])
def test_a_word_for_null_is_null_if_it_cannot_be_text(word: str) -> None:
    assert accepts(made({"type": "integer", "default": word}), None)
    assert not accepts(made({"type": "string", "default": word}), None)


def test_a_default_of_null_inside_of_other_schemas_counts_too() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string", "default": None}}}
    one = made({"type": "array", "items": inner})
    assert accepts(one, [{"a": None}])
    assert not accepts(one, [{"a": 1}])


def test_keys_stay_in_the_order_of_the_model() -> None:
    nested = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}}
    one = Tool.from_json_schema("t", "", {"properties": {"x": nested, "y": {}, "z": {}}}, echo)
    text = '{"z": 1, "y": 2, "x": {"c": 1, "q": 0, "b": 2, "a": 3}}'
    assert json.dumps(one.validate(text)) == text


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "size": {"$ref": "#/$defs/Size"},
        "pets": {"type": "array", "items": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Pet"}]}},
    },
    "required": ["name", "size", "untyped"],
}


def test_the_error_of_a_missing_parameter_has_the_expected_type_at_any_depth() -> None:
    cases: list[tuple[Any, str, str]] = [
        ({"who": {"size": "s", "untyped": 1}}, "who.name", "string"),
        ({"who": {"name": "a", "untyped": 1}}, "who.size", 'one of "s", "l"'),
        ({"who": {"name": "a", "size": "s"}}, "who.untyped", ""),
        ({"who": {"name": "a", "size": "s", "untyped": 1, "pets": [{}]}}, "who.pets[0].age", "integer or null"),
        ({}, "who", "object"),
    ]
    pet = {"type": "object", "properties": {"age": {"type": ["integer", "null"]}}, "required": ["age"]}
    definitions = {"Size": {"enum": ["s", "l"]}, "Pet": pet, "Person": PERSON}
    who = {"properties": {"who": {"$ref": "#/$defs/Person"}}, "required": ["who"], "$defs": definitions}
    one = Tool.from_json_schema("t", "", who, echo)
    for sent, path, expected in cases:
        with pytest.raises(ToolArgumentError) as caught:
            one.validate(json.dumps(sent))
        (problem,) = [problem for problem in caught.value.problems if problem.path == path]
        assert expected in problem.expected
        assert problem.got == ""
