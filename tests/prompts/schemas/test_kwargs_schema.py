"""Schema of the kwargs of a tree of prompts: merged over any nesting, with one check of all problems."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, ForwardRef, NewType, Optional, Union

import pytest
import typing_extensions
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass

from agentkit.prompts import (
    AdditionalInfoPrompt,
    BasePrompt,
    JsonSchema,
    KwargsError,
    Layers,
    PromptContext,
    PromptError,
    SchemaConflict,
    Template,
    TemplateError,
    TextPrompt,
    UserInput,
    WrapPrompt,
)

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")


class Needs(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    root: str
    depth: int = 3


class Forbids(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
    root: str = ""


class NoArbitrary(BaseModel):
    root: str = ""


class ForbiddingDict(typing_extensions.TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    root: str


class ClosedDict(typing_extensions.TypedDict, closed=True):  # type: ignore[call-arg]
    root: str


class OpenDict(typing_extensions.TypedDict):
    root: str


@pydantic_dataclass(config=ConfigDict(extra="forbid"))
class ForbiddingDataclass:
    root: str = ""


@dataclass
class Plain:
    root: str = ""


class Root(RootModel[Forbids]):
    pass


class RootOfRoot(RootModel[Optional[Root]]):  # noqa: UP045
    pass


Renamed = NewType("Renamed", Forbids)
Alias = typing_extensions.TypeAliasType("Alias", Forbids | None)  # type: ignore[misc]

FORBIDDING: dict[str, Any] = {
    "model": Forbids,
    "adapter": TypeAdapter(Forbids),
    "optional": TypeAdapter(Optional[Forbids]),  # noqa: UP045
    "union": TypeAdapter(int | Forbids),
    "annotated": TypeAdapter(Annotated[Annotated[Forbids, "a"] | None, "b"]),
    "alias": TypeAdapter(Alias),
    "new type": TypeAdapter(Renamed),
    "typed dict": ForbiddingDict,
    "closed typed dict": ClosedDict,
    "dataclass": ForbiddingDataclass,
    "root model": Root,
    "root of a root": RootOfRoot,
    "config of the adapter": TypeAdapter(Optional[Plain], config=ConfigDict(extra="forbid")),  # noqa: UP045
    "JSON Schema": {"type": "object", "additionalProperties": False},
    "unevaluated": {"allOf": [{"unevaluatedProperties": False}]},
    "JSON Schema alternative": {"anyOf": [{"type": "null"}, {"additionalProperties": False}]},
    "JSON Schema reference": {"$ref": "#/$defs/A", "$defs": {"A": {"additionalProperties": False}}},
    "a reference to itself": {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"additionalProperties": False, "$ref": "#/$defs/A"}},
    },
}


def places(schema: Any) -> list[str]:
    """Return the places of the problems of a params schema; empty if a template accepts it."""
    try:
        Template("x", params_schema=schema)
    except PromptError as error:
        assert error.problems
        return [place for place, _ in error.problems]
    return []


def test_a_schema_that_forbids_extras_is_refused_at_construction() -> None:
    accepted = []
    for name, schema in FORBIDDING.items():
        for prompt in (TextPrompt, AdditionalInfoPrompt):
            try:
                prompt(Template("x", params_schema=schema))
            except PromptError as error:
                assert error.problems[0][0] in ("", "Forbids", "ForbiddingDict", "ClosedDict", "ForbiddingDataclass")
            else:
                accepted.append((name, prompt))
    assert accepted == []


def test_a_model_that_refuses_arbitrary_types_is_refused() -> None:
    for schema in (NoArbitrary, TypeAdapter(Optional[NoArbitrary]), Optional[NoArbitrary]):  # noqa: UP045
        assert places(schema) == ["NoArbitrary"]


def test_the_error_names_all_invalid_types() -> None:
    assert places(TypeAdapter(Forbids | NoArbitrary)) == ["Forbids", "NoArbitrary"]


def test_a_schema_that_accepts_the_context_is_accepted() -> None:
    inner = {"properties": {"a": {"additionalProperties": False}}}
    for schema in (Needs, Plain, OpenDict, TypeAdapter(Optional[Needs]), inner, {}):  # noqa: UP045
        assert places(schema) == [], schema


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def test_an_invalid_schema_is_refused_with_its_place() -> None:
    cases: list[tuple[Any, str]] = [
        ({"properties": None}, "properties"),
        ({"properties": ["a"]}, "properties"),
        ({"properties": {"a": 5}}, "properties.a"),
        ({"anyOf": {"a": {}}}, "anyOf"),
        ({"anyOf": ["a"]}, "anyOf[0]"),
        ({"required": "abc"}, "required"),
        ({"items": 3}, "items"),
        ({"$defs": 3}, "$defs"),
        (nested(10_000), ""),
    ]
    assert [places(schema) for schema, _ in cases] == [[place] for _, place in cases]


def test_a_params_schema_is_a_type_or_a_mapping() -> None:
    for value, shown in ((5, 5), (len, "builtin_function_or_method")):
        with pytest.raises(PromptError) as caught:
            Template("x", params_schema=value)  # type: ignore[arg-type]
        assert (caught.value.name, caught.value.value) == ("params_schema", shown)


class Page(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    size: int


def test_names_in_a_params_schema_are_resolved_in_the_scope_of_the_caller() -> None:
    class Local(Page):
        pass

    kinds: list[Any] = [
        *(ForwardRef("Page"), Optional["Page"], Annotated["Page", "text"], Union["Page", "Local"]),
        *(ForwardRef("Local"), Optional["Local"], dict[str, "int"], Annotated[dict["str", "int"], "text"]),
    ]
    for kind in kinds:
        template = Template("{{ size }}", params_schema=kind)
        assert template.render({"size": "3"}) == "3", kind
        assert [name for name, _ in template.problems({"size": "x"})][-1].endswith("size"), kind
        assert template.json_schema, kind
    missing = ForwardRef("Missing")
    for kind in (missing, Annotated[missing, 1], list[missing], dict[str, missing]):  # type: ignore[valid-type]
        with pytest.raises(PromptError) as caught:
            Template("x", params_schema=kind)
        assert (caught.value.name, caught.value.value) == ("params_schema", "Missing")


def test_a_name_in_a_class_can_be_defined_after_the_template() -> None:
    template = Template("{{ size }}", params_schema=Early)
    with pytest.raises(PromptError) as caught:
        template.render({"size": "3"})
    assert (caught.value.name, caught.value.value) == ("params_schema", "Late")
    globals()["Late"] = Page
    assert template.render({"size": "3"}) == "3"
    assert template.problems({"size": "3", "late": {}}) != []


class Early(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    size: int
    late: Late | None = None  # type: ignore[name-defined]  # noqa: F821


def test_the_class_that_a_name_refers_to_is_checked() -> None:
    class Closed(BaseModel):
        model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    with pytest.raises(PromptError) as caught:
        Template("x", params_schema=Optional["Closed"])  # type: ignore[arg-type]
    assert [problem.place for problem in caught.value.problems] == ["Closed"]


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["again"] = schema
    assert places(schema) == [""]


def test_the_check_of_a_value_that_contains_itself_ends() -> None:
    values: list[Any] = ["a"]
    values.append(values)
    for keyword in ("enum", "const", "default"):
        schema = {"properties": {"size": {keyword: values}}}
        try:
            template = Template("x", params_schema=schema)
        except PromptError as error:
            assert error.problems
        else:
            template.problems({"size": "a"})


def test_shared_parts_that_double_the_schema_are_refused() -> None:
    part: dict[str, Any] = {"type": "string", "pattern": "a+"}
    for _ in range(60):
        part = {"properties": {"left": part, "right": part}, "anyOf": [part, part]}
    assert places(part) == [""]
    assert places({"items": {"items": {"items": {"items": {"items": part}}}}}) == [""]


# Merging


def info(schema: Any, **data: Any) -> AdditionalInfoPrompt:
    return AdditionalInfoPrompt(Template("x", params_schema=schema), **data)


def string(name: str) -> JsonSchema:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def test_unknown_keywords_can_contain_any_value() -> None:
    schema = {"properties": {"a": {"x-note": {"properties": 3, "required": 1, "definitions": [2]}}}}
    tree = WrapPrompt(wrapped_prompts=[info(schema, name="one"), info(schema, name="two")])
    assert tree.additional_kwargs_schema is not None


def test_prompts_without_kwargs_have_no_schema() -> None:
    assert TextPrompt("{{ user_input }}").additional_kwargs_schema is None
    wrap = WrapPrompt([TextPrompt("x"), WrapPrompt(wrapped_prompts=[])], "{{ wrapped_str }}")
    assert wrap.additional_kwargs_schema is None
    assert Layers([wrap, "x"]).additional_kwargs_schema is None


def test_a_requirement_passes_through_any_number_of_wrappers() -> None:
    prompt: BasePrompt = info(string("root"))
    path = "system[0]"
    for _ in range(5):
        prompt = WrapPrompt(wrapped_prompts=[TextPrompt("x"), prompt])
        path += ".wrapped_prompts[1]"
    schema = Layers(prompt).additional_kwargs_schema
    assert schema == {
        "type": "object",
        "properties": {"root": {"type": "string", "x-required-by": [path]}},
        "required": ["root"],
    }


def test_equal_properties_are_merged_and_list_all_prompts_that_require_them() -> None:
    tree = WrapPrompt(
        [
            TextPrompt("{{ additional_kwargs.root }}"),
            WrapPrompt(wrapped_prompts=[info({"properties": {"root": {}}})]),
        ],
        "{{ additional_kwargs.root }}{{ wrapped_str }}",
    )
    schema = Layers([TextPrompt("{{ additional_kwargs.root }}"), tree]).additional_kwargs_schema
    assert schema is not None
    assert schema["properties"]["root"]["x-required-by"] == [
        "system[0]",
        "system[1]",
        "system[1].wrapped_prompts[0]",
        "system[1].wrapped_prompts[1].wrapped_prompts[0]",
    ]
    assert schema["required"] == ["root"]


def test_titles_and_descriptions_are_ignored_in_the_comparison() -> None:
    one = {"properties": {"a": {"type": "string", "title": "A", "description": "one", "examples": ["x"]}}}
    other = {"properties": {"a": {"type": "string", "title": "B"}}}
    assert Layers([info(one), info(other)]).additional_kwargs_schema is not None


def test_a_conflict_names_the_property_and_both_prompts() -> None:
    pairs: list[tuple[JsonSchema, JsonSchema]] = [
        ({"type": "string"}, {"type": "integer"}),
        ({"type": "string"}, {}),
        ({"type": "string"}, {"type": "string", "default": "x"}),
        ({"enum": [1]}, {"enum": [True]}),
        ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}),
        ({"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A", "default": 1}),
    ]
    for pair in pairs:
        prompts = [info({"properties": {"a": item}, "$defs": {"A": {"type": "integer"}}}) for item in pair]
        with pytest.raises(SchemaConflict) as caught:
            Layers(WrapPrompt(wrapped_prompts=[prompts[0]]), after_input=prompts[1])
        assert conflict(caught.value) == ("a", ["system[0].wrapped_prompts[0]", "after_input[0]"])
        with pytest.raises(SchemaConflict) as caught:
            WrapPrompt(wrapped_prompts=prompts)
        assert conflict(caught.value) == ("a", ["wrapped_prompts[0]", "wrapped_prompts[1]"])


def conflict(error: SchemaConflict) -> tuple[str | None, list[str]]:
    """Return the kwarg and the paths of the two prompts."""
    return error.name, [path for path, _ in error.problems]


def test_a_wrapper_can_be_in_conflict_with_a_prompt_inside() -> None:
    with pytest.raises(SchemaConflict) as caught:
        WrapPrompt([info(string("a"))], "{{ additional_kwargs.a }}{{ wrapped_str }}")
    assert conflict(caught.value) == ("a", ["", "wrapped_prompts[0]"])


def defining(meaning: JsonSchema, name: str, **others: JsonSchema) -> AdditionalInfoPrompt:
    return info({"properties": {name: {"$ref": "#/$defs/Item"}}, "$defs": {"Item": meaning, **others}})


def accepts(schema: JsonSchema | None, **values: object) -> bool:
    """Return the result of another JSON Schema validator."""
    assert schema is not None
    Draft202012Validator.check_schema(schema)
    return bool(Draft202012Validator(schema).is_valid(values))


def test_different_definitions_with_the_same_name_are_separate() -> None:
    schema = Layers([defining({"type": "integer"}, "a"), defining({"type": "string"}, "b")]).additional_kwargs_schema
    assert accepts(schema, a=1, b="x")
    assert not accepts(schema, a="x")
    assert not accepts(schema, b=1)


def test_equal_definitions_with_the_same_name_are_merged() -> None:
    schema = Layers([defining({"type": "integer"}, "a"), defining({"type": "integer"}, "b")]).additional_kwargs_schema
    assert schema is not None
    assert list(schema["$defs"]) == ["Item"]
    assert accepts(schema, a=1, b=1)
    assert not accepts(schema, b="x")


def test_a_definition_keeps_a_name_that_a_renamed_definition_could_get() -> None:
    second = info(
        {
            "properties": {"b": {"$ref": "#/$defs/Item"}, "c": {"$ref": "#/$defs/Item__2"}},
            "$defs": {"Item": {"type": "string"}, "Item__2": {"type": "boolean"}},
        }
    )
    schema = Layers([defining({"type": "integer"}, "a"), second]).additional_kwargs_schema
    assert accepts(schema, a=1, b="x", c=True)
    for wrong in ({"a": "x"}, {"b": True}, {"c": "x"}):
        assert not accepts(schema, **wrong)


def test_the_keyword_definitions_is_merged() -> None:
    old = info({"properties": {"a": {"$ref": "#/definitions/Item"}}, "definitions": {"Item": {"type": "integer"}}})
    schema = Layers([old, defining({"type": "string"}, "b")]).additional_kwargs_schema
    assert accepts(schema, a=1, b="x")
    assert not accepts(schema, a="x", b="x")


class Tree(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str
    children: list[Tree] = []


class Folder(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    top: Tree


class Other(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str
    top: Tree


def test_recursive_models_merge() -> None:
    schema = Layers([info(Tree), WrapPrompt(wrapped_prompts=[info(Folder)]), info(Other)]).additional_kwargs_schema
    assert schema is not None
    json.dumps(schema)
    assert accepts(schema, name="a", children=[{"name": "b", "children": []}], top={"name": "c"})
    assert not accepts(schema, name="a", top={"name": "c", "children": [{"name": 5}]})
    assert schema["properties"]["top"]["x-required-by"] == ["system[1].wrapped_prompts[0]", "system[2]"]


def test_recursive_definitions_that_differ_in_a_deep_level_are_separate() -> None:
    def tree(leaf: str) -> JsonSchema:
        node = {"properties": {"next": {"$ref": "#/$defs/Node"}, "leaf": {"type": leaf}}, "type": "object"}
        return {"properties": {leaf: {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}

    schema = Layers([info(tree("string")), info(tree("integer"))]).additional_kwargs_schema
    assert accepts(schema, string={"next": {"leaf": "x"}}, integer={"next": {"leaf": 1}})
    assert not accepts(schema, string={"next": {"leaf": 1}})
    assert not accepts(schema, integer={"next": {"next": {"leaf": "x"}}})


def test_a_schema_is_inferred_from_the_names_in_a_template() -> None:
    assert TextPrompt("{{ additional_kwargs.a }}{{ additional_kwargs['b'] }}").additional_kwargs_schema == {
        "type": "object",
        "properties": {"a": {}, "b": {}},
        "required": ["a", "b"],
    }
    assert AdditionalInfoPrompt("{{ root }} {{ user_input }}").additional_kwargs_schema == {
        "type": "object",
        "properties": {"root": {}},
        "required": ["root"],
    }
    optional = TextPrompt("{{ additional_kwargs.a | default('x') }}").additional_kwargs_schema
    assert optional == {"type": "object", "properties": {"a": {}}}
    assert AdditionalInfoPrompt().additional_kwargs_schema is None


def test_boolean_schemas_are_schemas() -> None:
    prompt = AdditionalInfoPrompt(Template("{{ a }}", params_schema={"properties": {"a": True, "b": False}}))
    ctx = PromptContext(user_input=UserInput("", additional_kwargs={"a": 1}))
    assert prompt.format_2_str(ctx) == "1"
    assert [name for name, _ in prompt.kwargs_problems({"a": 1, "b": 2})] == ["b"]
    assert Template("x", params_schema={"anyOf": [True]}).problems({}) == []


# Checking


def test_the_error_names_all_problems_of_kwargs_and_the_prompts_that_require_them() -> None:
    layers = Layers(
        [info(Needs), TextPrompt("{{ additional_kwargs.mode }}")],
        before_input=WrapPrompt(
            [TextPrompt("{{ additional_kwargs.mode }}")],
            "{{ additional_kwargs.outer }}{{ wrapped_str }}",
        ),
    )
    with pytest.raises(KwargsError) as caught:
        layers.check_kwargs({"depth": "deep"})
    problems = caught.value.problems
    assert set(problems) == {"root", "depth", "mode", "outer"}
    assert problems["root"][1] == ("system[0]",)
    assert problems["mode"][1] == ("system[1]", "before_input[0].wrapped_prompts[0]")
    assert problems["outer"][1] == ("before_input[0]",)
    layers.check_kwargs({"root": "/", "mode": "fast", "outer": 1})


def test_a_json_schema_is_checked() -> None:
    cases: list[tuple[JsonSchema, object, str]] = [
        ({"type": "string"}, 1, "a"),
        ({"type": "integer"}, True, "a"),
        ({"type": ["string", "null"]}, 5, "a"),
        ({"enum": ["a", "b"]}, "c", "a"),
        ({"const": 1}, 2, "a"),
        ({"type": "array", "items": {"type": "string"}}, ["a", 1], "a[1]"),
        ({"properties": {"b": {"type": "string"}}, "required": ["b"]}, {}, "a.b"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, "a"),
        ({"$ref": "#/$defs/A"}, 5, "a"),
        ({"type": "object"}, date(2026, 1, 2), "a"),
        ({"additionalProperties": {"type": "string"}}, {0.5: 1}, "a.0.5"),
        ({"type": "object"}, {"b": [{"c": date(2026, 1, 2)}]}, "a.b[0].c"),
        ({"type": ["object", "string"]}, {"b": {1}}, "a.b"),
        ({"$ref": "#/$defs/B"}, {"b": object()}, "a.b"),
    ]
    for schema, value, place in cases:
        prompt = info({"properties": {"a": schema}, "$defs": {"A": {"type": "string"}, "B": {"properties": {}}}})
        assert [name for name, _ in prompt.kwargs_problems({"a": value})] == [place]
        ctx = PromptContext(user_input=UserInput("", additional_kwargs={"a": value}))
        with pytest.raises(KwargsError) as caught:
            prompt.format_2_str(ctx)
        assert list(caught.value.problems) == [place]


def test_a_kwarg_without_a_type_and_fields_of_dataclasses_accept_any_object() -> None:
    @dataclass
    class Visit:
        day: date

    prompt = info({"properties": {"a": {"description": "anything"}, "b": {"type": "object"}}})
    assert prompt.kwargs_problems({"a": [date(2026, 1, 2)], "b": {"visit": Visit(date(2026, 1, 2))}}) == []


def test_defaults_of_the_schema_apply() -> None:
    prompt = AdditionalInfoPrompt(Template("{{ root }} {{ depth }}", params_schema=Needs))
    ctx = PromptContext(user_input=UserInput("", additional_kwargs={"root": "/"}))
    assert prompt.format_2_str(ctx) == "/ 3"
    by_json = AdditionalInfoPrompt(Template("{{ a }}", params_schema={"properties": {"a": {"default": "x"}}}))
    assert by_json.format_2_str(PromptContext(user_input="")) == "x"


def test_an_endlessly_nested_value_is_a_problem() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    schema = {
        "properties": {"a": {"$ref": "#/$defs/L"}},
        "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}},
    }
    assert len(info(schema).kwargs_problems({"a": deep})) == 1


def test_a_kwarg_cannot_have_a_name_of_the_context() -> None:
    for name in ("documents", "user_input", "additional_kwargs", "now"):
        with pytest.raises(PromptError) as caught:
            info({"properties": {name: {}}})
        assert caught.value.name == name


def test_a_kwarg_does_not_hide_the_context_from_other_prompts() -> None:
    ctx = PromptContext(
        user_input=UserInput("question", additional_kwargs={"documents": "forged", "user_input": "forged"})
    )
    assert AdditionalInfoPrompt("{{ user_input }}").format_2_str(ctx) == "question"
    assert TextPrompt("{{ user_input }}{{ documents | length }}").format_2_str(ctx) == "question0"


def test_a_name_that_the_context_cannot_supply_is_an_error_at_construction() -> None:
    with pytest.raises(TemplateError) as caught:
        TextPrompt(Template("a\n{{ document }}{{ other }}", file="p.j2"))
    assert (caught.value.file, caught.value.line, caught.value.variable) == ("p.j2", 2, "document")


def test_the_error_names_a_custom_prompt_with_an_invalid_schema() -> None:
    class Odd(TextPrompt):
        @property
        def additional_kwargs_schema(self) -> JsonSchema | None:
            return {"properties": []}  # a mistake

    with pytest.raises(PromptError) as caught:
        Layers(Odd("x"))
    assert (caught.value.prompt, [place for place, _ in caught.value.problems]) == ("system[0]", ["properties"])
