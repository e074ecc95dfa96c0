"""Toolsets from the methods of an object and the functions of a module."""

from __future__ import annotations

import math
import string
import sys
from functools import cache, cached_property
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from agentkit.prompts import ToolCall
from agentkit.tools import Tool, ToolContext, ToolDefinitionError, Toolset, calculate, tool


class Base:
    def first(self, key: str) -> str:
        """Look a key up.

        Args:
            key: What to look up.
        """
        return f"base {key}"

    def replaced(self) -> str:
        return "old"


class Desk(Base):
    password = "hunter2"
    callable_value = staticmethod(len).__func__

    class Nested:
        def __call__(self) -> str:
            return "nested"

    def __init__(self, name: str) -> None:
        self.name = name
        self.handler = lambda: "a value that can be called"

    def replaced(self) -> str:
        """New."""
        return f"new {self.name}"

    async def later(self, n: int = 1) -> int:
        return n

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @staticmethod
    def plain(a: int) -> int:
        return a

    @tool(name="renamed", timeout=3)
    def decorated(self) -> str:
        """Say a name."""
        return self.name

    @property
    def danger(self) -> Any:
        raise AssertionError("a property was read")

    @cached_property
    def slow(self) -> Any:
        raise AssertionError("a property was read")

    @cache  # noqa: B019
    def cached(self, a: int) -> str:
        return f"{self.name} {a}"

    def _private(self) -> str:
        return self.password

    def __secret(self) -> str:
        return self.password


async def result_of(tools: Toolset, name: str, arguments: str = "{}") -> Any:
    one = next(made for made in tools if made.name == name)
    result = await one.call(ToolCall("c", name, arguments), ToolContext(None))
    assert result.status == "success", result.content
    return result.content


def names(tools: Toolset) -> list[str]:
    return [one.name for one in tools]


async def test_public_methods_become_tools_bound_to_their_object() -> None:
    tools = Toolset.from_object(Desk("Ann"))
    assert names(tools) == ["first", "replaced", "later", "kind", "plain", "renamed", "cached"]
    assert await result_of(tools, "cached", '{"a": 5}') == "Ann 5"
    assert await result_of(tools, "first", '{"key": "k"}') == "base k"
    assert await result_of(tools, "replaced") == "new Ann"
    assert await result_of(tools, "later", '{"n": 2}') == "2"
    assert await result_of(tools, "kind") == "Desk"
    assert await result_of(tools, "plain", '{"a": 5}') == "5"
    assert await result_of(tools, "renamed") == "Ann"
    assert await result_of(Toolset.from_object(Desk("Bob")), "renamed") == "Bob"


def test_tools_have_the_names_docstrings_and_policies_of_the_methods() -> None:
    tools = {one.name: one for one in Toolset.from_object(Desk("Ann"))}
    assert tools["first"].description == "Look a key up."
    assert tools["first"].spec.parameters["properties"]["key"]["description"] == "What to look up."
    assert tools["renamed"].policy.timeout == 3


def test_methods_are_selected_by_name() -> None:
    desk = Desk("Ann")
    assert names(Toolset.from_object(desk, only=["plain", "first"])) == ["plain", "first"]
    assert names(Toolset.from_object(desk, without=["plain", "decorated", "later", "cached"])) == [
        *("first", "replaced", "kind")
    ]
    assert names(Toolset.from_object(desk, only=["plain", "first"], without=["first"])) == ["plain"]


