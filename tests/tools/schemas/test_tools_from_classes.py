"""Tools from other objects than functions: models, dataclasses, named tuples, and decorated functions."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, field_validator, model_validator
from pydantic.dataclasses import dataclass

from agentkit import ToolCall
from agentkit.tools import Tool, ToolArgumentError, ToolContext, ToolDefinitionError, ToolResult
from agentkit.tools.types import ArgumentProblem


def call(made: Tool, text: str, **context: Any) -> ToolResult:
    return asyncio.run(made.call(ToolCall("c", made.name, text), ToolContext(None, **context)))


class Address(BaseModel):
    """Address of a user."""

    zip: str = Field(pattern=r"^\d+$")


class User(BaseModel):
    """Make a user.

    Attributes:
        tags: Labels,
            in order.
    """

    name: str
    age: int = Field(3, alias="years", ge=0)
    tags: list[str] = []
    home: Address | None = None
    boss: User | None = None

    @field_validator("tags", mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        return value.split(",") if isinstance(value, str) else value

    @model_validator(mode="after")
    def checked(self) -> User:
        if self.name == "nobody":
            raise ValueError("nobody is no user")
        return self


@dataclass
class Point:
    x: float
    names: list[str] = Field(default_factory=list, description="What it is called.")


@dataclasses.dataclass
class Plain:
    x: int
    near: list[Corner] = dataclasses.field(default_factory=list)


class Corner(NamedTuple):
    x: int
    y: float = 1.0


class Own:
    """A class with a `__new__`."""

    def __new__(cls, text: str, times: int = 1) -> Any:
        return text * times


def test_a_model_has_the_types_of_its_fields_and_is_validated_completely() -> None:
    made = Tool(User)
    parameters = made.spec.parameters
    assert made.description == "Make a user."
    assert parameters["properties"]["name"] == {"type": "string"}
    assert parameters["properties"]["years"] == {"type": "integer", "minimum": 0, "default": 3}
    assert parameters["properties"]["tags"]["description"] == "Labels,\nin order."
    assert parameters["required"] == ["name"]
    assert parameters["additionalProperties"] is False
    result = call(made, '{"name": "a", "years": 2, "tags": "x,y", "boss": {"name": "b"}}')
    assert result.value == User(name="a", years=2, tags=["x", "y"], boss=User(name="b"))
    assert made.validate('{"name": "a"}')["age"] == 3


def test_all_problems_of_a_model_are_named_together() -> None:
    found = problems(Tool(User), '{"nam": "a", "years": -1, "home": {"zip": "x"}}')
    assert {problem.path for problem in found} == {"name", "years", "home.zip", "nam"}
    (problem,) = problems(Tool(User), '{"name": "nobody"}')
    assert problem.path == "" and "nobody is no user" in problem.expected
    assert [problem.path for problem in problems(Tool(Point), '{"x": 1, "c": 2}')] == ["c"]


def problems(made: Tool, text: str) -> tuple[ArgumentProblem, ...]:
    """Return all problems of the arguments of a call."""
    with pytest.raises(ToolArgumentError) as caught:
        made.validate(text)
    return caught.value.problems


def test_a_model_that_allows_other_fields_receives_them() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    made = Tool(Open)
    assert made.spec.parameters["additionalProperties"] is True
    assert call(made, '{"a": 1, "b": 2}').value == Open(a=1, b=2)


@pytest.mark.parametrize(
    ("kind", "text", "value", "types"),
    [
        (Point, '{"x": 1}', Point(1), {"x": "number", "names": "array"}),
        (Plain, '{"x": 1, "near": [[1, 2]]}', Plain(1, [Corner(1, 2)]), {"x": "integer", "near": "array"}),
        (Corner, '{"x": 1, "y": 2}', Corner(1, 2.0), {"x": "integer", "y": "number"}),
        (Own, '{"text": "a", "times": 2}', "aa", {"text": "string", "times": "integer"}),
    ],
)
def test_classes_have_the_types_of_their_constructors(kind: Any, text: str, value: Any, types: dict[str, str]) -> None:
    made = Tool(kind)
    assert {name: one["type"] for name, one in made.spec.parameters["properties"].items()} == types
    assert call(made, text).value == value
    assert call(made, '{"x": "?"}').status == "error"
    assert "(" not in made.description


def test_a_model_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool(RootModel[list[int]], name="numbers")
    assert caught.value.tool == "numbers"


async def test_a_model_is_created_again_after_an_approval_or_a_retry() -> None:
    made = Tool(User, approval=lambda arguments, context: arguments["name"] == "admin", retries=1)
    result = await made.call(ToolCall("c", made.name, '{"name": "admin"}'), ToolContext(None))
    assert result.status == "denied"
    result = await made.call(ToolCall("c", made.name, '{"name": "a"}'), ToolContext(None))
    assert result.value == User(name="a")


def with_more(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that adds a parameter and sets signature and docstring."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        loud = kwargs.pop("loud", False)
        kwargs.pop("home", None)
        found = function(*args, **kwargs)
        return found.upper() if loud else found

    shown = inspect.signature(function)
    more = [
        inspect.Parameter("loud", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool),
        inspect.Parameter("home", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Address | None"),
        inspect.Parameter("free", inspect.Parameter.KEYWORD_ONLY, default=None),
    ]
    wrapper.__signature__ = shown.replace(parameters=[*shown.parameters.values(), *more])  # type: ignore[attr-defined]
    wrapper.__doc__ = "Say it.\n\nArgs:\n    text: What.\n    loud: In capitals."
    return wrapper


def test_signature_and_docstring_of_a_decorator_count() -> None:
    @with_more
    def speak(text: str, times: int = 1) -> str:
        """Another text."""
        return text * times

    for given in (speak, functools.partial(speak, times=2)):
        made = Tool(given)
        properties = made.spec.parameters["properties"]
        assert made.description == "Say it."
        assert properties["text"] == {"type": "string", "description": "What."}
        assert properties["loud"] == {"type": "boolean", "description": "In capitals.", "default": False}
        assert properties["home"]["anyOf"][0] == {"$ref": "#/$defs/Address"}
        assert "type" not in properties["free"]
        assert call(made, '{"text": "a", "loud": true}').value in ("A", "AA")
        assert call(made, '{"text": "a", "loud": 3}').status == "error"


def test_the_description_of_an_object_comes_from_its_call_before_its_class() -> None:
    class Greeter:
        """Not for models."""

        def __call__(self, name: str) -> str:
            """Greet a person."""
            return f"Hello {name}"

    assert Tool(Greeter()).description == "Greet a person."
    assert Tool(functools.lru_cache(names)).description == "Return names."
    assert Tool(functools.partial(names, 1)).description == "Return names."


def names(count: int = 1) -> None:
    """Return names."""


DECIMALS = [
    Decimal,
    Decimal | None,
    list[Decimal],
    Annotated[Decimal, Field(max_digits=5, decimal_places=2)],
    Annotated[Decimal, Field(gt=0, multiple_of=Decimal("0.1"))],
    Annotated[Decimal, Field(allow_inf_nan=True)],
    Decimal | int,
    dict[str, Decimal],
]


WRITTEN = ['"1.5"', "1.5", '"1e3"', "12", "-0.0", '"0.10"', '"NaN"', '"Infinity"', '"abc"', '" 7 "', "true", "null"]


def test_decimals_have_the_types_that_pydantic_accepts() -> None:
    wrong = []
    for kind in DECIMALS:

        def pay(amount: Any) -> None: ...

        pay.__annotations__["amount"] = kind
        made = Tool(pay)
        for written in WRITTEN:
            text = {list[Decimal]: f"[{written}]", dict[str, Decimal]: f'{{"k": {written}}}'}.get(kind, written)
            try:
                expected = repr(TypeAdapter(kind).validate_json(text))
            except ValueError:
                expected = "refused"
            try:
                read = repr(made.validate(f'{{"amount": {text}}}')["amount"])
            except ToolArgumentError:
                read = "refused"
            if read != expected:
                wrong.append((kind, text, read))
    assert wrong == []
