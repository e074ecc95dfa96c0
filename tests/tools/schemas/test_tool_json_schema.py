"""Tools with foreign schemas: values, names, strict schemas, repair and exports."""

from __future__ import annotations

import asyncio
import json
import re
from time import process_time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from agentkit import ToolCall
from agentkit.tools import (
    Tool,
    ToolArgumentError,
    ToolContext,
    ToolDefinitionError,
    Toolset,
    tool,
)
from agentkit.tools.types import wire_name
from tests.paths import CONFORMANCE

CASES = CONFORMANCE


async def echo(**arguments: Any) -> Any:
    return arguments


def made(schema: Any, **more: Any) -> Tool:
    parameters = {"type": "object", "properties": {"v": schema}, **more}
    return Tool.from_json_schema("echo", "Say it again.", parameters, echo)


def accepts(schema: Any, value: Any, **more: Any) -> bool:
    """Return True if the tool accepts the value, which must then arrive unchanged."""
    text = json.dumps({"v": value})
    try:
        arguments = made(schema, **more).validate(text)
    except ToolArgumentError:
        return False
    assert json.dumps(arguments, sort_keys=True) == json.dumps({"v": value}, sort_keys=True)
    return True


TREE = {
    "Page[Item]": {"type": "integer"},
    "Anchored": {"$anchor": "anchored", "type": "integer"},
    "Tree": {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        "required": ["n"],
    },
}


def test_values_are_checked_according_to_json_schema_and_arrive_unchanged() -> None:
    cases: list[tuple[Any, list[Any], list[Any]]] = [
        ({"type": "integer"}, [1, -5, 5.0, 10**30], [1.5, True, "1", None]),
        ({"type": "integer", "minimum": 1, "exclusiveMaximum": 3}, [1, 2], [0, 3]),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [1.5], [1]),
        ({"type": "number", "multipleOf": 0.1}, [0.3, 1], [0.35]),
        ({"type": "integer", "multipleOf": 2}, [10**20], [10**20 + 1]),
        ({"type": "number"}, [1, 1.5], ["1", False]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc", 1]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b"]),
        ({"type": "string", "pattern": "^(?!x)[a-z]+$"}, ["around"], [1, "xy"]),
        ({"type": "string", "pattern": "["}, ["anything"], [1]),
        ({"type": "boolean"}, [True, False], [1, "true"]),
        ({"type": "null"}, [None], [0, ""]),
        ({"type": ["string", "null"]}, ["a", None], [1]),
        ({"type": "string", "nullable": True}, ["a", None], [1]),
        ({"enum": ["a", "b"]}, ["a"], ["c", 1]),
        ({"enum": [1, 2.0, "x", None, {"k": [1]}]}, [1, 2, "x", None, {"k": [1]}], [True, "1", {"k": [2]}]),
        ({"const": {"a": 1}}, [{"a": 1}], [{"a": 2}, 1]),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            [[1], [1, 2]],
            [[], [1, 2, 3], ["a"]],
        ),
        ({"type": "array", "uniqueItems": True}, [[1, True, "1"]], [[1, 1.0]]),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
            [[1, "a"], [1, "a", None], [1], []],
            [["a", 1], [1, None]],
        ),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, [[1]], [[1, 2]]),
        ({"type": "array", "items": [{"type": "integer"}]}, [[1]], [["a"]]),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]},
            [{"a": 1, "b": 2, "c": 3}],
            [{"a": 1}, {"a": "x", "b": 1}],
        ),
        (
            {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
            [{"a": 1}, {}, [], "x"],  # no type: only objects are compared with it
            [{"b": 1}, {"a": "x"}],
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "1"}]),
        ({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False}, [{"x1": 1}], [5]),
        ({"type": "object", "minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [1.5, []]),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}, [{"a": 1}], [{"c": 1}]),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]}, [{"a": 1}], [{"a": "x"}, {}]),
        ({"$ref": "#/$defs/Tree"}, [{"n": 1, "kids": [{"n": 2, "kids": []}]}], [{"n": 1, "kids": [{"kids": []}]}]),
        (False, [], [1, None]),
        (True, [1, None, [1, {"a": "b"}]], []),
        ({}, [1, None, [1, {"a": "b"}]], []),
        ({"not": {"pattern": "^a"}}, ["b"], ["ab", 1]),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": False},
            [["a"], []],
            [["a", 1], [1]],
        ),
        ({"allOf": [{"type": "array", "prefixItems": [True]}], "unevaluatedItems": False}, [["a"]], [["a", 1], "x"]),
        ({"type": "array", "maxItems": 2.0}, [[1, 2]], [[1, 2, 3]]),
        ({"items": {"type": "integer"}}, [[1], "x"], [["x"]]),
        ({"$ref": "#/$defs/Page%5BItem%5D"}, [1], ["x"]),
        ({"$ref": "#anchored", "maximum": 3}, [1], ["x", 4]),
        ({"type": "integer", "allOf": [{"minimum": 0}]}, [0], [-1]),
        ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, [{"a": 1, "b": 2}, {}], [{"a": 1}, {"c": 1}]),
        ({"$ref": "#/properties/v"}, [1], []),
        ({"anyOf": []}, [1], []),
        ({"enum": []}, [1], []),
    ]
    wrong = []
    for schema, good, bad in cases:
        wrong += [(schema, value) for value in good if not accepts(schema, value, **{"$defs": TREE})]
        wrong += [(schema, value) for value in bad if accepts(schema, value, **{"$defs": TREE})]
    assert wrong == []


