"""Repairing arguments of any model takes time in proportion to their length."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit.tools import Tool, ToolArgumentError


def made(**more: Any) -> Tool:
    def take(**arguments: Any) -> Any:
        return arguments

    schema = {"type": "object", "properties": {"x": {}, "y": {}}, **more}
    return Tool.from_json_schema("t", "", schema, take, repair=True)


@pytest.mark.parametrize(
    "text",
    [
        '"' * 50_001,
        "'" * 50_001,
        "\"'" * 50_000,
        "{'" + '"\\' * 50_000,
        "[" + "," * 50_000,
        "," + " " * 200_000,
        "```" + " \n" * 100_000,
        "```json" + "\n" * 200_000 + "x```",
        "{" * 100_000,
        '{"x": ' + "True " * 50_000,
    ],
    ids=range(10),
)
def test_text_that_cannot_be_repaired_is_an_argument_error(text: str) -> None:
    with pytest.raises(ToolArgumentError):
        made().validate(text)


@pytest.mark.parametrize(
    "text",
    [
        "{'x': 'it\\'s \"so\"', \"y\": None,}",
        '```json\n{"x": "it\'s \\"so\\"", "y": null}\n```',
        "``` \n{'x': \"it's \\\"so\\\"\", 'y': None , }```",
        json.dumps("{'x': \"it's \\\"so\\\"\", 'y': None}"),
    ],
)
def test_arguments_that_are_nearly_json_are_still_repaired(text: str) -> None:
    assert made().validate(text) == {"x": 'it\'s "so"', "y": None}


@pytest.mark.parametrize(
    "text",
    [
        '{"x": "rm -rf /var/ca',
        '{"x": 1, "y',
        '{"x": 1, "y":',
        '{"x": [1, 2',
        '{"x": 12',
        '{"x": 1}{"x": 2}',
        '{"x" 1}',
        "x = 1",
    ],
)
def test_arguments_that_were_cut_or_are_unclear_are_not_invented(text: str) -> None:
    with pytest.raises(ToolArgumentError):
        made().validate(text)


def test_nulls_are_removed_from_unions_that_double() -> None:
    def option(number: int) -> dict[str, Any]:
        return {"anyOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2}

    end = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": [], "additionalProperties": False}
    defs = {f"d{number}": option(number) for number in range(12)}
    properties = {"x": {"$ref": "#/$defs/d0"}, "y": {"type": "integer"}}
    one = made(properties=properties, additionalProperties=False, **{"$defs": {**defs, "d12": end}}).strict()
    assert one.validate('{"x": {"a": null}, "y": null}') == {"x": {}}
