"""Whatever a schema says, making a prompt of it and checking values against it ends, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from agentkit.prompts import AdditionalInfoPrompt, KwargsError, Layers, PromptError, Template


def doubling(levels: int, keyword: str, target: dict[str, Any]) -> dict[str, Any]:
    """Every level offers the next one twice: 2 ** levels ways lead to the last."""
    defs: dict[str, Any] = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d0"}},
        "$defs": {**defs, f"d{levels}": target},
    }


def layers_of(schema: dict[str, Any]) -> Layers:
    return Layers(AdditionalInfoPrompt(template=Template("", params_schema=schema)))


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_offers_every_level_twice_is_checked_level_by_level(keyword: str) -> None:
    layers = layers_of(doubling(28, keyword, {"type": "integer"}))
    with pytest.raises(KwargsError, match="x"):
        layers.check_kwargs({"x": "text"})


def test_a_recursive_union_of_alike_members_ends() -> None:
    node = {"type": "object", "properties": {"child": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}}
    schema = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": node, "b": {**node, "title": "b"}}}
    value: Any = {"child": 3}
    for _ in range(20):
        value = {"child": value}
    with pytest.raises(KwargsError, match="none of the allowed schemas"):
        layers_of(schema).check_kwargs({"x": value})


class Left(BaseModel):
    size: int = 0
    child: Left | Right | None = None


class Right(BaseModel):
    size: int = 0
    child: Left | Right | None = None


class Kwargs(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    x: Left | Right


class KwargsDict(TypedDict):
    x: Left | Right


def nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"child": value}
    return value


@pytest.mark.parametrize("schema", [Kwargs, TypeAdapter(Kwargs), KwargsDict, TypeAdapter(dict[str, Left | Right])])
def test_a_recursive_union_of_alike_models_ends_too(schema: Any) -> None:
    layers = Layers(AdditionalInfoPrompt(template=Template("", params_schema=schema)))
    with pytest.raises(KwargsError, match="x"):
        layers.check_kwargs({"x": nested(40, "text")})
    with pytest.raises(KwargsError, match="too many steps"):
        layers.check_kwargs({"x": nested(40, None)})
    with pytest.raises(KwargsError, match="too many steps"):
        layers.check_kwargs({"x": nested(40, {"size": "1"})})
    layers.check_kwargs({"x": nested(5, {"size": "1"})})


def test_what_bounds_a_type_adapter_keeps_its_config() -> None:
    kind = dict[str, list[str] | dict[str, str]]
    kept = TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True))
    Layers(AdditionalInfoPrompt(template=Template("", params_schema=kept))).check_kwargs({"x": [1]})
    with pytest.raises(KwargsError, match="valid string"):
        Layers(AdditionalInfoPrompt(template=Template("", params_schema=TypeAdapter(kind)))).check_kwargs({"x": [1]})


def test_a_value_that_holds_itself_twice_is_nested_too_deeply() -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}
    value: list[Any] = []
    value += [value, value]
    layers_of(schema).check_kwargs({"x": value})
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(KwargsError, match="nested more than 64 levels"):
        layers_of(schema).check_kwargs({"x": deep})


@pytest.mark.long
def test_a_product_of_alternatives_and_items_is_given_up() -> None:
    options = [{"type": "integer", "minimum": number} for number in range(1, 5_001)]
    schema = {"properties": {"x": {"items": {"anyOf": options}}}}
    with pytest.raises(KwargsError, match="takes more than 1,000,000 steps to check"):
        layers_of(schema).check_kwargs({"x": [-number for number in range(5_000)]})


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("^(a+)+$", "a" * 20_000 + "!"), ("^(a|aa)+$", "a" * 20_000 + "!"), ("(x+x+)+y", "x" * 20_000)],
)
def test_a_pattern_runs_in_linear_time(pattern: str, text: str) -> None:
    layers = layers_of({"properties": {"x": {"type": "string", "pattern": pattern}}})
    with pytest.raises(KwargsError, match="should match"):
        layers.check_kwargs({"x": text})


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?=a)b", r"(?<!a)b", "(", "((a{900}){900}){900}"])
def test_a_pattern_that_no_linear_engine_runs_is_refused_at_construction(pattern: str) -> None:
    with pytest.raises(PromptError, match="patterns run in linear time"):
        layers_of({"properties": {"x": {"pattern": pattern}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"properties": {"x": {"not": {"$ref": "#/properties/x"}}}},
    ],
)
def test_a_schema_that_refers_to_itself_without_going_into_the_value_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(PromptError, match="leads back to itself"):
        layers_of(schema)


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": 5}, "type must hold names"),
        ({"type": ["string", {}]}, "type must hold names"),
        ({"required": [["x"]]}, "required must hold names"),
        ({"$ref": 5}, r"\$ref must be a str"),
        ({"properties": {"x": {"$ref": "#/examples"}}, "examples": {"anyOf": 5}}, "anyOf must be a list"),
    ],
)
def test_a_malformed_schema_is_refused_with_its_place(schema: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PromptError, match=complaint):
        layers_of(schema)


def test_a_number_beyond_every_float_is_compared_exactly() -> None:
    layers = layers_of({"properties": {"x": {"multipleOf": 0.5}}})
    layers.check_kwargs({"x": 10**400})
