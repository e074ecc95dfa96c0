"""The type of the `deps` of a tool: read once from its function, checked before any request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, Literal, NewType, Optional, Protocol, TypedDict, TypeVar, Union

import pytest
from typing_extensions import TypeAliasType

from agentkit import ToolCall
from agentkit.tools import Tool, ToolContext, ToolDefinitionError, Toolset, tool

T = TypeVar("T")
EitherT = TypeVar("EitherT", int, str)


@dataclass
class Database:
    url: str = ""


class Replica(Database):
    pass


BoundT = TypeVar("BoundT", bound=Database)


class Repository(Generic[T]):
    pass


class Closes(Protocol):
    name: str

    def close(self) -> None: ...


class Settings(TypedDict):
    url: str


class Named:
    name = "x"

    def close(self) -> None: ...


UserId = NewType("UserId", int)
Alias = TypeAliasType("Alias", Database)


class Moody(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError("not today")


class Undecided(metaclass=Moody):
    pass


def made(context: Any) -> Tool:
    """Return a tool whose context parameter has the annotation `context`."""

    async def look(q: str, ctx: Any) -> str:
        return q

    look.__annotations__["ctx"] = context
    return Tool(look)


def test_deps_of_another_type_are_a_problem_of_the_tool() -> None:
    cases: list[tuple[Any, list[Any], list[Any]]] = [
        (ToolContext[Database], [Database(), Replica()], [None, "x", Database]),
        (ToolContext["Database"], [Database()], [None, 1]),
        ("ToolContext[Database]", [Database()], [None, 1]),
        (Annotated[ToolContext[Database], "about"], [Database()], [None]),
        (ToolContext[Database] | None, [Database()], [None]),
        (Optional[ToolContext[Database]], [Database()], [None]),  # noqa: UP045
        (ToolContext[Annotated[Database, "about"]], [Database()], [None]),
        (ToolContext[Database | None], [Database(), None], [1]),
        (ToolContext[Union[int, str]], [1, "a"], [None, b""]),  # noqa: UP007
        (ToolContext[Repository[int]], [Repository()], [None, Database()]),
        (ToolContext[list[int]], [[], ["a"]], [None, ()]),
        (ToolContext[Mapping[str, int]], [{}], [None, []]),
        (ToolContext[Settings], [{"url": ""}, {}], [None, "x"]),
        (ToolContext[Closes], [Named()], [None, object()]),
        (ToolContext[Callable[[int], int]], [len, lambda n: n], [None, 1]),
        (ToolContext[type[Database]], [Replica], [None, Database()]),
        (ToolContext[Literal["a", True]], ["a", True], ["b", 1, None]),
        (ToolContext[float], [1.0, 1], [None, "1"]),
        (ToolContext[UserId], [1], [None, "1"]),
        (ToolContext[Alias], [Database()], [None]),
        (ToolContext[BoundT], [Replica()], [None, 1]),
        (ToolContext[EitherT], [1, ""], [None]),
    ]
    wrong: list[Any] = []
    for context, good, bad in cases:
        made_tool = made(context)
        wrong += [(context, deps) for deps in good if made_tool.deps_problem(deps)]
        wrong += [(context, deps) for deps in bad if not made_tool.deps_problem(deps)]
    assert wrong == []


def test_a_context_without_a_type_accepts_any_deps() -> None:
    contexts: list[Any] = [
        ToolContext,
        ToolContext | None,
        ToolContext[Any],
        ToolContext[object],
        ToolContext[None],
        ToolContext[T],
        ToolContext[Any | None],
        ToolContext[Union[Database, Any]],  # noqa: UP007
        Annotated[ToolContext[Any], "about"],
    ]
    for context in contexts:
        made_tool = made(context)
        assert made_tool.deps_types == ()
        assert [made_tool.deps_problem(deps) for deps in (None, 1, Database())] == ["", "", ""]


def test_a_tool_without_a_context_needs_no_deps() -> None:
    @tool
    def add(a: int) -> int:
        return a

    assert (add.deps_types, add.deps_problem(None)) == ((), "")


def test_the_problem_names_the_tool_the_expected_type_and_the_actual_type() -> None:
    @tool(name="find user")
    def find(q: str, ctx: ToolContext[Repository[int]]) -> str:
        return q

    name = f"{__name__}.Repository[int]"
    assert find.deps_problem(Named()) == f"tool {find.name} needs deps of type {name}, got Named"
    assert find.deps_problem(None).endswith("got None")
    assert made(ToolContext[Database]).deps_problem(None) == "tool look needs deps of type Database, got None"


def test_all_contexts_of_a_function_must_accept_the_deps() -> None:
    @tool
    def both(a: ToolContext[Named], b: ToolContext[Closes]) -> None: ...

    assert both.deps_problem(Named()) == ""
    assert "Closes" in both.deps_problem(type("Sub", (Named,), {"name": property(lambda self: self.nothing)})())


def test_a_check_that_fails_does_not_refuse_the_deps() -> None:
    assert made(ToolContext[Undecided]).deps_problem(1) == ""


def test_the_type_stays_with_a_tool_that_is_created_or_changed_in_any_way() -> None:
    class Desk:
        @tool
        def ask(self, ctx: ToolContext[Database]) -> str:
            return ""

        def tell(self, ctx: ToolContext[Database]) -> str:
            return ""

    async def described(ctx: ToolContext[Database], **arguments: Any) -> str:
        return ""

    async def around(proceed: Any, call: Any, context: Any) -> Any:
        return await proceed(call, context)

    tools = [
        Desk().ask,
        Desk.ask.with_changes(name="other", timeout=1),
        Desk.ask.strict(),
        Tool(Desk().tell),
        Tool(partial(Desk().tell)),
        Tool.from_json_schema("described", "", None, described),
        *Toolset([Desk.ask]).prefixed("x_").limited(1).cached().wrapped(around),
    ]
    assert [one.deps_types for one in tools] == [(Database,)] * len(tools)


def test_a_described_tool_gets_its_context_with_any_other_annotations() -> None:
    async def described(ctx: ToolContext[Database], other: Missing = None, **arguments: Any) -> str:  # type: ignore[name-defined]  # noqa: F821
        return ctx.deps.url

    made_tool = Tool.from_json_schema("described", "", None, described)
    assert made_tool.deps_types == (Database,)
    context = ToolContext(Database("db"))
    assert asyncio.run(made_tool.call(ToolCall("c", "described", "{}"), context)).content == "db"


def test_a_context_of_an_unknown_type_is_an_error_of_the_constructor() -> None:
    async def described(ctx: ToolContext[Missing], **arguments: Any) -> str:  # type: ignore[name-defined]  # noqa: F821
        return ""

    for make in (Tool, lambda function: Tool.from_json_schema("described", "", None, function)):
        with pytest.raises(ToolDefinitionError) as caught:
            make(described)
        assert (caught.value.tool, caught.value.names) == ("described", ("Missing",))