@pytest.mark.parametrize("name", ["_private", "_Desk__secret", "__init__", "danger", "handler", "password", "Nested"])
def test_a_private_name_or_an_attribute_that_is_not_a_method_cannot_be_selected(name: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Toolset.from_object(Desk("Ann"), only=[name])
    assert caught.value.names == (name,)


def test_all_unknown_names_are_listed() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Toolset.from_object(Desk("Ann"), only=["frist"], without=["xyz"])
    assert caught.value.names == ("frist", "xyz")


def test_a_text_is_not_a_list_of_names() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Toolset.from_object(Desk("Ann"), only="first", without="plain")
    assert caught.value.names == ("only", "without")


def test_methods_of_a_base_class_of_another_package_are_skipped_unless_they_are_named() -> None:
    class Settings(BaseModel):
        token: str

        def greet(self) -> str:
            return "hello"

    class Words(string.Formatter):
        def greet(self) -> str:
            return "hello"

    assert names(Toolset.from_object(Settings(token="secret"))) == ["greet"]
    assert names(Toolset.from_object(Words())) == ["greet"]
    assert names(Toolset.from_object(Words(), only=["greet", "convert_field"])) == ["greet", "convert_field"]
    assert names(Toolset.from_object({})) == []


def test_classes_and_modules_are_not_objects_and_objects_are_not_modules() -> None:
    for wrong in (Desk, math):
        with pytest.raises(ToolDefinitionError):
            Toolset.from_object(wrong)
    with pytest.raises(ToolDefinitionError):
        Toolset.from_module(Desk("Ann"))  # type: ignore[arg-type]


def test_all_methods_that_cannot_be_described_are_named_together() -> None:
    class Odd:
        def one(self, a: Unknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        def two(self, b: AlsoUnknown) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        def three(self) -> None: ...

    with pytest.raises(ToolDefinitionError) as caught:
        Toolset.from_object(Odd())
    assert caught.value.names == ("one", "two")
    assert names(Toolset.from_object(Odd(), without=["one", "two"])) == ["three"]


# Modules


def module(source: str, monkeypatch: pytest.MonkeyPatch, name: str = "made_module") -> ModuleType:
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(source, f"{name}.py", "exec"), made.__dict__)
    return made


SOURCE = '''
from json import dumps
from agentkit.tools import calculate, tool

def search(q: str) -> str:
    """Search."""
    return q

def _hidden() -> str:
    return "secret"

async def later(n: int = 1) -> int:
    return n

@tool(name="decorated_name")
def decorated() -> str:
    """Decorated."""
    return "d"

class Thing:
    pass

alias = search
value = 5
partial = dumps
'''


async def test_functions_written_in_a_module_become_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Toolset.from_module(module(SOURCE, monkeypatch))
    assert names(tools) == ["search", "later", "decorated_name", "alias"]
    assert tools[0].description == "Search."
    assert await result_of(tools, "alias", '{"q": "x"}') == "x"


def test_imported_functions_are_offered_if_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module(SOURCE, monkeypatch)
    assert names(Toolset.from_module(made, only=["calculate", "search"])) == ["calculate", "search"]
    assert names(Toolset.from_module(made, without=["search", "alias"])) == ["later", "decorated_name"]
    for name in ("_hidden", "Thing", "value"):
        with pytest.raises(ToolDefinitionError) as caught:
            Toolset.from_module(made, only=[name])
        assert caught.value.names == (name,)


def test_the_functions_of_the_public_names_of_a_module_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCE + '__all__ = ["calculate", "search", "Thing", "_hidden", "missing"]\n'
    assert names(Toolset.from_module(module(source, monkeypatch))) == ["calculate", "search"]


def test_a_conflict_inside_a_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SOURCE + '\n@tool(name="search")\ndef other() -> str:\n    return "o"\n'
    made = module(source, monkeypatch)
    with pytest.raises(ToolDefinitionError) as caught:
        Toolset.from_module(made)
    assert caught.value.names == ("search",)
    assert "search" in names(Toolset.from_module(made, without=["other"]))


async def test_a_module_of_the_standard_library_works_too() -> None:
    tools = Toolset.from_module(math, only=["sqrt", "gcd"])
    assert await result_of(tools, "sqrt", '{"x": 9}') == "3.0"


async def test_toolsets_of_objects_and_modules_compose_like_other_toolsets() -> None:
    tools = Toolset.from_object(Desk("Ann"), only=["plain"]).prefixed("desk_") + Toolset([calculate])
    assert names(tools) == ["desk_plain", "calculate"]
    assert all(isinstance(one, Tool) for one in tools)
    assert await result_of(tools, "desk_plain", '{"a": 1}') == "1"