SIMPLE = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": st.integers(-5, 5), "maximum": st.integers(-5, 5)},
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"minLength": st.integers(0, 3), "maxLength": st.integers(0, 5)}
    ),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {}, {"enum": ["a", 1, None, True]}, {"const": 1}]),
)
SCHEMAS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"maxItems": st.integers(0, 3)}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner)},
            optional={
                "required": st.lists(st.sampled_from("abc"), unique=True),
                "additionalProperties": st.booleans() | inner,
            },
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-6, 6)
    | st.floats(-6, 6, allow_nan=False)
    | st.sampled_from(["", "a", "abcdef"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("value", [1e-128, -5e-324, 1 + 2**-52, 2.5])
def test_a_number_next_to_an_integer_is_not_an_integer(value: float) -> None:
    assert not accepts({"type": "integer"}, value)
    assert accepts({"type": "number"}, value)


@given(SCHEMAS, VALUES)
def test_a_tool_accepts_the_values_that_a_json_schema_validator_accepts(schema: Any, value: Any) -> None:
    assert accepts(schema, value) is Draft202012Validator(schema).is_valid(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "required",
                        "enum",
                        "anyOf",
                        "$ref",
                        "default",
                        "minimum",
                        "pattern",
                        "$defs",
                        "x",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=12,
    )
)
def test_any_schema_makes_a_tool_or_a_definition_error(schema: Any) -> None:
    try:
        one = Tool.from_json_schema("t", "", schema, echo)
    except ToolDefinitionError:
        return
    result = asyncio.run(one.call(ToolCall("c", "t", '{"x": [1]}'), ToolContext(None)))
    assert result.status in ("success", "error")


def test_foreign_type_names_are_accepted() -> None:
    cases: list[tuple[Any, Any]] = [
        ("dict", {"type": "object"}),
        ("HashMap", {"type": "object"}),
        ("float", {"type": "number"}),
        ("Double", {"type": "number"}),
        ("long", {"type": "integer"}),
        ("String", {"type": "string"}),
        ("Boolean", {"type": "boolean"}),
        ("tuple", {"type": "array", "items": {}}),
        ("ArrayList", {"type": "array", "items": {}}),
        ("java.util.List", {"type": "array", "items": {}}),
        ("any", {}),
        ("Frobnicator", {}),
        ("List[int]", {"type": "array", "items": {"type": "integer"}}),
        ("string[]", {"type": "array", "items": {"type": "string"}}),
        ("Dict<String, Integer>", {"type": "object"}),
        ("Optional[int]", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ("int | None", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (["str", "null"], {"type": ["string", "null"]}),
        (["str", "Frobnicator"], {}),
        ({"type": "int"}, {"type": "integer"}),
        (7, {}),
        ("Weird<int>", {}),
    ]
    read = {str(foreign): made({"type": foreign}).spec.parameters["properties"]["v"] for foreign, _ in cases}
    assert read == {str(foreign): plain for foreign, plain in cases}
    assert made({"type": "int" + "[]" * 1_000}).validate('{"v": []}') == {"v": []}


def test_a_default_is_accepted_although_enum_or_type_excludes_it() -> None:
    plain = {"type": "integer"}, {"type": "string", "enum": ["any"]}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        # Schema of a parameter, its part in the result.
        ({"type": ["integer", "null"], "default": None}, {"type": ["integer", "null"], "default": None}),
        ({"type": "string", "enum": ["a"], "default": "b"}, {"type": "string", "enum": ["a", "b"], "default": "b"}),
        (
            {"type": "string", "enum": ["True"], "default": False},
            {"type": ["string", "boolean"], "enum": ["True", False], "default": False},
        ),
        ({"enum": [1], "default": True}, {"enum": [1, True], "default": True}),
        (
            {"type": "integer", "minimum": 1, "default": "any", "description": "D"},
            {
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "enum": ["any"]}],
                "description": "D",
                "default": "any",
            },
        ),
        # Keywords for the type of the default still apply to it.
        (
            {"type": "integer", "maxLength": 2, "default": "any"},
            {"anyOf": list(plain), "maxLength": 2, "default": "any"},
        ),
        (
            {"type": "integer", "anyOf": [{"minimum": 1}, {"maximum": -1}], "default": "any"},
            {"anyOf": [{"minimum": 1}, {"maximum": -1}], "allOf": [{"anyOf": list(plain)}], "default": "any"},
        ),
        (
            {"type": "array", "enum": ["a"], "default": ["b"]},
            {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["b"]},
        ),
    ]
    shown = [made(schema).spec.parameters["properties"]["v"] for schema, _ in cases]
    assert shown == [expected for _, expected in cases]


