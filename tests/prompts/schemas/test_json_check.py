"""Checks of values against a JSON Schema, compared with another validator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentkit.prompts import AdditionalInfoPrompt, KwargsError, Layers, PromptError, Template
from tests.prompts.laws import law

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

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
def test_checks_of_bounds_agree_with_another_validator(bound: dict[str, Any], value: object) -> None:
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


def problems(schema: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    """Return the problems of the value of the kwarg `x`, each with its place."""
    parameters = {"properties": {"x": schema}, "$defs": {"small": {"maximum": 3}}}
    return Template("", params_schema=parameters).problems({"x": value})


def test_checks_of_edge_cases_agree_with_another_validator() -> None:
    wrong = []
    for bound in BOUNDS:
        parameters = {"properties": {"x": bound}, "$defs": {"small": {"maximum": 3}}}
        template, other = Template("", params_schema=parameters), Draft202012Validator(parameters)
        for value in EDGES:
            if (not template.problems({"x": value})) != other.is_valid({"x": value}):
                wrong.append((bound, value))
    assert wrong == []


def test_an_invalid_name_and_an_invalid_count_have_a_place() -> None:
    names, counts = {"propertyNames": {"maxLength": 1}}, {"contains": {"const": 1}, "maxContains": 1}
    assert [place for place, _ in problems(names, {"ab": 1})] == ["x.ab"]
    assert [place for place, _ in problems(counts, [1, 1])] == ["x"]


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
def test_checks_of_combined_rules_agree_with_another_validator(
    how: str, one: dict[str, Any], other: dict[str, Any], value: object
) -> None:
    schema = COMBINED[how](one, other)
    document = {"properties": {"x": schema}, "$defs": {"small": {"maximum": 3}}}
    assert (not problems(schema, value)) == Draft202012Validator(document).is_valid({"x": value})


def test_the_error_names_all_violated_bounds() -> None:
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
    assert set(caught.value.problems) == {"port", "host"}


def test_the_error_names_a_thousand_problems_and_counts_the_rest() -> None:
    schema = {"items": {"type": "string"}}
    thousand = problems(schema, [1] * 1_000)
    assert [place for place, _ in thousand] == [f"x[{index}]" for index in range(1_000)]
    *named, last = problems(schema, [1] * 2_500)
    assert named == thousand
    assert last[0] == "(value)"


def test_a_multiple_of_an_inexact_float_is_accepted() -> None:
    schema = {"type": "object", "properties": {"step": {"type": "number", "multipleOf": 0.1}}}
    template = Template("", params_schema=schema)
    assert template.problems({"step": 0.3}) == []
    assert [place for place, _ in template.problems({"step": 0.35})] == ["step"]


def test_a_bound_without_an_order_is_refused_at_construction() -> None:
    for bound in ({"minimum": "3"}, {"maxLength": True}, {"pattern": "("}, {"pattern": 3}):
        with pytest.raises(PromptError) as caught:
            Template("", params_schema={"type": "object", "properties": {"x": bound}})
        assert [place for place, _ in caught.value.problems] == [f"properties.x.{next(iter(bound))}"]
