"""Impossible numbers are refused with a typed error, independent of the errors of Python."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from agentkit import Limits, ModelSettings, Usage
from agentkit.errors import AgentDefinitionError
from agentkit.memory import EmbedderError, Gate, InvalidArgument, OpenAIEmbedder
from agentkit.memory.recall import DateScorer, RecallPolicy
from agentkit.models import Price
from agentkit.prompts import Budget, ContextError, Document, PromptError
from agentkit.prompts.example_selectors import MMRSelector
from agentkit.tools import ToolDefinitionError, ToolPolicy
from tests.cases import collected
from tests.raising import raises

MINUS = -1
ABSURD: list[Any] = [
    10**5000,
    -(10**5000),
    float("nan"),
    Decimal("nan"),
    Decimal("snan"),
    MINUS,
    1 + 1j,
    "1" * 9_999,
    [],
    True,
]
MADE: list[tuple[type[Exception], Callable[[Any], object]]] = [
    (AgentDefinitionError, lambda number: Price(number, 1.0)),
    (AgentDefinitionError, lambda number: Price(1.0, number)),
    (AgentDefinitionError, lambda number: Price(1.0, 1.0, cached=number)),
    (AgentDefinitionError, lambda number: Price(1.0, 1.0, long=(number, Price(1.0, 1.0)))),
    *[
        (AgentDefinitionError, lambda number, name=name: ModelSettings(**{name: number}))
        for name in ("temperature", "top_k", "max_tokens", "thinking_tokens", "timeout")
    ],
    (AgentDefinitionError, lambda number: ModelSettings(seed="1" if number is MINUS else number)),
    (AgentDefinitionError, lambda number: Limits(money=number)),
    (AgentDefinitionError, lambda number: Limits(seconds=number)),
    (AgentDefinitionError, lambda number: Limits(steps=-1 if number is True else number)),
    (ToolDefinitionError, lambda number: ToolPolicy(timeout=number)),
    (ToolDefinitionError, lambda number: ToolPolicy(retries=number)),
    (ContextError, lambda number: Document("x", position="1" if number is True or number is MINUS else number)),
    (PromptError, lambda number: Budget(number)),
    (PromptError, lambda number: MMRSelector(diversity=2 if number is True else number)),
    (InvalidArgument, lambda number: DateScorer(weight="1" if number is MINUS else number)),
    (InvalidArgument, lambda number: RecallPolicy(tokens=number)),
    (InvalidArgument, lambda number: Gate(overlap=number)),
    (EmbedderError, lambda number: OpenAIEmbedder("m", timeout=number)),
]


def test_it_is_a_typed_error() -> None:
    failures: list[str] = []
    for error, make in MADE:
        for number in ABSURD:
            with collected(failures, error, make, number):
                with pytest.raises(error) as found:
                    make(number)
                assert len(str(found.value)) < 400
    assert failures == []


def test_prices_have_a_maximum() -> None:
    with raises(AgentDefinitionError, name="input"):
        Price(10**400, 1.0)
    assert Price(1e9, 0).of(Usage(2**63 - 1, 0)) > 0
    price: Any = Fraction(1, 4)
    assert type(Price(price, 1.0).input) is float