def test_the_length_of_a_pattern_is_limited_when_a_tool_is_created() -> None:
    wrong = []
    for start in ("[", "(", "\\p{", "[^", "a|", "(?:", "x{2}", "\\"):
        pattern = start * (40_000 // len(start))
        shown = made({"pattern": pattern, "patternProperties": {pattern: {}}}).spec.parameters["properties"]["v"]
        if shown != {"patternProperties": {}}:
            wrong.append(start)
    assert wrong == []


def test_required_flags_inside_of_properties_are_collected() -> None:
    parameters = {
        "properties": {"a": {"type": "int", "required": True}, "b": {"optional": False}, "c": {"optional": True}}
    }
    assert Tool.from_json_schema("t", "", parameters, echo).spec.parameters["required"] == ["a", "b"]


def test_a_tool_without_parameters_accepts_none() -> None:
    one = Tool.from_json_schema("t", "", None, echo)
    assert one.validate("{}") == {}
    with pytest.raises(ToolArgumentError):
        one.validate('{"a": 1}')
    assert Tool.from_json_schema("t", "", {"type": "object"}, echo).validate('{"a": 1}') == {"a": 1}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_a_schema_that_is_not_an_object_is_refused() -> None:
    cases: list[Any] = [[], "x", {"type": "array"}, {"properties": {"a": 5}}, {"properties": {"a": nested(5_000)}}]
    for parameters in cases:
        with pytest.raises(ToolDefinitionError) as caught:
            Tool.from_json_schema("t", "", parameters, echo)
        assert caught.value.tool == "t"


def test_an_unresolvable_reference_is_refused_and_nothing_is_fetched() -> None:
    for reference in ("https://elsewhere.test/schema", "file:///etc/hostname", "other.json", "#/$defs/None", "#none"):
        with pytest.raises(ToolDefinitionError) as caught:
            made({"$ref": reference})
        assert caught.value.tool == "echo"


def test_a_number_that_is_not_finite_is_refused() -> None:
    one = made({"type": ["number", "null"]})
    for text in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999"):
        with pytest.raises(ToolArgumentError):
            one.validate(f'{{"v": {text}}}')


def test_references_that_only_refer_to_each_other_accept_any_value() -> None:
    definitions = {
        "A": {"$ref": "#/$defs/B"},
        "B": {"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]},
        "C": {"allOf": [{"$ref": "#/$defs/A"}]},
        "a/b~c": {"type": "integer"},
    }
    assert accepts({"$ref": "#/$defs/A"}, 1, **{"$defs": definitions})
    assert not accepts({"$ref": "#/$defs/a~1b~0c"}, "x", **{"$defs": definitions})
    assert not accepts({"$ref": "#/anyOf/0"}, "x", anyOf=[{"type": "object"}], **{"$defs": definitions})


def test_deeply_nested_values_of_a_recursive_schema_end() -> None:
    value: dict[str, Any] = {"n": 1}
    for _ in range(80):
        value = {"n": 1, "kids": [value]}
    assert accepts({"$ref": "#/$defs/Tree"}, value, **{"$defs": TREE})


async def test_parameters_of_any_name_reach_the_function_and_the_context_does_too() -> None:
    async def take(ctx: ToolContext, **arguments: Any) -> Any:
        return [ctx.call_id, arguments]

    parameters = {"properties": {"max-results": {"type": "integer"}, "class": {"type": "string"}}}
    one = Tool.from_json_schema("t", "", parameters, take)
    call = ToolCall("c", "t", '{"max-results": 3, "class": "x"}')
    assert (await one.call(call, ToolContext(None, "r", "c"))).value == ["c", {"max-results": 3, "class": "x"}]
    with pytest.raises(ToolDefinitionError) as caught:
        Tool.from_json_schema("t", "", {"properties": {"ctx": {}}}, take)
    assert caught.value.names == ("ctx",)


async def test_annotations_that_cannot_be_resolved_are_ignored_if_a_schema_is_passed() -> None:
    def take(a: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(a)

    one = Tool.from_json_schema("t", "", {"properties": {"a": {}}}, take)
    assert (await one.call(ToolCall("c", "t", '{"a": 1}'), ToolContext(None))).content == "1"


@pytest.mark.skipif(not (CASES / "bfcl_tools.jsonl").exists(), reason="the conformance cases are not on this machine")
async def test_every_description_of_the_function_calling_leaderboard_is_accepted() -> None:
    rows = [json.loads(line) for line in (CASES / "bfcl_tools.jsonl").read_text().splitlines()]
    refused, names = [], set()
    for row in rows:
        function, call = row["function"], row["call"]
        one = Tool.from_json_schema(function["name"], function["description"], function["parameters"], echo)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one.name)
        assert one.original_name == function["name"]
        Draft202012Validator.check_schema(one.spec.parameters)
        names.add(one.name)
        if call is None:
            continue
        result = await one.call(ToolCall("c", one.name, json.dumps(call["arguments"])), ToolContext(None))
        if not result.ok or result.value != call["arguments"]:
            refused.append(row["id"])
    assert len(rows) == len(names) == 300
    # Calls with invalid data: text instead of an array, an object or an integer.
    assert refused == [row["id"] for row in rows if row["call_validates_after_type_map"] is False]


# Names


def test_valid_names_stay_and_other_names_become_distinct() -> None:
    assert wire_name("get_weather-2") == "get_weather-2"
    names = ["a.b", "a b", "a_b", "a/b", "a..b", "", "é", "日本", "x" * 65, "x" * 66, ".", "\ud800"]
    found = [wire_name(name) for name in names]
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found)
    assert found[0].startswith("a_b_")


@given(st.lists(st.text(max_size=80), unique=True, max_size=20))
def test_wire_names_are_legal_different_and_stable(names: list[str]) -> None:
    found = [wire_name(name) for name in names]
    assert len(set(found)) == len(found)
    assert [wire_name(name) for name in found] == found


# Strict schemas


@tool
async def book(city: str, nights: int = 1, tags: list[str] | None = None, unit: str = "c") -> Any:
    """Book.

    Args:
        city: Where.
        nights: How long.
    """
    return [city, nights, tags, unit]


async def test_a_strict_tool_requires_all_parameters_and_reads_null_as_omitted() -> None:
    strict = book.strict()
    assert strict.strict() is strict
    parameters = strict.spec.parameters
    assert parameters["required"] == ["city", "nights", "tags", "unit"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"] == {
        "city": {"type": "string", "description": "Where."},
        "nights": {"type": ["integer", "null"], "description": "How long."},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "unit": {"type": ["string", "null"]},
    }
    call = ToolCall("c", "book", '{"city": "Rome", "nights": null, "tags": null, "unit": null}')
    assert (await strict.call(call, ToolContext(None))).value == ["Rome", 1, None, "c"]
    assert (await book.call(call, ToolContext(None))).status == "error"
    result = await strict.call(ToolCall("c", "book", '{"city": null}'), ToolContext(None))
    assert isinstance(result.error, ToolArgumentError)
    assert [problem.path for problem in result.error.problems] == ["city"]


class Step(BaseModel):
    """A model with an optional part, in places that are optional."""

    name: str
    times: int = 3
    tags: list[str] = []
    next: Step | None = None


class Stop(BaseModel):
    """An option with the same properties as another option."""

    kind: Literal["stop"]
    after: int = 1


class Start(BaseModel):
    """The second option."""

    kind: Literal["start"]
    after: str = "now"


async def test_nulls_of_optional_models_become_defaults_too() -> None:
    @tool
    def plan(first: Step | None = None, rest: list[Step] | None = None, how: Stop | Start | int = 1) -> Any:
        return [first, rest, how]

    strict = plan.strict()
    inner = {"name": "b", "times": None, "tags": None, "next": None}
    outer = {"name": "a", "times": None, "tags": ["x"], "next": inner}
    written = {"first": outer, "rest": [inner], "how": {"kind": "start", "after": None}}
    Draft202012Validator(dict(strict.spec.parameters)).validate(written)  # written under the rules of a provider
    found = strict.validate(json.dumps(written))
    assert found["first"] == Step(name="a", tags=["x"], next=Step(name="b"))
    assert found["rest"] == [Step(name="b")]
    assert found["how"] == Start(kind="start")
    wrong = json.dumps({**written, "first": {**outer, "name": None}})
    with pytest.raises(ToolArgumentError) as caught:
        strict.validate(wrong)
    assert "first.name" in [problem.path for problem in caught.value.problems]


async def test_nulls_in_a_union_that_is_described_elsewhere_become_defaults_too() -> None:
    option = {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "integer"}}, "required": ["b"]}
    union = {"oneOf": [{"type": "string"}, {"allOf": [{"$ref": "#/definitions/B"}]}]}
    made = Tool.from_json_schema(
        "t", "", {"properties": {"a": union}, "required": ["a"], "definitions": {"B": option}}, echo
    )
    assert made.strict().validate('{"a": {"b": "x", "c": null}}') == {"a": {"b": "x"}}
    assert made.strict().validate('{"a": "x"}') == {"a": "x"}


