"""Hostile schemas: construction and checks end, and errors name the problems."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from agentkit.prompts import (
    AdditionalInfoPrompt,
    JsonSchema,
    KwargsError,
    Layers,
    PromptError,
    SchemaConflict,
    Template,
    TextPrompt,
)

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")


def doubling(levels: int, keyword: str, target: dict[str, Any]) -> dict[str, Any]:
    """Return a schema in which each level refers to the next level twice: 2 ** levels paths to the last level."""
    defs: dict[str, Any] = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d0"}},
        "$defs": {**defs, f"d{levels}": target},
    }


def layers_of(schema: Any) -> Layers:
    return Layers(AdditionalInfoPrompt(template=Template("", params_schema=schema)))


def places(schema: Any, kwargs: dict[str, Any]) -> list[str]:
    """Return the places of all problems of kwargs, and check the time of the search."""
    layers, start = layers_of(schema), process_time()
    try:
        layers.check_kwargs(kwargs)
    except KwargsError as error:
        assert len(str(error)) < 1_000_000
        found = list(error.problems)
    else:
        found = []
    assert process_time() - start < SECONDS
    return found


SECONDS = 3.0
"""CPU time of one check; without limits, most of the schemas here take minutes."""


def test_a_schema_with_two_references_to_each_level_is_checked_once_per_level() -> None:
    for keyword in ("anyOf", "oneOf", "allOf"):
        assert places(doubling(8, keyword, {"type": "integer"}), {"x": "text"}) == ["x"]
        assert places(doubling(28, keyword, {"type": "integer"}), {"x": "text"}) == ["(value)"]


def test_the_check_of_a_recursive_union_of_similar_members_ends() -> None:
    node = {"type": "object", "properties": {"child": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}}
    schema = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": node, "b": {**node, "title": "b"}}}
    value: Any = {"child": 3}
    for _ in range(20):
        value = {"child": value}
    assert places(schema, {"x": value})


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


def test_the_check_of_a_recursive_union_of_similar_models_ends() -> None:
    for schema in (Kwargs, TypeAdapter(Kwargs), KwargsDict, TypeAdapter(dict[str, Left | Right])):
        for leaf in ("text", None, {"size": "1"}):
            assert places(schema, {"x": nested(40, leaf)}), (schema, leaf)
        assert places(schema, {"x": nested(5, {"size": "1"})}) == []


def test_the_limit_of_a_type_adapter_keeps_its_config() -> None:
    kind = dict[str, list[str] | dict[str, str]]
    assert places(TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True)), {"x": [1]}) == []
    assert places(TypeAdapter(kind), {"x": [1]})


def test_a_value_that_contains_itself_twice_is_nested_too_deeply() -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}
    value: list[Any] = []
    value += [value, value]
    assert places(schema, {"x": value}) == ["(value)"]
    assert places(schema, {"x": levels(300)}) == ["(value)"]


def test_checks_of_large_schemas_on_large_values_end() -> None:
    accepted: list[tuple[dict[str, Any], object]] = [
        ({"patternProperties": {f"^{n}": {} for n in range(2_000)}}, {str(n): n for n in range(2_000)}),
        ({"uniqueItems": True}, [[n] for n in range(3_000)]),
        ({"items": {"uniqueItems": True}}, [list(range(3_000))] * 300),
        ({"uniqueItems": True}, [[[0] * 10_000, n] for n in range(80)]),
        ({"items": {"dependentRequired": {str(n): [] for n in range(2_000)}}}, [{"a": 1}] * 2_000),
        ({"items": {"dependentSchemas": {str(n): {} for n in range(2_000)}}}, [{"b": 1}] * 2_000),
    ]
    for rule, value in accepted:
        assert places({"properties": {"x": rule}}, {"x": value}) == [], rule.keys()
    dependent = {"items": {"dependentSchemas": {name: {} for name in NAMES}}}
    assert places({"properties": {"x": dependent}}, {"x": [{"b": 1}] * 5_000}) == ["(value)"]
    contains = {"items": {"contains": {"const": 1}}}
    assert places({"properties": {"x": contains}}, {"x": [[0] * 1_000] * 700})
    assert places({"properties": {"x": contains}}, {"x": [[0] * 2_000] * 2_000}) == ["(value)"]


def test_the_search_for_unevaluated_parts_ends_at_any_depth() -> None:
    for keyword, value in (("unevaluatedProperties", {"a": 1, "b": 1}), ("unevaluatedItems", [1, 1])):
        for combining in ("anyOf", "allOf", "oneOf"):
            schema: dict[str, Any] = {"properties": {"a": {}}, "prefixItems": [{}]}
            for level in range(30):
                schema = {combining: [schema], keyword: {"type": "integer"}}
                if level == 5:
                    assert places({"properties": {"x": schema}}, {"x": value}) == []
            assert places({"properties": {"x": schema}}, {"x": value}) == ["(value)"]


def test_the_limit_includes_schemas_in_unknown_keywords() -> None:
    unknown = doubling(28, "x-applied", {"type": "integer"})
    assert places(unknown, {"x": "text"}) == ["(value)"]
    assert places(doubling(4, "x-applied", {"type": "integer"}), {"x": "text"}) == []


@pytest.mark.long
def test_a_check_of_many_alternatives_on_many_items_stops_at_the_limit() -> None:
    options = [{"type": "integer", "minimum": number} for number in range(1, 5_001)]
    schema = {"properties": {"x": {"items": {"anyOf": options}}}}
    assert places(schema, {"x": [-number for number in range(5_000)]})


NAMES = [f"name {number}" for number in range(5_000)]


def test_checks_of_long_keywords_on_many_items_are_bounded() -> None:
    invalid: list[tuple[dict[str, Any], list[Any]]] = [
        ({"enum": NAMES}, list(map(str.upper, NAMES))),
        ({"enum": [{"n": name} for name in NAMES]}, [{"n": 1}] * 5_000),
        ({"const": "x" * 1_000_000}, ["x"] * 5_000),
        ({"required": NAMES}, [{}] * 5_000),
        ({"pattern": "^[a-z]{1,15000}$"}, ["a" * 20_000] * 5_000),
        ({"additionalProperties": {"type": "null"}}, [{"x" * 1_000_000: 1}] * 5_000),
        ({"multipleOf": 0.1}, [float("inf"), 10**400 + 1]),
    ]
    for item, value in invalid:
        assert places({"properties": {"x": {"items": item}}}, {"x": value}), item.keys()
    assert (
        places({"properties": {"x": {"items": {"properties": {name: {} for name in NAMES}}}}}, {"x": [{}] * 5_000})
        == []
    )


def test_values_of_an_enum_are_compared_as_json() -> None:
    layers = layers_of({"properties": {"x": {"items": {"enum": [1, "2", None, 0.5, {"a": 1}]}}}})
    layers.check_kwargs({"x": [1, 1.0, "2", None, 0.5, {"a": 1.0}]})
    with pytest.raises(KwargsError) as caught:
        layers.check_kwargs({"x": [True, 2, "1", "null", {"a": 2}, [1]]})
    assert set(caught.value.problems) == {f"x[{at}]" for at in range(6)}


def faults(schema: Any) -> list[str]:
    """Return the places of the problems of a schema, and check the time; empty if it is valid."""
    start = process_time()
    try:
        layers_of(schema)
    except PromptError as error:
        assert len(str(error)) < 5_000_000
        assert error.problems
        found = [place for place, _ in error.problems]
    else:
        found = []
    assert process_time() - start < SECONDS
    return found


def test_an_invalid_schema_is_refused_quickly_with_a_short_message() -> None:
    assert faults({"properties": {f"x{index}": {"pattern": r"^\w{1,400}$"} for index in range(200)}})
    assert faults({"multipleOf": float("inf")}) == ["multipleOf"]
    assert faults({"minimum": "9" * 1_000_000}) == ["minimum"]
    long = faults({"properties": {"x" * 1_000_000: {"properties": dict.fromkeys(NAMES, 5)}}})
    assert long and all(place.startswith("properties.xxx") for place in long)


def test_equivalent_references_are_resolved_once_and_an_index_has_one_form() -> None:
    again = {f"r{zeros}": {"$ref": f"#/allOf/{'0' * zeros}"} for zeros in range(1, 2_000)}
    large = {"properties": {name: {"type": "string"} for name in NAMES}}
    assert faults({"allOf": [large], "properties": again})
    assert faults({"allOf": [large], "properties": {"far": {"$ref": f"#/allOf/{'9' * 10_000}"}}})
    near = {"near": {"$ref": "#/allOf/0"}}
    assert places({"allOf": [large], "properties": near}, {"near": {NAMES[0]: 5}}) == [f"near.{NAMES[0]}"]


def chained(count: int, end: dict[str, Any]) -> dict[str, Any]:
    """Return properties by definitions, each with a reference to the next definition."""
    defs: dict[str, Any] = {
        name: {"anyOf": [{"$ref": f"#/$defs/{after}"}, {"type": "null"}]} for name, after in pairwise(NAMES[:count])
    }
    named = {name: {"$ref": f"#/$defs/{name}"} for name in defs}
    return {"properties": named, "$defs": {**defs, NAMES[count - 1]: end}}


def cyclic(count: int) -> dict[str, Any]:
    """Return a schema of endless nested lists, in `count` definitions."""
    defs = {f"d{at}": {"items": {"$ref": f"#/$defs/d{(at + 1) % count}"}} for at in range(count)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


class Requiring(TextPrompt):
    """Prompt with any schema of kwargs."""

    required: JsonSchema

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        return self.required


def merged(*schemas: dict[str, Any]) -> JsonSchema:
    """Return the schema of a tree of prompts, with a prompt for each schema."""
    schema = Layers([Requiring("x", required=schema) for schema in schemas]).additional_kwargs_schema
    assert schema is not None
    return schema


def same(count: int) -> None:
    texts: list[dict[str, Any]] = [{"type": "string"}, {"title": "End", "type": "string"}]
    assert len(merged(*[chained(count, end) for end in texts])["$defs"]) == count


def conflicting(count: int) -> None:
    with pytest.raises(SchemaConflict) as caught:
        merged(*[chained(count, {"type": kind}) for kind in ("string", "integer")])
    assert [path for path, _ in caught.value.problems] == ["system[0]", "system[1]"]
    assert len(str(caught.value)) < 5_000


def apart(count: int) -> None:
    unused = {**chained(count, {"type": "integer"}), "properties": {}}
    assert len(merged(chained(count, {}), unused)["$defs"]) == 2 * count


def around(count: int) -> None:
    assert len(merged(cyclic(count - 1), cyclic(count))["$defs"]) == count


def test_cyclic_definitions_are_compared_once() -> None:
    def seconds(merging: Callable[[int], None], count: int) -> float:
        start = process_time()
        merging(count)
        return process_time() - start

    for merging in (same, conflicting, apart, around):
        seconds(merging, 10)
        small, large = seconds(merging, 100), seconds(merging, 800)
        assert large / small < 30  # 8 times the number of definitions; a quadratic comparison takes 64 times the time


ITEM = {"$ref": "#/$defs/item"}


def test_properties_with_the_same_meaning_are_equal() -> None:
    pairs: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        ({"items": {"enum": [{"title": "a"}]}}, {"items": {"enum": [{"title": "b"}]}}, False),
        ({"default": {"description": "a"}}, {"default": {"description": "b"}}, False),
        ({"properties": {"title": {}}}, {"properties": {}}, False),
        ({"items": {**ITEM, "minimum": 3}}, {"items": {"type": "integer", "minimum": 3}}, True),
        ({"items": {**ITEM, "minimum": 3}}, {"items": ITEM}, False),
        ({"required": ["b", "a"]}, {"required": ["a", "b"]}, True),
        ({"items": ITEM}, {"items": {"title": "I", "type": "integer"}}, True),
    ]
    wrong = []
    for one, other, are_same in pairs:
        schemas = [{"properties": {"x": item}, "$defs": {"item": {"type": "integer"}}} for item in (one, other)]
        try:
            merged(*schemas)
        except SchemaConflict as error:
            assert error.name == "x"
            if are_same:
                wrong.append((one, other))
        else:
            if not are_same:
                wrong.append((one, other))
    assert wrong == []


def test_a_shared_object_uses_the_definitions_of_each_schema() -> None:
    shared = {"items": ITEM}
    schemas = [{"properties": {"x": shared}, "$defs": {"item": {"type": kind}}} for kind in ("integer", "string")]
    with pytest.raises(SchemaConflict) as caught:
        merged(*schemas)
    (_, integers), (_, strings) = caught.value.problems
    assert "integer" in integers
    assert "string" in strings


def test_references_follow_a_renamed_definition_of_any_name() -> None:
    def schema(name: str, kind: str) -> dict[str, Any]:
        defs = {"a/b~c": {"properties": {"deep": {"type": kind}}}}
        refs = {"to": {"$ref": "#/$defs/a~1b~0c"}, "into": {"$ref": "#/$defs/a~1b~0c/properties/deep"}}
        return {"properties": {f"{name}_{way}": one for way, one in refs.items()}, "$defs": defs}

    document = merged(schema("p", "integer"), schema("q", "string"))
    assert len(document["$defs"]) == 2
    validator = Draft202012Validator(document)
    assert validator.is_valid({"p_to": {"deep": 1}, "p_into": 1, "q_to": {"deep": "x"}, "q_into": "x"})
    for wrong in ({"q_to": {"deep": 1}}, {"q_into": 1}, {"p_to": {"deep": "x"}}):
        assert not validator.is_valid(wrong)


def test_a_reference_to_false_accepts_no_value() -> None:
    assert places({"properties": {"x": {"$ref": "#/$defs/never"}}, "$defs": {"never": False}}, {"x": 1}) == ["x"]


def test_a_pattern_runs_in_linear_time() -> None:
    long = "a" * 20_000 + "!"
    for pattern, text in (("^(a+)+$", long), ("^(a|aa)+$", long), ("(x+x+)+y", "x" * 20_000)):
        assert places({"properties": {"x": {"type": "string", "pattern": pattern}}}, {"x": text}) == ["x"]


def test_a_pattern_that_cannot_be_compiled_is_refused_at_construction() -> None:
    assert faults({"properties": {"x": {"pattern": "("}}}) == ["properties.x.pattern"]
    assert faults({"properties": {"x": {"pattern": "((a{900}){900}){900}"}}})
    assert faults({"properties": {"x": {"pattern": "[" * 200_000}}})


def test_a_pattern_with_lookarounds_ends() -> None:
    # The pattern of zod for an e-mail address.
    email = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
    assert places({"properties": {"x": {"pattern": email}}}, {"x": "ann@example.com"}) == []
    assert places({"properties": {"x": {"pattern": email}}}, {"x": ".ann@example.com"}) == ["x"]
    emails = {"properties": {"x": {"items": {"pattern": email}}}}
    assert places(emails, {"x": ["ann@example.com"] * 3_000}) == []
    many = {"anyOf": [{"pattern": "^((?=a)a|(?=a)aa)+$"}, {"maxLength": 99}]}
    assert places({"properties": {"x": {"items": many}}}, {"x": ["a" * 30 + "!"] * 40_000}) == ["(value)"]
    slow, slower = "a" * 3_000 + "!", "a" * 100_000 + "!"
    for pattern in (r"^(?!x)(a|aa)+$", r"(?=a)(a+)+$", r"(a)\1(\w+\s?)+$", r"(?<=a)(a+)+c"):
        assert places({"properties": {"x": {"pattern": pattern}}}, {"x": slow}) == ["x"], pattern
        assert places({"properties": {"x": {"pattern": pattern}}}, {"x": slower}) == ["(value)"], pattern


def test_a_reference_to_another_document_is_refused_and_not_resolved(tmp_path: Path) -> None:
    file = tmp_path / "any.json"
    file.write_text("{}")
    for reference in ("https://x.test/a", file.as_uri(), str(file), "other.json", "#/$defs/none", "#none"):
        assert faults({"properties": {"x": {"$ref": reference}}}) == [""], reference


def test_a_reference_can_have_an_anchor_an_id_or_a_name_with_brackets() -> None:
    defs = {
        "a": {"$anchor": "named", "type": "integer"},
        "b": {"$id": "https://x.test/b", "type": "integer"},
        "Page[Item]": {"type": "integer"},
    }
    for reference in ("#named", "https://x.test/b", "#/$defs/Page[Item]", "#/$defs/Page%5BItem%5D"):
        schema = {"properties": {"x": {"$ref": reference}}, "$defs": defs}
        assert places(schema, {"x": 1}) == [], reference
        assert places(schema, {"x": "1"}) == ["x"], reference


def test_a_schema_that_refers_to_itself_without_going_into_the_value_is_refused() -> None:
    schemas: list[dict[str, Any]] = [
        {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"properties": {"x": {"not": {"$ref": "#/properties/x"}}}},
        {
            "$defs": {"a": {"dependentSchemas": {"b": {"$ref": "#/$defs/a"}}}},
            "properties": {"x": {"$ref": "#/$defs/a"}},
        },
        {"$defs": {"a": {"if": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}},
    ]
    assert [schema for schema in schemas if not faults(schema)] == []


def levels(count: int) -> Any:
    made: Any = 1
    for _ in range(count):
        made = [made]
    return made


HOLDS_ITSELF: dict[str, Any] = {}
HOLDS_ITSELF["x"] = [HOLDS_ITSELF, HOLDS_ITSELF]


def test_a_malformed_schema_is_refused_with_its_place() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"type": 5}, "type"),
        ({"type": ["string", {}]}, "type"),
        ({"required": [["x"]]}, "required"),
        ({"$ref": 5}, "$ref"),
        ({"properties": {"x": {"if": levels(3)}}}, "properties.x.if"),
        ({"properties": {"x": {"dependentRequired": ["a"]}}}, "properties.x.dependentRequired"),
        ({"properties": {"x": {"dependentRequired": {"a": "b"}}}}, "properties.x.dependentRequired"),
        ({"properties": {"x": {"dependentRequired": {"a": [["b"]]}}}}, "properties.x.dependentRequired"),
        ({"properties": {"x": {"dependentSchemas": {"a": 1}}}}, "properties.x.dependentSchemas.a"),
        ({"properties": {"x": {"patternProperties": {"(": {}}}}}, "properties.x.patternProperties"),
        ({"properties": {"x": {"minContains": "1"}}}, "properties.x.minContains"),
        ({"properties": {"x": {"maxContains": True}}}, "properties.x.maxContains"),
        ({"properties": {"x": {"x-required-by": 5}}}, "properties.x.x-required-by"),
        ({"properties": {"x": {"x-required-by": ["a", 5]}}}, "properties.x.x-required-by"),
    ]
    wrong = []
    for schema, place in cases:
        found = faults(schema)
        if not (found and all(one.startswith(place) for one in found)):
            wrong.append((schema, found))
    assert wrong == []


def test_a_schema_that_cannot_be_traversed_or_compiled_is_refused() -> None:
    schemas: list[dict[str, Any]] = [
        {"properties": {"x": {"default": levels(5_000)}}},
        {"properties": {"x": {"x-note": levels(201)}}},
        {"properties": {"x": {"examples": [HOLDS_ITSELF]}}},
        {"properties": {"x": {"patternProperties": {r"\w{90000}": {}}}}},
        {"properties": {"x": {"$ref": "#/examples"}}, "examples": {"anyOf": 5}},
    ]
    assert [schema.keys() for schema in schemas if not faults(schema)] == []


def test_a_number_above_the_largest_float_is_compared_exactly() -> None:
    layers = layers_of({"properties": {"x": {"multipleOf": 0.5}}})
    layers.check_kwargs({"x": 10**400})
