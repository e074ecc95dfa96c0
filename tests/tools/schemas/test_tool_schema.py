"""The description of a Python function for a model."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Literal, NotRequired, Optional, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

from agentkit import ToolCall
from agentkit.tools import Tool, ToolArgumentError, ToolContext, ToolDefinitionError, tool
from tests.paths import ROOT


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    """A tree."""

    value: int
    children: list[Node] = []


class Range(BaseModel):
    low: float = -math.inf
    high: Annotated[float, Field(le=math.inf)] = 1.5


class Options(TypedDict):
    limit: int
    tag: NotRequired[str]


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Opaque:
    """A type that JSON Schema cannot describe."""


def properties(made: Tool) -> dict[str, Any]:
    return dict(made.spec.parameters["properties"])


def test_plain_types_and_defaults_become_a_closed_object() -> None:
    @tool
    def forecast(city: str, days: int = 3) -> str:
        """Get a forecast."""
        return city * days

    assert forecast.name == "forecast"
    assert forecast.description == "Get a forecast."
    assert forecast.spec.parameters == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert forecast("a", 2) == "aa"


def google(city: str, days: int = 3) -> None:
    """Get a forecast.

    It may be wrong.

    Args:
        city: The city, such as 北京.
        days (int, optional): How many
            days.

    Returns:
        str: The forecast.

    Raises:
        ValueError: If the sky falls.
    """


def numpy(city: str, days: int = 3) -> None:
    """Get a forecast.

    It may be wrong.

    Parameters
    ----------
    city : str
        The city, such as 北京.
    days : int, optional
        How many
        days.

    Returns
    -------
    str
        The forecast.
    """


def sphinx(city: str, days: int = 3) -> None:
    """Get a forecast.

    It may be wrong.

    :param city: The city, such as 北京.
    :param int days: How many days.
    :returns: The forecast.
    :raises ValueError: If the sky falls.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_docstrings_of_three_styles_have_the_same_description(function: Any) -> None:
    made = Tool(function)
    assert made.description == "Get a forecast.\n\nIt may be wrong.\n\nReturns: The forecast."
    assert properties(made)["city"]["description"] == "The city, such as 北京."
    assert properties(made)["days"]["description"].split() == ["How", "many", "days."]


def test_prose_that_only_mentions_arguments_stays_complete() -> None:
    def talk() -> None:
        """Talk: with a colon.

        Args are for pirates. Returns: never.
        """

    assert Tool(talk).description == "Talk: with a colon.\n\nArgs are for pirates. Returns: never."


def test_notes_stay_in_the_description() -> None:
    def act(x: int) -> None:
        """Act.

        Note:
            Only by
            day.

        Args:
            x: How often.
            y: There is no such parameter.
        """

    assert Tool(act).description == "Act.\n\nNote: Only by\nday."
    assert properties(Tool(act)) == {"x": {"type": "integer", "description": "How often."}}


def test_annotated_text_and_fields_describe_and_limit() -> None:
    @tool
    def search(
        q: Annotated[str, "Query text", Field(max_length=5)],
        k: Annotated[int, Field(ge=1, description="How many")] = 5,
        page: int = Field(default=1, description="Which page"),
        max_results: Annotated[int, Field(alias="max-results")] = 3,
    ) -> tuple[Any, ...]:
        """Search.

        Args:
            q: The docstring gives way to the annotation.
        """
        return q, k, page, max_results

    found = properties(search)
    assert found["q"] == {"type": "string", "maxLength": 5, "description": "Query text"}
    assert found["k"] == {"type": "integer", "minimum": 1, "description": "How many", "default": 5}
    assert found["page"] == {"type": "integer", "description": "Which page", "default": 1}
    assert found["max-results"] == {"type": "integer", "default": 3}
    assert search.spec.parameters["required"] == ["q"]
    assert search.validate('{"q": "a", "max-results": 7}') == {"q": "a", "max_results": 7, "page": 1}


