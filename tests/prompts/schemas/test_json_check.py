"""Values are held against a JSON Schema as a validator that is not ours would hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentkit.prompts import AdditionalInfoPrompt, KwargsError, Layers, PromptError, SchemaConflict, Template
from agentkit_prompts.schemas.check import JsonChecker
from tests.prompts.laws import law

BOUNDS: list[dict[str, Any]] = [
    {"minimum": 3},
    {"maximum": 3.5},
    {"exclusiveMinimum": 3},
    {"exclusiveMaximum": 3},
    {"multipleOf": 3},
    {"minLength": 2},
    {"maxLength": 2},
    {"pattern": "^[a-c]+$"},
    {"minItems": 2},
    {"maxItems": 1},
    {"minProperties": 1},
    {"maxProperties": 1},
    {"not": {"type": "string"}},
    {"allOf": [{"minimum": 2}, {"maximum": 4}]},
    {"type": "object", "properties": {"a": {"minimum": 3}}, "additionalProperties": {"type": "integer"}},
    {"type": "array", "items": {"minLength": 1}},
    {"properties": {"a": {}}, "additionalProperties": False},
    {"additionalProperties": False},
    {"properties": {"a": {}}, "patternProperties": {"^b": {"minimum": 3}}, "additionalProperties": False},
    {"patternProperties": {"^b": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
    {"propertyNames": {"pattern": "^a"}},
    {"dependentRequired": {"a": ["b"]}},
    {"items": False},
    {"prefixItems": [{"type": "string"}, True], "items": {"minimum": 3}},
    {"prefixItems": [{"type": "string"}], "items": False},
    {"contains": {"minimum": 3}},
    {"contains": {"minimum": 3}, "minContains": 0},
    {"contains": {"minimum": 3}, "minContains": 2, "maxContains": 2},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"enum": [[1], {"a": 1}, 3]},
    {"uniqueItems": True},
    {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 3}},
    {"$ref": "#/$defs/small", "minimum": 1},
    {"$ref": "#/$defs/small", "anyOf": [{"type": "integer"}, {"minimum": 2}]},
    {"type": "integer"},
    {"anyOf": [{"type": "string"}, {"minimum": 3}]},
    {"oneOf": [{"type": "integer"}, {"minimum": 3}]},
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from([2.5, 3.0, 3.5, "", "a", "abc", "xyz"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@law
@given(st.sampled_from(BOUNDS), VALUES)
def test_bounds_hold_exactly_where_another_validator_says_they_do(bound: dict[str, Any], value: object) -> None:
    schema = {
        "type": "object",
        "properties": {"x": bound},
        "required": ["x"],
        "$defs": {"small": {"maximum": 3}},
    }
    layers = Layers(AdditionalInfoPrompt(template=Template("", params_schema=schema)))
    try:
        layers.check_kwargs({"x": value})
        accepted = True
    except KwargsError as error:
        accepted = False
        assert all(name == "x" or name.startswith(("x.", "x[")) for name in error.problems)
    assert accepted == Draft202012Validator(schema).is_valid({"x": value})


EDGES: list[Any] = [
    *(None, True, 1, 3, 4, 2.5, 3.0, "", "a", "abc", [], [1], [1, 1], [1, True], ["a", 1], ["a", None, 1], [4, 4, 4]),
    *([[1], [1]], [[1], [1.0]], [[1], [True]], [[1], [1, 2]], [4, 1.0, 1], [{}, {}], [{"a": 1}, {"a": True}]),
    *([{"a": 1}, {"b": 1}], [None, "null"], ["1", 1], {}, {"a": 1}, {"b": 1}, {"b": "x"}, {"a": 1, "b": 4}),
    *({"b": {"a": 4}}, {"a": 4, "c": "x"}, {"c": 4}),
]


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
def test_edges_hold_exactly_where_another_validator_says_they_do(bound: dict[str, Any]) -> None:
    schema = {"properties": {"x": bound}, "$defs": {"small": {"maximum": 3}}}
    checker, other = JsonChecker(schema), Draft202012Validator(schema)
    wrong = [value for value in EDGES if (not checker.problems({"x": value})) != other.is_valid({"x": value})]
    assert wrong == []


def test_names_and_counts_say_what_is_wrong_with_them() -> None:
    schema = {
        "properties": {"x": {"propertyNames": {"maxLength": 1}}, "y": {"contains": {"const": 1}, "maxContains": 1}}
    }
    assert JsonChecker(schema).problems({"x": {"ab": 1}, "y": [1, 1]}) == [
        ("x.ab", "has a name that should have at most 1 characters"),
        ("y", "has 2 of the items it should contain"),
    ]


COMBINED: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    "all": lambda one, other: {"allOf": [one, other]},
    "both": lambda one, other: {**one, **other},
    "any": lambda one, other: {"anyOf": [one, other]},
    "one": lambda one, other: {"oneOf": [one, other]},
    "not": lambda one, other: {**other, "not": one},
    "if": lambda one, other: {"if": one, "then": other},
    "items": lambda one, other: {"items": one, "prefixItems": [other]},
    "names": lambda one, other: {"properties": {"a": one}, "additionalProperties": other},
}


@law
@given(st.sampled_from(sorted(COMBINED)), st.sampled_from(BOUNDS), st.sampled_from(BOUNDS), VALUES)
def test_combined_rules_hold_exactly_where_another_validator_says_they_do(
    how: str, one: dict[str, Any], other: dict[str, Any], value: object
) -> None:
    schema = {"properties": {"x": COMBINED[how](one, other)}, "$defs": {"small": {"maximum": 3}}}
    assert (not JsonChecker(schema).problems({"x": value})) == Draft202012Validator(schema).is_valid({"x": value})


def test_every_broken_bound_is_named_at_once() -> None:
    schema = {
        "type": "object",
        "properties": {
            "port": {"type": "integer", "maximum": 65535},
            "host": {"type": "string", "pattern": "^[a-z.]+$"},
        },
    }
    layers = Layers(AdditionalInfoPrompt(template=Template("", params_schema=schema)))
    with pytest.raises(KwargsError) as caught:
        layers.check_kwargs({"port": 70000, "host": "A B"})
    assert caught.value.problems["port"][0] == "should be at most 65535"
    assert "should match '^[a-z.]+$'" in caught.value.problems["host"][0]


def test_a_thousand_problems_are_named_and_the_others_are_counted() -> None:
    check = JsonChecker({"items": {"type": "string"}})
    assert [path for path, _ in check.problems([1] * 1_000)] == [f"[{at}]" for at in range(1_000)]
    *named, last = check.problems([1] * 2_500)
    assert named == check.problems([1] * 1_000) and last == ("(value)", "has 1,500 problems more")


def test_a_number_may_be_a_multiple_of_one_that_no_float_is_exactly() -> None:
    schema = {"type": "object", "properties": {"step": {"type": "number", "multipleOf": 0.1}}}
    layers = Layers(AdditionalInfoPrompt(template=Template("", params_schema=schema)))
    layers.check_kwargs({"step": 0.3})
    with pytest.raises(KwargsError, match=r"should be a multiple of 0\.1"):
        layers.check_kwargs({"step": 0.35})


@pytest.mark.parametrize(
    ("bound", "complaint"),
    [
        ({"minimum": "3"}, "minimum must be a number, got '3'"),
        ({"maxLength": True}, "maxLength must be a number, got True"),
        ({"pattern": "("}, "pattern must be a regular expression, got '('"),
        ({"pattern": 3}, "pattern must be a regular expression, got 3"),
    ],
    ids=repr,
)
def test_a_bound_that_compares_with_nothing_is_refused_at_construction(bound: dict[str, Any], complaint: str) -> None:
    with pytest.raises((PromptError, SchemaConflict)) as caught:
        Template("", params_schema={"type": "object", "properties": {"x": bound}})
    assert complaint in str(caught.value)
