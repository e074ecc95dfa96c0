"""A tool without a description or types warns its author, in every way to create a tool."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import Agent, Memory, ScriptedModel
from agentkit.tools import Tool, ToolDefinitionError, ToolDescriptionWarning, Toolset, tool


class Desk:
    def put(self, thing: str) -> str:
        return thing

    def take(self, thing) -> None:  # type: ignore[no-untyped-def]
        """Take a thing."""


def undescribed(a: int) -> int:
    return a


def untyped(a, b: int = 1):  # type: ignore[no-untyped-def]
    """Add."""
    return a + b


def bare_schema(**arguments: Any) -> Any:
    """Echo."""


BARE: list[tuple[Callable[[], object], str]] = [
    (lambda: tool(undescribed), "undescribed has no description: write a docstring"),
    (lambda: tool(name="other")(undescribed), "tool other has no description"),
    (lambda: Tool(undescribed), "no description"),
    (lambda: Toolset([undescribed]), "no description"),
    (lambda: Agent(ScriptedModel(["hi"]), tools=[undescribed]), "no description"),
    (lambda: Toolset.from_module(sys.modules[__name__], only=["undescribed"]), "no description"),
    (lambda: Toolset.from_object(Desk()), "tool put has no description"),
    (
        lambda: Tool.from_json_schema("odata", "", None, bare_schema),
        "tool odata has no description: pass a description$",
    ),
    (lambda: Tool(undescribed, description=" "), "tool undescribed has no description: pass a description$"),
    (lambda: Tool(untyped), "tool untyped: parameters without a type: a; add type hints"),
    (lambda: Toolset.from_object(Desk(), only=["take"]), "tool take: parameters without a type: thing"),
]


@pytest.mark.parametrize(("create", "message"), BARE)
def test_a_tool_without_a_description_or_types_warns(create: Callable[[], object], message: str) -> None:
    with pytest.warns(ToolDescriptionWarning, match=message) as caught:
        create()
    assert caught[0].filename == __file__


def test_a_tool_with_a_description_or_of_a_server_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Tool(undescribed, description="Return the number.")
        Tool.from_json_schema("odata", "", None, bare_schema, trust="untrusted")
        Tool.from_provider({"type": "web_search"})


class Lookup(BaseModel):
    """Look a city up."""

    city: str

    def as_tool(self) -> None:
        """Convert to a tool of another library."""

    def __call__(self, country: str) -> str:
        """Look a country up."""
        return country


def test_callable_objects_are_tools_and_other_objects_are_not() -> None:
    assert [*Tool(Lookup).spec.parameters["properties"]] == ["city"]
    assert [*Tool(Lookup(city="Bern")).spec.parameters["properties"]] == ["country"]
    with pytest.raises(ToolDefinitionError, match=r"agent\.as_tool"):
        Tool(Agent(ScriptedModel(["hi"])))
    with Memory(":memory:") as memory, pytest.raises(ToolDefinitionError, match="must be callable"):
        Tool(memory.documents)