def test_enums_literals_unions_and_optionals() -> None:
    @tool
    def paint(
        color: Color, unit: Literal["c", "f"], v: int | str, maybe: int | None, other: Color = Color.RED
    ) -> None: ...

    found = properties(paint)
    assert found["color"] == {"$ref": "#/$defs/Color"}
    assert found["other"] == {"$ref": "#/$defs/Color", "default": "red"}
    assert found["unit"]["enum"] == ["c", "f"]
    assert found["v"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert paint.spec.parameters["required"] == ["color", "unit", "v", "maybe"]
    assert paint.spec.parameters["$defs"] == {"Color": {"enum": ["red", "blue"], "type": "string"}}
    assert paint.validate('{"color": "blue", "unit": "c", "v": 1, "maybe": null}')["color"] is Color.BLUE


def test_recursive_models_keep_their_definitions() -> None:
    @tool
    def plant(root: Node) -> None: ...

    assert properties(plant) == {"root": {"$ref": "#/$defs/Node"}}
    node = plant.spec.parameters["$defs"]["Node"]
    assert node["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert plant.validate('{"root": {"value": 1, "children": [{"value": 2}]}}')["root"].children[0].value == 2


def test_typed_dicts_dataclasses_and_dates_have_their_types() -> None:
    @tool
    def mark(p: Point, o: Options, day: dt.date = dt.date(2030, 1, 1)) -> None: ...

    assert properties(mark)["day"]["default"] == "2030-01-01"
    assert mark.validate('{"p": {"x": 1}, "o": {"limit": 1}, "day": "2031-01-01"}') == {
        "p": Point(1.0),
        "o": {"limit": 1},
        "day": dt.date(2031, 1, 1),
    }


def test_names_that_python_and_pydantic_reserve_can_be_parameters() -> None:
    @tool
    def odd(schema: str, json: int, model_config: str = "", _hidden: int = 0, copy: bool = False, self: int = 1) -> Any:
        return schema, json, model_config, _hidden, copy, self

    assert list(properties(odd)) == ["schema", "json", "model_config", "_hidden", "copy", "self"]
    assert odd(**odd.validate('{"schema": "s", "json": 2, "self": 5}')) == ("s", 2, "", 0, False, 5)


def test_a_default_without_a_json_form_is_still_the_default() -> None:
    marker = object()

    @tool
    def use(x: Any = marker) -> bool:
        return x is marker

    assert properties(use) == {"x": {}}
    assert use(**use.validate("{}"))


def test_a_default_or_a_bound_of_infinity_is_in_no_request() -> None:
    @tool
    def within(x: float, most: float = math.inf, span: Range = Range(low=math.nan)) -> bool:  # noqa: B008
        return x <= most

    assert properties(within)["most"] == {"type": "number"}
    assert json.dumps(within.spec.parameters, allow_nan=False)
    assert within.spec.parameters["$defs"]["Range"]["properties"]["high"] == {"type": "number", "default": 1.5}
    assert within(**within.validate('{"x": 5}'))
    made = Tool(Range, description="A range.").spec.parameters["properties"]
    assert made == {"low": {"type": "number"}, "high": {"type": "number", "default": 1.5}}


def test_var_args_are_a_list_and_var_kwargs_are_more_properties() -> None:
    @tool
    def many(first: str, *rest: int, **named: float) -> Any:
        """Many.

        Args:
            first: One.
            *rest: More.
            **named: By name.
        """

    assert properties(many)["rest"] == {"type": "array", "items": {"type": "integer"}, "description": "More."}
    assert many.spec.parameters["additionalProperties"] == {"type": "number", "description": "By name."}


def test_unpacked_typed_dict_gives_parameters() -> None:
    @tool
    def find(q: str, **options: Unpack[Options]) -> Any: ...

    assert properties(find) == {"q": {"type": "string"}, "limit": {"type": "integer"}, "tag": {"type": "string"}}
    assert find.spec.parameters["required"] == ["q", "limit"]
    assert find.spec.parameters["additionalProperties"] is False


def test_kwargs_that_unpack_another_type_are_refused() -> None:
    def find(**options: Unpack[Point]) -> Any: ...  # type: ignore[misc]

    with pytest.raises(ToolDefinitionError) as caught:
        Tool(find)
    assert (caught.value.tool, caught.value.names) == ("find", ("options",))


def test_the_context_parameter_is_not_shown_with_any_name_or_form() -> None:
    def first(anything: ToolContext, user: str) -> Any: ...
    def second(user: str, *, ctx: ToolContext[dict[str, int]]) -> Any: ...
    def third(user: str, ctx: Annotated[ToolContext[int], "hm"]) -> Any: ...

    for function in (first, second, third):
        assert list(properties(Tool(function))) == ["user"]


def test_local_types_are_found_in_the_scope_of_the_tool() -> None:
    class Local(BaseModel):
        n: int

    @tool
    def take(item: Local) -> Any: ...

    assert take.validate('{"item": {"n": 1}}')["item"] == Local(n=1)


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def take(item: Nowhere) -> Any: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ToolDefinitionError) as caught:
        Tool(take)
    assert (caught.value.tool, caught.value.names) == ("take", ("Nowhere",))


def test_all_parameters_that_json_schema_cannot_describe_are_named_at_construction() -> None:
    def take(a: Opaque, fine: int, b: dict[str, Opaque]) -> Any: ...

    with pytest.raises(ToolDefinitionError) as caught:
        Tool(take)
    assert (caught.value.tool, caught.value.names) == ("take", ("a", "b"))


def test_a_value_that_is_not_callable_is_refused() -> None:
    things: list[Any] = [3, "text", object()]
    for thing in things:
        with pytest.raises(ToolDefinitionError) as caught:
            Tool(thing)
        assert caught.value.names == ("function",)


def test_a_builtin_without_a_signature_is_refused_clearly() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool(max)
    assert caught.value.tool == "max"


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool(lambda x: x)
    assert caught.value.names == ("name",)
    assert Tool(lambda x: x, name="echo").name == "echo"


def test_two_parameters_with_the_same_name_are_refused() -> None:
    def take(a: Annotated[str, Field(alias="b")], b: str, c: Annotated[int, Field(alias="d")], d: int) -> Any: ...

    with pytest.raises(ToolDefinitionError) as caught:
        Tool(take)
    assert (caught.value.tool, caught.value.names) == ("take", ("b", "d"))


def test_an_alias_with_choices_is_refused() -> None:
    from pydantic import AliasChoices

    def take(a: Annotated[int, Field(validation_alias=AliasChoices("x", "y"))]) -> Any: ...

    with pytest.raises(ToolDefinitionError) as caught:
        Tool(take)
    assert caught.value.names == ("a",)


def test_names_that_providers_refuse_are_mapped_and_stored() -> None:
    made = Tool(google, name="weather.forecast")
    assert made.original_name == "weather.forecast"
    assert made.name.startswith("weather_forecast_")
    assert made.with_changes(name="plain").name == "plain"
    other = made.with_changes(description="Other.")
    assert (other.name, other.description, other.original_name) == (made.name, "Other.", "weather.forecast")


def test_partials_wrappers_and_callable_objects_are_tools() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @functools.wraps(add)
    def wrapper(*args: Any, **kwargs: Any) -> int:
        return add(*args, **kwargs)

    class Adder:
        """Not this."""

        def __call__(self, a: int, b: int = 2) -> int:
            """Add too."""
            return a + b

    assert properties(Tool(wrapper)) == {"a": {"type": "integer"}, "b": {"type": "integer"}}
    bound = Tool(functools.partial(add, b=1))
    assert bound.name == "add"
    assert bound.description == "Add."
    assert bound(a=1) == 2
    assert properties(bound)["b"] == {"type": "integer", "default": 1}
    made = Tool(Adder())
    assert (made.name, made.description) == ("Adder", "Add too.")
    assert list(properties(made)) == ["a", "b"]


def test_generators_and_coroutines_are_described_like_functions() -> None:
    async def agen(n: int) -> AsyncIterator[int]:
        yield n

    def gen(n: int) -> Iterator[int]:
        yield n

    for function in (agen, gen):
        assert properties(Tool(function)) == {"n": {"type": "integer"}}


class Desk:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    @tool
    def write(self, text: str) -> str:
        """Write."""
        return f"{self.owner}: {text}"

    @tool
    @classmethod
    def model(cls, n: int) -> str:
        """Model."""
        return f"{cls.__name__}{n}"

    @tool
    @staticmethod
    def add(a: int) -> int:
        """Add."""
        return a + 1

    def plain(self, text: str) -> str:
        """Plain."""
        return self.owner + text


def test_methods_hide_self_and_bind_to_their_object() -> None:
    desk = Desk("Ann")
    assert properties(desk.write) == {"text": {"type": "string"}}
    assert desk.write("hi") == "Ann: hi"
    assert Desk("Bob").write("hi") == "Bob: hi"
    assert properties(desk.model) == {"n": {"type": "integer"}}
    assert desk.model(1) == "Desk1"
    assert desk.add(1) == 2
    assert properties(Tool(desk.plain)) == {"text": {"type": "string"}}


def test_a_spec_is_read_only() -> None:
    made = Tool(google)
    with pytest.raises(TypeError):
        made.spec.parameters["properties"]["city"]["type"] = "integer"


def test_importing_the_package_loads_no_large_library() -> None:
    code = (
        "import sys, agentkit_tools; "
        "from agentkit_tools import tool; tool(lambda x: x) if 0 else None; "
        "print([m for m in ('sqlalchemy', 'mcp', 'openai', 'anthropic') if m in sys.modules])"
    )
    root = ROOT
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(str(root / name) for name in ("prompts", "tools"))},
    )
    assert found.stdout.strip() == "[]"