def test_a_schema_with_a_part_that_strict_mode_cannot_express_is_refused() -> None:
    for schema in ({"type": "object", "patternProperties": {"^x": {}}}, {"maxLength": 3}):
        with pytest.raises(ToolDefinitionError) as caught:
            made(schema).strict()
        assert caught.value.names == ("v",)


def test_a_format_that_is_not_text_does_not_break_a_strict_schema() -> None:
    made = Tool.from_json_schema("t", "", {"properties": {"a": {"type": "string", "format": {"x": []}}}}, echo)
    assert "format" not in made.strict().spec.parameters["properties"]["a"]


def test_nested_models_become_strict_through_their_references() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "who": {"$ref": "#/$defs/Person", "description": "Who."},
            "friend": {"$ref": "#/$defs/Person", "description": "A friend."},
            "size": {"enum": ["s", "l"]},
            "pet": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
            "one": {"allOf": [{"type": "string", "format": "uri"}]},
        },
        "required": ["who"],
        "$defs": {
            "Person": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name"],
            }
        },
    }
    strict = Tool.from_json_schema("t", "", parameters, echo).strict()
    found = strict.spec.parameters
    assert found["properties"]["who"] == {"anyOf": [{"$ref": "#/$defs/Person"}], "description": "Who."}
    assert found["properties"]["friend"] == {
        "anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}],
        "description": "A friend.",
    }
    assert found["properties"]["size"] == {"anyOf": [{"type": "string", "enum": ["s", "l"]}, {"type": "null"}]}
    assert found["properties"]["pet"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert found["properties"]["one"] == {"type": ["string", "null"]}
    assert found["$defs"]["Person"]["required"] == ["name", "age"]
    text = '{"who": {"name": "A", "age": null}, "friend": null, "size": null, "pet": null, "one": null}'
    assert strict.validate(text) == {"who": {"name": "A"}, "pet": None}


def test_all_places_that_cannot_be_strict_are_named() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "free": {"type": "object"},
            "any": {},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
            "both": {"allOf": [{"type": "string"}, {"type": "integer"}]},
        },
    }
    with pytest.raises(ToolDefinitionError) as caught:
        Tool.from_json_schema("t", "", parameters, echo).strict()
    assert caught.value.names == ("free", "any", "pair", "both")


