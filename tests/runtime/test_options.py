"""Options: their types, and the data of their errors."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest

from agentkit import Agent, Limits, ModelSettings, ScriptedModel, Summarise
from agentkit.errors import AgentDefinitionError
from agentkit.memory import Gate, Scope, StoreError
from agentkit.models import Price
from agentkit.server import ServerOptions
from tests.raising import raises


@dataclasses.dataclass(frozen=True)
class MyLimits(Limits):
    extra: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class MyLimitsInSlots(Limits):
    extra: int = 0


@dataclasses.dataclass(frozen=True)
class NamedLimits(Limits):
    name: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        object.__setattr__(self, "name", self.name or "unnamed")


class PlainLimits(Limits):
    """Limits without more fields."""


class InitLimits(Limits):
    def __init__(self, minutes: float) -> None:
        super().__init__(seconds=minutes * 60)


@pytest.mark.parametrize("kind", [MyLimits, MyLimitsInSlots, NamedLimits, PlainLimits])
def test_a_subclass_is_checked_like_its_base(kind: Any) -> None:
    with raises(AgentDefinitionError, name="steps", value=0):
        kind(steps=0)
    with raises(AgentDefinitionError, name="steps, seconds"):
        kind(1.5, seconds="9")
    limits = kind(steps=3, money=Decimal("0.5"))
    assert (type(limits), limits.steps, limits.money, type(limits.money)) == (kind, 3, 0.5, float)
    assert dataclasses.replace(limits, steps=4).steps == 4
    with raises(AgentDefinitionError, name="steps", value=0):
        dataclasses.replace(limits, steps=0)


def test_the_fields_of_a_subclass_are_preserved() -> None:
    assert MyLimits(steps=3, extra=5).extra == MyLimitsInSlots(steps=3, extra=5).extra == 5
    assert (NamedLimits().name, NamedLimits(name="mine").name) == ("unnamed", "mine")
    assert InitLimits(2).seconds == 120
    with raises(AgentDefinitionError, name="seconds", value=-60):
        InitLimits(-1)


def test_headers_of_a_subclass_of_settings_are_read_only() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(ModelSettings):
        label: str = ""

    assert Mine(stop=["a"], label="x").stop == ("a",)
    with pytest.raises(TypeError):
        Mine(headers={"X-A": "1"}).headers["X-B"] = "2"  # type: ignore[index]


def test_a_number_of_seconds_or_dollars_may_be_infinite() -> None:
    agent = Agent(ScriptedModel(["done"], price=Price(1, 1)), limits=Limits(seconds=inf, money=inf))
    assert agent.run_sync("go").output == "done"
    options = ServerOptions(run_seconds=inf, grace_seconds=inf, requests_per_minute=0.5)
    assert (options.run_seconds, options.requests_per_minute) == (inf, 0.5)


@pytest.mark.parametrize("value", [nan, 0, -1.0, -inf, "1", True, None])
def test_a_rate_is_a_number_above_0(value: Any) -> None:
    with raises(AgentDefinitionError, name="requests_per_minute"):
        ServerOptions(requests_per_minute=value)


@pytest.mark.parametrize("value", [nan, inf])
def test_a_time_limit_of_a_request_is_finite(value: float) -> None:
    with raises(AgentDefinitionError, name="timeout"):
        ModelSettings(timeout=value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Price(1, 2, None, None, 5),  # type: ignore[call-arg]
        lambda: Price(-1, 2, None, None, 5, 6),  # type: ignore[call-arg]
        lambda: ModelSettings("x"),  # type: ignore[misc]
        lambda: Summarise(ScriptedModel(["x"]), 5),  # type: ignore[misc]
        lambda: Limits(1, 2, 3, 4, 5, 6, 7, 8, 9, "raise", "report", 12, step=3),  # type: ignore[call-arg]
    ],
)
def test_too_many_positional_arguments_are_not_unknown_options(make: Callable[[], Any]) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert type(caught.value) is TypeError


@pytest.mark.parametrize("value", ["abc", {"a"}, deque(["a"]), {"a": 1}, 5, None])
def test_questions_are_a_sequence_of_texts(value: Any) -> None:
    with raises(StoreError, name="questions"):
        Gate(questions=value)


def test_a_price_that_is_too_large_is_named() -> None:
    with raises(AgentDefinitionError, name="input", value=10**400):
        Price(10**400, 1)


def test_a_scope_of_a_subclass_is_checked() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(Scope):
        team: str = ""

    assert Mine("acme", team="a").names == ("acme", "", "", "")
    with raises(StoreError, name="user"):
        Mine("acme", user="\0")