def test_the_representation_shows_name_and_parameters() -> None:
    assert repr(Tool(google)) == "Tool(google, city, days)"


PLAIN = st.recursive(
    st.sampled_from([str, int, float, bool, Literal["a", "b"], Literal["a"], Literal[1, "a"], Any, None, bytes]),
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),  # type: ignore[valid-type]
        inner.map(lambda one: Optional[one]),  # noqa: UP045
        inner.map(lambda one: dict[str, one]),  # type: ignore[valid-type]
        inner.map(lambda one: Annotated[one, Field(description="d")]),
    ),
    max_leaves=3,
)


@given(PLAIN)
def test_the_quick_schema_of_plain_types_is_the_schema_of_pydantic(annotation: Any) -> None:
    def take(x: Any) -> None: ...

    take.__annotations__["x"] = annotation
    expected = TypeAdapter(annotation).json_schema()
    assert properties(Tool(take))["x"] == expected


OPTIMIZED = """
import sys
import warnings
from agentkit_tools import Toolset, ToolDescriptionWarning, calculate, file_tools, time_tool, tool

def documented():
    \"\"\"Gone.\"\"\"

with warnings.catch_warnings():
    warnings.simplefilter("error")
    print(tool(description="Given.")(documented).description)
    ready = [calculate, time_tool(), *file_tools(".", write=True), Toolset([calculate]).with_result_store()[1]]
    bare = [one.name for one in ready if not one.description]
    entries = {one.name: one.spec.parameters["properties"].values() for one in ready}
    plain = [name for name, found in entries.items() if not all("description" in entry for entry in found)]
    print(bare, plain)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tool(documented)
    Toolset.from_module(sys.modules["__main__"], only=["documented"])
print(*[(warning.category.__name__, warning.filename, str(warning.message)) for warning in caught])
"""


