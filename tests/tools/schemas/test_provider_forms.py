"""Tools in the form of each provider: schemas of the kinds of well-known servers, and generated schemas."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field

from agentkit import ToolCall
from agentkit.prompts import Layers, PromptContext, ToolFormWarning, ToolSpec, compose
from agentkit.tools import (
    Tool,
    ToolArgumentError,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from agentkit_prompts.schemas.provider_tools import anthropic_form, gemini_form
from tests.effort import spread
from tests.tools.schemas.provider_checks import anthropic_faults, gemini_faults, openai_faults
from tests.tools.schemas.test_tool_json_schema import SCHEMAS

RICH_TEXT = {
    "type": "object",
    "properties": {
        "type": {"enum": ["text"]},
        "text": {
            "type": "object",
            "properties": {"content": {"type": "string", "maxLength": 2000}},
            "required": ["content"],
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}
PAGES = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "parent": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"page_id": {"type": "string", "format": "uuid"}},
                    "required": ["page_id"],
                },
                {"type": "object", "properties": {"workspace": {"const": True}}, "required": ["workspace"]},
            ]
        },
        "children": {"type": "array", "maxItems": 100, "items": {"$ref": "#/$defs/block"}},
        "icon": {"type": "string", "nullable": True, "example": "🎉", "x-order": 3},
        "again": {"$ref": "#/properties/parent"},
        "Notion-Version": {"type": "string", "default": "2022-06-28", "pattern": "^(?!x)\\d{4}-\\d{2}-\\d{2}$"},
    },
    "required": ["parent", "children"],
    "additionalProperties": False,
    "$defs": {
        "block": {
            "type": "object",
            "properties": {
                "object": {"const": "block"},
                "paragraph": {"type": "array", "items": {"$ref": "#/$defs/richText"}},
                "children": {"type": "array", "items": {"$ref": "#/$defs/block"}},
            },
            "required": ["paragraph"],
        },
        "richText": RICH_TEXT,
        "emoji": {"type": "object"},
        "unused~1": {"anyOf": [{}, True]},
    },
}
ISSUES = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "state": {"type": ["string", "null"], "enum": ["open", "closed", None]},
        "assignee": {"type": ["string", "integer", "null"]},
        "labels": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"id": {}}}]},
        },
        "milestone": {"allOf": [{"$ref": "#/definitions/milestone"}, {"required": ["title"]}]},
        "per_page": {"type": "integer", "minimum": 1, "exclusiveMaximum": True, "maximum": 100, "default": 30},
    },
    "required": ["owner"],
    "anyOf": [{"required": ["labels"]}, {"required": ["state"]}],
    "definitions": {
        "milestone": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "due": {"type": "string", "format": "date"}},
        }
    },
}
ODATA = {
    "type": "object",
    "properties": {
        "$filter": {"type": "string"},
        "@microsoft.graph.conflictBehavior": {"enum": ["fail", "rename"]},
        "filter[id]": {"type": "array", "items": {"type": "string"}},
        "filter(id)": {"type": "array", "items": {"type": "string"}},
        "settings__approved__or__denied__countries__or__regions__approved__list__all": {"type": "string"},
        "1st": {"type": "integer", "enum": [1, 2]},
        "deep": {"type": "object", "properties": {"größe": {"type": "number"}}, "required": ["größe"]},
    },
    "required": ["$filter", "filter[id]"],
}
TUPLES = {
    "type": "object",
    "properties": {
        "box": {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "minItems": 2},
        "unit": {"type": "array", "enum": ["m", "km"]},
        "mode": {"enum": ["a", 1, None]},
        "when": {"type": "string", "format": "date-time", "default": None},
        "bare": {"type": "array"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "if": {"type": "string"},
    },
    "if": {"properties": {"if": {"const": "a"}}},
    "then": {"required": ["unit"]},
}
ROOTS = {
    "oneOf": [
        {"type": "object", "properties": {"id": {"type": "string"}, "by": {"const": "id"}}, "required": ["id", "by"]},
        {"type": "object", "properties": {"name": {"type": "string"}, "by": {"const": "name"}}, "required": ["by"]},
    ]
}
ROOT_REFERENCE = {
    "$ref": "#/$defs/Input",
    "$defs": {"Input": {"type": "object", "properties": {"next": {"$ref": "#"}}}},
}
WIDE = {
    "properties": {"a": {"type": ["object", "null"], "properties": {"b": {"type": ["array", "string"]}}}},
    "nullable": True,
}
SHAPES: dict[str, Any] = {
    "pages": PAGES,
    "issues": ISSUES,
    "odata": ODATA,
    "tuples": TUPLES,
    "roots": ROOTS,
    "root reference": ROOT_REFERENCE,
    "wide": WIDE,
    "nothing": None,
    "3d": {"type": "object"},
}


async def echo(**arguments: Any) -> Any:
    return arguments


def faults(made: Tool) -> list[str]:
    found = [*openai_faults(made.to_openai()), *anthropic_faults(made.to_anthropic()), *gemini_faults(made.to_gemini())]
    try:
        strict = made.strict()
    except ToolDefinitionError:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ToolFormWarning)
        return found + faults(strict) if made is not strict else found


def test_no_form_of_a_tool_breaks_a_rule_of_its_provider() -> None:
    broken = {name: faults(Tool.from_json_schema(name, "Act.", schema, echo)) for name, schema in SHAPES.items()}
    assert broken == {name: [] for name in SHAPES}


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=5), SCHEMAS, max_size=4), st.data())
def test_no_form_of_any_schema_breaks_a_rule(properties: dict[str, Any], data: st.DataObject) -> None:
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
    assert faults(Tool.from_json_schema("t", "", {"properties": properties, "required": required}, echo)) == []


@pytest.mark.parametrize("name", ["pages", "issues", "odata", "roots", "root reference"])
def test_tools_of_well_known_kinds_can_be_strict(name: str) -> None:
    made = Tool.from_json_schema(name, "Act.", SHAPES[name], echo)
    if name == "issues":
        with pytest.raises(ToolDefinitionError) as caught:
            made.strict()
        assert (caught.value.tool, caught.value.names) == (name, ("labels[].id",))
        return
    assert made.strict().spec.strict


def test_a_strict_schema_has_its_used_definitions_and_keeps_null() -> None:
    strict = Tool.from_json_schema("pages", "", PAGES, echo).strict().spec.parameters
    assert set(strict["$defs"]) == {"block", "richText", "parent"}
    assert strict["properties"]["icon"] == {"type": ["string", "null"]}
    assert "pattern" not in json.dumps(strict["properties"]["Notion-Version"])
    assert strict["$defs"]["richText"]["properties"]["type"]["anyOf"][0] == {"type": "string", "enum": ["text"]}
    written = {"parent": {"workspace": True}, "children": [], "icon": None, "again": None, "Notion-Version": None}
    Draft202012Validator(json.loads(json.dumps(strict))).validate(written)
    one = Tool.from_json_schema("pages", "", PAGES, echo).strict()
    assert one.validate(json.dumps(written)) == {"parent": {"workspace": True}, "children": [], "icon": None}


async def test_names_that_a_provider_refuses_are_replaced_and_mapped_back() -> None:
    made = Tool.from_json_schema("odata", "", ODATA, echo)
    own = {"$filter": "x", "filter[id]": ["1"], "deep": {"größe": 1.5}, "1st": 2}
    for schema in (made.to_anthropic()["input_schema"], made.to_gemini()["parameters"]):
        names = list(schema["properties"])
        assert len(set(names)) == len(ODATA["properties"])
        wire = dict(zip(ODATA["properties"], names, strict=True))
        inner = next(iter(schema["properties"]["deep"]["properties"]))
        sent = {wire[name]: {inner: 1.5} if name == "deep" else value for name, value in own.items()}
        result = await made.call(ToolCall("c", made.name, json.dumps(sent)), ToolContext(None))
        assert result.value == own
        result = await made.call(ToolCall("c", made.name, json.dumps({**sent, wire["$filter"]: 3})), ToolContext(None))
        assert isinstance(result.error, ToolArgumentError)
        assert [problem.path for problem in result.error.problems] == ["$filter"]
        strict = json.dumps({**dict.fromkeys(names), **sent})
        assert made.strict().validate(strict) == own
    assert made.validate(json.dumps(own)) == own


def test_a_schema_without_a_type_has_the_type_of_its_keywords() -> None:
    fields = {
        "point": {"properties": {"x": {"type": "number"}}},
        "tags": {"items": {"type": "string"}},
        "pair": {"prefixItems": [{"type": "string"}]},
    }
    sent = gemini_form(ToolSpec("t", "", {"type": "object", "properties": fields}))["parameters"]
    assert {name: field["type"] for name, field in sent["properties"].items()} == {
        "point": "object",
        "tags": "array",
        "pair": "array",
    }


def test_a_list_of_types_becomes_alternatives_if_a_provider_does_not_accept_lists() -> None:
    parameters = {"type": "object", "properties": {"id": {"type": ["string", "integer"]}}, "required": ["id"]}
    sent = gemini_form(ToolSpec("t", "", parameters))["parameters"]
    assert [option["type"] for option in sent["properties"]["id"]["anyOf"]] == ["string", "integer"]
    strict = Tool.from_json_schema("t", "", parameters, echo).strict()
    assert strict.spec.parameters["properties"]["id"] == {"type": ["string", "integer"]}


def test_limits_that_a_provider_supports_are_sent() -> None:
    fields = {"page": {"type": "integer", "minimum": 1, "maximum": 9}, "name": {"type": "string", "maxLength": 3}}
    parameters = {"type": "object", "properties": fields, "required": ["page", "name"]}
    strict = Tool.from_json_schema("t", "", parameters, echo).strict()
    assert strict.spec.parameters["properties"] == {"page": fields["page"], "name": {"type": "string"}}


def test_a_minimum_of_items_is_sent_if_the_provider_supports_it() -> None:
    for least, sent in ((1, {"minItems": 1}), (2, {})):
        items = {"type": "array", "items": {"type": "string"}, "minItems": least}
        schema = {"type": "object", "properties": {"names": items}, "additionalProperties": False}
        strict = Tool.from_json_schema("t", "", schema, echo).strict()
        entry = strict.to_anthropic()
        assert entry["strict"] is True
        names = entry["input_schema"]["properties"]["names"]["anyOf"][0]
        assert {key: value for key, value in names.items() if key == "minItems"} == sent


def test_references_follow_properties_that_are_renamed() -> None:
    fields = {
        "filter[id]": {"type": "string", "description": "See #/properties/filter[id]."},
        "again": {"$ref": "#/properties/filter[id]"},
        "link": {"$ref": "#/$defs/a"},
    }
    parameters = {"type": "object", "properties": fields, "$defs": {"a": {"type": "null"}}}
    sent = anthropic_form(ToolSpec("t", "", parameters))["input_schema"]
    (wire,) = [name for name in sent["properties"] if name.startswith("filter_id_")]
    assert sent["properties"]["again"] == {"$ref": f"#/properties/{wire}"}
    assert sent["properties"][wire]["description"] == "See #/properties/filter[id]."
    assert sent["properties"]["link"] == {"$ref": "#/$defs/a"}


def test_names_of_parameters_of_a_function_are_mapped_back_too() -> None:
    @tool
    def act(top: Annotated[int, Field(alias="$top")] = 1) -> int:
        return top

    (name,) = act.to_anthropic()["input_schema"]["properties"]
    assert name != "$top"
    assert act.validate(json.dumps({name: 5})) == {"top": 5}


def test_a_description_over_the_limit_is_cut_and_the_tool_is_named() -> None:
    made = Tool.from_json_schema("talk", "x" * 3_000, None, echo)
    with pytest.warns(ToolFormWarning):
        assert len(made.to_openai()["function"]["description"]) == 1_024
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(made.to_anthropic()["description"]) == 3_000


def test_a_tool_that_cannot_be_strict_at_one_provider_is_sent_without_strict_and_warns() -> None:
    strict = Tool.from_json_schema("pages", "", PAGES, echo).strict()
    with pytest.warns(ToolFormWarning):
        assert "strict" not in strict.to_anthropic()
    assert Tool.from_json_schema("odata", "", ODATA, echo).strict().to_anthropic()["strict"] is True


def test_sent_tools_have_the_forms_of_the_providers() -> None:
    specs = [Tool.from_json_schema(name, "Act.", schema, echo).spec for name, schema in SHAPES.items()]
    composition = compose(Layers("Be brief."), PromptContext(user_input="Hi", tools=specs))
    assert not [fault for entry in composition.to_openai()["tools"] for fault in openai_faults(entry)]
    assert not [fault for entry in composition.to_anthropic()["tools"] for fault in anthropic_faults(entry)]


def test_a_local_server_gets_complete_descriptions_and_the_provider_does_not() -> None:
    spec = ToolSpec("talk", "x" * 3_000)
    composition = compose(Layers("Be brief."), PromptContext(user_input="Hi", tools=[spec]))

    def length(host: str) -> int:
        return len(composition.to_openai(host)["tools"][0]["function"]["description"])

    assert length("localhost:8000") == 3_000
    with pytest.warns(ToolFormWarning):
        assert length("api.openai.com") == length("mine.openai.azure.com:443") == 1_024


def test_a_recursive_tool_ends_for_gemini() -> None:
    parameters = Tool.from_json_schema("pages", "", PAGES, echo).to_gemini()["parameters"]
    block = parameters["properties"]["children"]["items"]
    assert block["properties"]["children"]["items"] == {"type": "object"}
    assert asyncio.run(Tool.from_json_schema("p", "", PAGES, echo).call(ToolCall("c", "p", "{}"), ToolContext(None)))


def chained(inner: Any, count: int) -> dict[str, Any]:
    """A schema whose definitions each refer to the next definition."""
    definitions = {f"d{number}": inner({"$ref": f"#/$defs/d{number + 1}"}) for number in range(count)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, f"d{count}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    spread(
        [
            chained(lambda ref: {"type": "object", "properties": {"x": ref, "y": ref}}, 40),
            chained(lambda ref: {"anyOf": [ref, ref]}, 40),
            chained(lambda ref: {"allOf": [ref, ref]}, 40),
            chained(lambda ref: ref, 2_000),
            chained(lambda ref: {"type": "object", "properties": {"x": ref}}, 2_000),
            {"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}},
            {"allOf": [{"$ref": "#"}], "anyOf": [{"$ref": "#"}]},
            {"properties": {"a": {"enum": list(range(20_000))}}},
        ],
        2,
    ),
    ids=["tree", "any", "all", "references", "deep", "itself", "root", "enum"],
)
def test_schemas_that_grow_when_references_are_replaced_end(schema: Any) -> None:
    assert faults(Tool.from_json_schema("t", "", schema, echo)) == []
