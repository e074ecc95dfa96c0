"""Large valid values, and the place of an invalid value in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import pytest

from agentkit_prompts.schemas.json_validator import JsonValidator

MAX_SECONDS = 1.5


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required or properties),
        "additionalProperties": False,
    }


def listed(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def tagged(tag: str, **properties: Any) -> dict[str, Any]:
    return fields(kind={"const": tag}, **properties)


TEXT, NUMBER = {"type": "string"}, {"type": "number"}

ORDERS = {
    **fields(orders=listed(ref("order"))),
    "$defs": {
        "order": fields(
            id={"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
            customer={"anyOf": [ref("person"), ref("company")]},
            addresses=listed(ref("address")),
            lines=listed(ref("line")),
            note={"anyOf": [TEXT, {"type": "null"}]},
        ),
        "person": fields(first_name=TEXT, last_name=TEXT, email=TEXT),
        "company": fields(name=TEXT, tax_number=TEXT, contact=ref("person")),
        "address": fields(street=TEXT, city=TEXT, country={"enum": ["DE", "FR", "IT", "US"]}),
        "line": fields(
            product={"oneOf": [fields(sku=TEXT), fields(bundle=listed(TEXT))]},
            quantity={"type": "integer", "minimum": 1},
            price={"anyOf": [NUMBER, fields(amount=NUMBER, currency=TEXT)]},
        ),
    },
}


def orders() -> Any:
    person = {"first_name": "Ada", "last_name": "King", "email": "ada@example.com"}
    company = {"name": "Engines", "tax_number": "7", "contact": person}
    address = {"street": "Road 1", "city": "Rome", "country": "IT"}
    lines = [
        {"product": {"sku": "a"}, "quantity": 1, "price": 2.5},
        {"product": {"bundle": ["a", "b"]}, "quantity": 2, "price": {"amount": 1, "currency": "EUR"}},
    ]
    return {
        "orders": [
            {
                "id": f"IT-{number}",
                "customer": company if number % 2 else person,
                "addresses": [address, address],
                "lines": lines * 3,
                "note": None,
            }
            for number in range(1_000)
        ]
    }


FILTERS = {
    **fields(filter=ref("filter")),
    "$defs": {
        "filter": {"anyOf": [ref("and"), ref("or"), ref("not"), ref("comparison")]},
        "and": fields(**{"and": listed(ref("filter"))}),
        "or": fields(**{"or": listed(ref("filter"))}),
        "not": fields(**{"not": ref("filter")}),
        "comparison": fields(field=TEXT, operator={"enum": ["=", "<", ">"]}, value={"type": ["string", "number"]}),
    },
}


def filters() -> Any:
    value: Any = {"field": "age", "operator": ">", "value": 5}
    for level in range(30):
        keyword = ("and", "or")[level % 2]
        other = {"not": {"field": "name", "operator": "=", "value": f"n{level}"}}
        value = {keyword: [value, other, other, other]}
    return {"filter": value}


COMPONENTS = {
    **fields(page=ref("component")),
    "$defs": {
        "component": {"anyOf": [ref("stack"), ref("card"), ref("text"), ref("button"), ref("table")]},
        "stack": tagged("stack", children=listed(ref("component"))),
        "card": tagged("card", title=TEXT, children=listed(ref("component"))),
        "text": tagged("text", text=TEXT),
        "button": tagged("button", label=TEXT, action=TEXT),
        "table": tagged("table", rows=listed(listed({"anyOf": [TEXT, NUMBER, {"type": "null"}]}))),
    },
}


def components() -> Any:
    leaves: list[Any] = [
        {"kind": "text", "text": "Hello"},
        {"kind": "button", "label": "Send", "action": "send"},
        {"kind": "table", "rows": [["a", 1, None]] * 20},
    ]
    inner = leaves
    for level in range(6):
        card = {"kind": "card", "title": "t", "children": inner}
        inner = [card, {"kind": "stack", "children": leaves}] if level % 2 else [card, *leaves]
    return {"page": {"kind": "stack", "children": inner * 3}}


FOLDERS = {
    **fields(root=ref("folder")),
    "$defs": {
        "folder": fields("name", name=TEXT, folders=listed(ref("folder")), files=listed(ref("file"))),
        "file": fields(name=TEXT, size={"type": "integer"}, tags={"type": "object", "additionalProperties": TEXT}),
    },
}


def folders() -> Any:
    files = [{"name": f"f{number}", "size": number, "tags": {f"t{number}": "x"}} for number in range(100)]
    value: Any = {"name": "last", "files": files}
    for level in range(60):
        value = {"name": f"d{level}", "folders": [{"name": "leaf"}, value, {"name": "leaf"}], "files": files}
    return {"root": value}


POSITION = {"type": "array", "prefixItems": [NUMBER, NUMBER], "items": NUMBER, "minItems": 2}
FEATURES = {
    **fields(features=listed(ref("feature"))),
    "$defs": {
        "feature": fields(geometry=ref("geometry"), properties={"type": "object"}),
        "geometry": {
            "oneOf": [
                tagged("Point", coordinates=POSITION),
                tagged("LineString", coordinates=listed(POSITION)),
                tagged("Polygon", coordinates=listed(listed(POSITION))),
                tagged("MultiPolygon", coordinates=listed(listed(listed(POSITION)))),
            ]
        },
    },
}


def features() -> Any:
    ring = [[number / 7, number / 3] for number in range(200)]
    geometries = [
        {"kind": "Point", "coordinates": [1.5, 2.5]},
        {"kind": "LineString", "coordinates": ring},
        {"kind": "Polygon", "coordinates": [ring, ring]},
        {"kind": "MultiPolygon", "coordinates": [[ring], [ring]]},
    ]
    return {
        "features": [
            {"geometry": geometries[number % 4], "properties": {f"p{number}": number}} for number in range(200)
        ]
    }


MESSAGES = {
    **fields("messages", messages=listed(ref("message")), tools=listed({"type": "object"})),
    "$defs": {
        "message": {"anyOf": [ref("system"), ref("user"), ref("assistant"), ref("tool")]},
        "system": fields(role={"const": "system"}, content=ref("content")),
        "user": fields(role={"const": "user"}, content=ref("content")),
        "assistant": fields(
            "role", role={"const": "assistant"}, content=ref("content"), tool_calls=listed(ref("call"))
        ),
        "tool": fields(role={"const": "tool"}, content=ref("content"), tool_call_id=TEXT),
        "content": {"anyOf": [TEXT, listed(ref("part"))]},
        "part": {"anyOf": [tagged("text", text=TEXT), tagged("image", url=TEXT, detail={"enum": ["low", "high"]})]},
        "call": fields(id=TEXT, function=fields(name=TEXT, arguments=TEXT)),
    },
}


def messages() -> Any:
    turn = [
        {"role": "system", "content": "Answer."},
        {
            "role": "user",
            "content": [{"kind": "text", "text": "a" * 500}, {"kind": "image", "url": "u", "detail": "low"}],
        },
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}" * 200}}]},
        {"role": "tool", "content": "done", "tool_call_id": "1"},
    ]
    return {"messages": turn * 500}


BLOCKS = {
    **fields(page=ref("block")),
    "$defs": {
        "block": {"anyOf": [*[ref(f"block{kind}") for kind in range(8)], TEXT]},
        **{f"block{kind}": tagged(f"block{kind}", children=listed(ref("block"))) for kind in range(8)},
    },
}


def blocks(levels: int) -> Any:
    value: Any = "Hello"
    for level in range(levels):
        value = {"kind": f"block{level % 8}", "children": ["before", value, value if level < 8 else "after"]}
    return {"page": value}


class Case(NamedTuple):
    schema: dict[str, Any]
    value: Callable[[], Any]
    path: tuple[Any, ...]
    """Place of the value that is replaced by an invalid value."""


CASES = {
    "orders": Case(ORDERS, orders, ("orders", 700, "addresses", 1, "country")),
    "filters": Case(FILTERS, filters, ("filter",)),
    "components": Case(COMPONENTS, components, ("page",)),
    "folders": Case(FOLDERS, folders, ("root", *(("folders", 1) * 40), "files", 50, "size")),
    "features": Case(FEATURES, features, ("features", 150, "geometry")),
    "messages": Case(MESSAGES, messages, ("messages", 1_001)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_large_valid_value_is_accepted(name: str) -> None:
    case = CASES[name]
    start = process_time()
    assert JsonValidator(case.schema).problems(case.value()) == []
    assert process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_the_place_of_an_invalid_value(name: str) -> None:
    case = CASES[name]
    # The copy has no shared parts.
    value = json.loads(json.dumps(case.value()))
    *steps, last = case.path
    container = value
    for step in steps:
        container = container[step]
    container[last] = [[[["wrong"]]]]
    start = process_time()
    problems = JsonValidator(case.schema).problems(value)
    assert process_time() - start < MAX_SECONDS
    assert case.path in [problem.path[: len(case.path)] for problem in problems]


def test_nested_containers_are_not_exponential_in_the_depth() -> None:
    validator = JsonValidator(BLOCKS)
    start = process_time()
    assert validator.problems(blocks(60)) == []
    assert validator.problems({"page": {"kind": "block0", "children": [blocks(60)]}})
    assert process_time() - start < MAX_SECONDS