def test_a_docstring_that_the_interpreter_removed_is_reported() -> None:
    path = os.pathsep.join(str(ROOT / name) for name in ("prompts", "tools"))
    found = subprocess.run(
        [sys.executable, "-OO", "-c", OPTIMIZED], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    given, first, second = found.stdout.splitlines()
    assert (given, first) == ("Given.", "[] []")
    assert second.count("('ToolDescriptionWarning', '<string>', ") == 2, "the line of whoever made the tool"
    assert "tool documented has no description: `python -OO`" in second


def test_half_of_a_surrogate_pair_in_a_description_or_a_default_stays() -> None:
    def search(query: str = "\ud800") -> str:
        return query

    made = Tool(search, description="Search \ud800.")
    assert made.spec.parameters["properties"]["query"]["default"] == "\ud800" and made.description == "Search \ud800."


NOTHING: Any = None
"""Default that type checkers accept for any type."""


class Search(BaseModel):
    """A model with parameters whose default is null, although their types refuse null."""

    query: str
    project: str = NOTHING
    tags: list[str] = Field(NOTHING, description="Tags.")


async def test_null_is_accepted_if_it_is_the_default() -> None:
    def plain(query: str, project: str = NOTHING) -> str:
        return f"{query} {project}"

    def described(size: Annotated[int, Field(ge=2)] = NOTHING, kind: Literal["a"] = Field(NOTHING)) -> str:
        return f"{size} {kind}"

    def nested(search: Search, others: list[Search] = NOTHING, last: Search | int = NOTHING) -> str:
        return f"{search} {others} {last}"

    search = {"query": "q", "project": None}
    cases: list[tuple[Any, dict[str, Any], str]] = [
        # Function, arguments, text of the result or place of the problem.
        (plain, {"query": "q", "project": None}, "q None"),
        (plain, {"query": "q", "project": "p"}, "q p"),
        (plain, {"query": None, "project": None}, "query"),
        (plain, {"query": "q", "project": 1}, "project"),
        (described, {"size": None, "kind": None}, "None None"),
        (described, {"size": 1, "kind": None}, "size"),
        (nested, {"search": search, "others": None, "last": None}, "query='q' project=None tags=None None None"),
        (nested, {"search": {"query": "q"}, "others": [{**search, "tags": None}]}, "None"),
        (nested, {"search": {"query": "q"}, "last": search}, "query='q' project=None"),
        (nested, {"search": {"query": None, "project": None}}, "search.query"),
        (Search, {**search, "tags": None}, '"project": null'),
        (Search, {"query": None, "tags": None}, "query"),
    ]
    wrong: list[Any] = []
    for function, arguments, expected in cases:
        one = Tool(function, description="D")
        result = await one.call(ToolCall("c", one.name, json.dumps(arguments)), ToolContext(None))
        if isinstance(result.error, ToolArgumentError):
            is_expected = [problem.path for problem in result.error.problems] == [expected]
        else:
            is_expected = expected in str(result.content)
        is_valid = Draft202012Validator(dict(one.spec.parameters)).is_valid(arguments)
        if not is_expected or is_valid != (result.status == "success"):
            wrong.append((function, arguments, result.content, is_valid))
    assert wrong == []