# Repair


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Rome", "tags": ["a", "b",],}',
        "{'city': 'Rome', 'tags': ['a', 'b']}",
        '{"city": "Rome", "tags": "[\\"a\\", \\"b\\"]"}',
        json.dumps('{"city": "Rome", "tags": ["a", "b"]}'),
        json.dumps(json.dumps({"city": "Rome", "tags": ["a", "b"]})),
        '```json\n{"city": "Rome", "tags": ["a", "b"]}\n```',
        '{"city": "Rome", "tags": ["a", "b"], "unit": None}',
    ],
)
async def test_arguments_that_are_nearly_json_are_repaired_only_on_request(text: str) -> None:
    parameters = {
        "properties": {"city": {"type": "string"}, "tags": {"type": "array"}, "unit": {"type": "string"}},
        "required": ["city"],
    }
    one = Tool.from_json_schema("t", "", parameters, echo, repair=True)
    call = ToolCall("c", "t", text)
    assert (await one.call(call, ToolContext(None))).value == {"city": "Rome", "tags": ["a", "b"]}
    assert (await one.with_changes(repair=False).call(call, ToolContext(None))).status == "error"


@pytest.mark.parametrize(
    "text", ["", "not json at all", "[1]", "5", '"5"', "{'a': }", "[" * 50_000, '{"city": 5}', "\ud800", "'" * 999]
)
async def test_arguments_that_cannot_be_repaired_are_reported_as_sent(text: str) -> None:
    one = book.with_changes(repair=True, retries=1)
    result = await one.call(ToolCall("c", "book", text), ToolContext(None))
    assert result.status == "error"


