"""Whatever a schema says, making a prompt of it and checking values against it ends, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import process_time
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from agentkit.prompts import AdditionalInfoPrompt, KwargsError, Layers, PromptError, SchemaConflict, Template
from agentkit_prompts.schemas.merge import merge_schemas


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


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"patternProperties": {f"^{n}": {} for n in range(2_000)}}, {str(n): n for n in range(2_000)}),
        ({"uniqueItems": True}, [[n] for n in range(3_000)]),
        ({"items": {"uniqueItems": True}}, [list(range(3_000))] * 400),
        ({"uniqueItems": True}, [[[0] * 10_000, n] for n in range(150)]),
        ({"items": {"dependentRequired": {str(n): [] for n in range(2_000)}}}, [{"a": 1}] * 2_000),
        ({"items": {"dependentSchemas": {str(n): {} for n in range(2_000)}}}, [{"b": n} for n in range(2_000)]),
        ({"items": {"contains": {"const": 1}}}, [[0] * 2_000] * 2_000),
    ],
    ids=["names", "pairs", "scalars", "alike", "needs", "schemas", "items"],
)
def test_a_product_of_what_a_schema_and_a_value_hold_is_given_up(rule: dict[str, Any], value: object) -> None:
    with pytest.raises(KwargsError, match="takes more than 1,000,000 steps to check"):
        layers_of({"properties": {"x": rule}}).check_kwargs({"x": value})


@pytest.mark.long
def test_a_product_of_alternatives_and_items_is_given_up() -> None:
    options = [{"type": "integer", "minimum": number} for number in range(1, 5_001)]
    schema = {"properties": {"x": {"items": {"anyOf": options}}}}
    with pytest.raises(KwargsError, match="takes more than 1,000,000 steps to check"):
        layers_of(schema).check_kwargs({"x": [-number for number in range(5_000)]})


NAMES = [f"name {number}" for number in range(5_000)]


@pytest.mark.parametrize(
    ("item", "value", "what"),
    [
        ({"enum": NAMES}, list(map(str.upper, NAMES)), "should be one of"),
        ({"enum": [{"n": name} for name in NAMES]}, [{"n": 1}] * 5_000, "1,000,000 steps"),
        ({"const": "x" * 1_000_000}, ["x"] * 5_000, "should be 'xxx"),
        ({"type": ["string"] * 5_000}, list(range(5_000)), "1,000,000 steps"),
        ({"required": NAMES}, [{}] * 5_000, "1,000,000 steps"),
        ({"properties": {name: {} for name in NAMES}}, [{}] * 5_000, None),
        ({"pattern": "^[a-z]{1,30000}$"}, ["a" * 20_000] * 5_000, "1,000,000 steps"),
        ({"additionalProperties": {"type": "null"}}, [{"x" * 1_000_000: 1}] * 5_000, "should be null"),
        ({"multipleOf": 0.1}, [float("inf"), 10**400 + 1], "should be a multiple"),
    ],
)
def test_a_product_of_what_a_schema_lists_and_items_is_bounded(item: Any, value: Any, what: str | None) -> None:
    layers = layers_of({"properties": {"x": {"items": item}}})
    if what is None:
        layers.check_kwargs({"x": value})
        return
    with pytest.raises(KwargsError, match=what) as caught:
        layers.check_kwargs({"x": value})
    assert len(str(caught.value)) < 1_000_000


def test_values_of_an_enum_are_told_apart_as_json_tells_them() -> None:
    layers = layers_of({"properties": {"x": {"items": {"enum": [1, "2", None, 0.5, {"a": 1}]}}}})
    layers.check_kwargs({"x": [1, 1.0, "2", None, 0.5, {"a": 1.0}]})
    with pytest.raises(KwargsError) as caught:
        layers.check_kwargs({"x": [True, 2, "1", "null", {"a": 2}, [1]]})
    assert set(caught.value.problems) == {f"x[{at}]" for at in range(6)}


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"properties": {f"x{at}": {"pattern": r"^\w{1,400}$"} for at in range(200)}}, "at most 200,000 are allowed"),
        ({"multipleOf": float("inf")}, "multipleOf must be a finite number"),
        ({"minimum": "9" * 1_000_000}, "minimum must be a number, got '999"),
        ({"properties": {"x" * 1_000_000: {"properties": dict.fromkeys(NAMES, 5)}}}, "must be an object or a boolean"),
    ],
)
def test_what_is_wrong_with_a_schema_is_found_soon_and_named_in_short(schema: Any, complaint: str) -> None:
    with pytest.raises(PromptError, match=complaint) as caught:
        layers_of(schema)
    assert len(str(caught.value)) < 5_000_000


def test_references_by_other_names_are_looked_at_once_and_an_index_is_written_in_one_way() -> None:
    again = {f"r{zeros}": {"$ref": f"#/allOf/{'0' * zeros}"} for zeros in range(1, 2_000)}
    large = {"properties": {name: {"type": "string"} for name in NAMES}}
    layers = layers_of({"allOf": [large], "properties": {**again, "far": {"$ref": f"#/allOf/{'9' * 10_000}"}}})
    layers.check_kwargs({"r2": {NAMES[0]: 5}, "far": 1})
    with pytest.raises(KwargsError, match="should be string"):
        layers.check_kwargs({"r1": {NAMES[0]: 5}})


def chained(count: int, end: dict[str, Any]) -> dict[str, Any]:
    """Properties by definitions, each of which offers the next one."""
    defs: dict[str, Any] = {
        name: {"anyOf": [{"$ref": f"#/$defs/{after}"}, {"type": "null"}]} for name, after in pairwise(NAMES[:count])
    }
    named = {name: {"$ref": f"#/$defs/{name}"} for name in defs}
    return {"properties": named, "$defs": {**defs, NAMES[count - 1]: end}}


def cyclic(count: int) -> dict[str, Any]:
    """A list of lists without end, in so many definitions."""
    defs = {f"d{at}": {"items": {"$ref": f"#/$defs/d{(at + 1) % count}"}} for at in range(count)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def same(count: int) -> None:
    texts: list[dict[str, Any]] = [{"type": "string"}, {"title": "End", "type": "string"}]
    merged = merge_schemas([(end.get("title", ""), chained(count, end)) for end in texts])
    assert merged is not None and len(merged["$defs"]) == count


def conflicting(count: int) -> None:
    schemas = [(kind, chained(count, {"type": kind})) for kind in ("string", "integer")]
    with pytest.raises(SchemaConflict, match="string wants") as caught:
        merge_schemas(schemas)
    assert len(str(caught.value)) < 5_000


def apart(count: int) -> None:
    unused = {**chained(count, {"type": "integer"}), "properties": {}}
    merged = merge_schemas([("a", chained(count, {})), ("b", unused)])
    assert merged is not None and len(merged["$defs"]) == 2 * count


def around(count: int) -> None:
    merged = merge_schemas([("a", cyclic(count - 1)), ("b", cyclic(count))])
    assert merged is not None and len(merged["$defs"]) == count


@pytest.mark.parametrize("merging", [same, conflicting, apart, around])
def test_definitions_that_lead_to_each_other_are_compared_once(merging: Callable[[int], None]) -> None:
    def seconds(count: int) -> float:
        start = process_time()
        merging(count)
        return process_time() - start

    seconds(10)
    small, large = seconds(100), seconds(800)
    assert large / small < 30  # 8 times as many; where each is looked through to its end, 64 times as long


ITEM = {"$ref": "#/$defs/item"}


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ({"items": {"enum": [{"title": "a"}]}}, {"items": {"enum": [{"title": "b"}]}}, False),
        ({"default": {"description": "a"}}, {"default": {"description": "b"}}, False),
        ({"$ref": "https://x.test/a"}, {"$ref": "https://x.test/b"}, False),
        ({"properties": {"title": {}}}, {"properties": {}}, False),
        ({"items": {**ITEM, "minimum": 3}}, {"items": {"type": "integer", "minimum": 3}}, True),
        ({"items": {**ITEM, "minimum": 3}}, {"items": ITEM}, False),
        ({"required": ["b", "a"]}, {"required": ["a", "b"]}, True),
        ({"items": ITEM}, {"items": {"title": "I", "type": "integer"}}, True),
    ],
)
def test_properties_are_the_same_where_they_mean_the_same(one: Any, other: Any, are_same: bool) -> None:
    schemas = [{"properties": {"x": item}, "$defs": {"item": {"type": "integer"}}} for item in (one, other)]
    if are_same:
        assert merge_schemas(list(zip("ab", schemas, strict=True))) is not None
    else:
        with pytest.raises(SchemaConflict, match="'x'"):
            merge_schemas(list(zip("ab", schemas, strict=True)))


def test_one_object_in_two_schemas_means_what_each_of_them_defines() -> None:
    shared = {"items": ITEM}
    schemas = [{"properties": {"x": shared}, "$defs": {"item": {"type": kind}}} for kind in ("integer", "string")]
    with pytest.raises(SchemaConflict, match=r"integer.*string"):
        merge_schemas(list(zip("ab", schemas, strict=True)))


def test_references_follow_a_definition_that_is_renamed_whatever_its_name() -> None:
    def schema(name: str, kind: str) -> dict[str, Any]:
        defs = {"a/b~c": {"properties": {"deep": {"type": kind}}}}
        refs = {"to": {"$ref": "#/$defs/a~1b~0c"}, "into": {"$ref": "#/$defs/a~1b~0c/properties/deep"}}
        return {"properties": {f"{name}_{way}": one for way, one in refs.items()}, "$defs": defs}

    merged = merge_schemas([("p", schema("p", "integer")), ("q", schema("q", "string"))])
    assert merged is not None and len(merged["$defs"]) == 2
    validator = Draft202012Validator(merged)
    assert validator.is_valid({"p_to": {"deep": 1}, "p_into": 1, "q_to": {"deep": "x"}, "q_into": "x"})
    for wrong in ({"q_to": {"deep": 1}}, {"q_into": 1}, {"p_to": {"deep": "x"}}):
        assert not validator.is_valid(wrong)


def test_a_reference_to_false_lets_nothing_in() -> None:
    layers = layers_of({"properties": {"x": {"$ref": "#/$defs/never"}}, "$defs": {"never": False}})
    with pytest.raises(KwargsError, match="matches what is not allowed"):
        layers.check_kwargs({"x": 1})


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


def levels(count: int) -> Any:
    made: Any = 1
    for _ in range(count):
        made = [made]
    return made


HOLDS_ITSELF: dict[str, Any] = {}
HOLDS_ITSELF["x"] = [HOLDS_ITSELF, HOLDS_ITSELF]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": 5}, "type must hold names"),
        ({"type": ["string", {}]}, "type must hold names"),
        ({"required": [["x"]]}, "required must hold names"),
        ({"$ref": 5}, r"\$ref must be a str"),
        ({"properties": {"x": {"$ref": "#/examples"}}, "examples": {"anyOf": 5}}, "anyOf must be a list"),
        ({"properties": {"x": {"default": levels(5_000)}}}, "nest deeper than 200 levels"),
        ({"properties": {"x": {"x-note": levels(201)}}}, "nest deeper than 200 levels"),
        ({"properties": {"x": {"if": levels(201)}}}, r"x\.if must be an object or a boolean"),
        ({"properties": {"x": {"dependentRequired": ["a"]}}}, "dependentRequired must be an object of lists of names"),
        ({"properties": {"x": {"dependentRequired": {"a": "b"}}}}, "dependentRequired must be an object of lists"),
        ({"properties": {"x": {"dependentRequired": {"a": [["b"]]}}}}, "dependentRequired must be an object of lists"),
        ({"properties": {"x": {"dependentSchemas": {"a": 1}}}}, r"dependentSchemas\.a must be an object or a boolean"),
        ({"properties": {"x": {"patternProperties": {"(": {}}}}}, "patternProperties must be a regular expression"),
        ({"properties": {"x": {"patternProperties": {r"\w{90000}": {}}}}}, "patterns have 9,180,000 characters"),
        ({"properties": {"x": {"minContains": "1"}}}, "minContains must be a number, got '1'"),
        ({"properties": {"x": {"maxContains": True}}}, "maxContains must be a number, got True"),
        (
            {
                "$defs": {"a": {"dependentSchemas": {"b": {"$ref": "#/$defs/a"}}}},
                "properties": {"x": {"$ref": "#/$defs/a"}},
            },
            "to itself",
        ),
        ({"$defs": {"a": {"if": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}}, "to itself"),
        ({"properties": {"x": {"examples": [HOLDS_ITSELF]}}}, "nest deeper than 200 levels"),
        ({"properties": {"x": {"x-required-by": 5}}}, "x-required-by must be a list of prompt paths"),
        ({"properties": {"x": {"x-required-by": ["a", 5]}}}, "x-required-by must be a list of prompt paths"),
    ],
)
def test_a_malformed_schema_is_refused_with_its_place(schema: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PromptError, match=complaint):
        layers_of(schema)


def test_a_number_beyond_every_float_is_compared_exactly() -> None:
    layers = layers_of({"properties": {"x": {"multipleOf": 0.5}}})
    layers.check_kwargs({"x": 10**400})