async def test_quotes_and_commas_inside_of_strings_are_unchanged_by_the_repair() -> None:
    one = Tool.from_json_schema("t", "", {"properties": {"a": {"type": "string"}, "b": {}}}, echo, repair=True)
    assert one.validate("""{'a': 'it\\'s "so", True,]', "b": 'x',}""") == {"a": 'it\'s "so", True,]', "b": "x"}


# Exports


def test_each_target_gets_its_form() -> None:
    schema = book.spec.parameters
    function = {"name": "book", "description": "Book.", "parameters": schema}
    assert book.to_openai() == {"type": "function", "function": function}
    assert book.strict().to_openai()["function"]["strict"] is True
    assert book.to_anthropic() == {"name": "book", "description": "Book.", "input_schema": schema}
    assert book.to_mcp() == {"name": "book", "description": "Book.", "inputSchema": schema}
    both = Toolset([book, book.strict().with_changes(name="other")])
    lines = both.to_text().splitlines()
    assert [json.loads(line)["function"]["name"] for line in lines] == ["book", "other"]
    assert both.to_openai() == [one.to_openai() for one in both]
    assert both.to_anthropic()[0] == book.to_anthropic() and both.to_gemini()[0] == book.to_gemini()
    assert both.to_mcp()[0] == book.to_mcp()


def test_a_type_of_many_characters_is_ignored_immediately() -> None:
    for kind in ("a" + " " * 200_000 + "b", (" " * 1_000 + "or") * 200, "List[" * 5_000 + "]" * 5_000):
        start = process_time()
        assert made({"type": kind}).spec.parameters["properties"]["v"] == {}
        assert process_time() - start < 5  # quadratic matching takes minutes
