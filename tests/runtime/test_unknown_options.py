"""Options that do not exist: the error says which was meant, for all of them at once."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from agentkit import Agent, Chain, Limits, RecallOptions, ScriptedModel, Summarise, Trim
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.models import Price
from agentkit.prompts import ContextError
from tests.raising import raises

MODEL: Any = ScriptedModel(["x"])
ANY: Any = {"agent": Agent, "limits": Limits}


@pytest.mark.parametrize(
    ("make", "problems"),
    [
        (lambda: Agent(MODEL, system="x"), ["Agent: there is no option 'system'; did you mean 'layers'?"]),  # type: ignore[call-overload]
        (
            lambda: ANY["agent"](MODEL, outputs=int, tols=[], memry=None, max_steps=3),
            ["'outputs'; did you mean 'output'?", "'tols'; did you mean 'tools'?", "'memry'", "did you mean 'limits'?"],
        ),
        (
            lambda: ANY["limits"](max_steps=3, timeout=2, max_cost=1),
            ["Limits: there is no option 'max_steps'; did you mean 'steps'?", "mean 'seconds'?", "mean 'money'?"],
        ),
        (
            lambda: Chain(MODEL, system_prompt="x"),
            ["Chain: there is no option 'system_prompt'; did you mean 'layers'?"],
        ),  # type: ignore[call-arg]
        (lambda: RecallOptions(top_k=3), ["RecallOptions: there is no option 'top_k'; did you mean 'limit'?"]),  # type: ignore[call-arg]
        (lambda: Trim(max_tokens=3), ["Trim: there is no option 'max_tokens'; did you mean 'tokens'?"]),  # type: ignore[call-arg]
        (lambda: Summarise(MODEL, instruction="x"), ["did you mean 'instructions'?"]),  # type: ignore[call-arg]
        (lambda: Price(inputs=1, output=2), ["Price: there is no option 'inputs'; did you mean 'input'?"]),  # type: ignore[call-arg]
        (lambda: ANY["agent"](MODEL).but(memori=1), ["there is no option 'memori'; did you mean 'memory'?"]),
        (lambda: ANY["agent"](MODEL).run_sync("x", sesion=1, system="y"), ["mean 'session'?", "mean 'layers'?"]),
        (lambda: ANY["limits"](nonsense=1), ["there is no option 'nonsense'; there is: input_tokens, money"]),
    ],
)
def test_the_error_says_which_was_meant(make: Callable[[], Any], problems: list[str]) -> None:
    with pytest.raises(UnknownOption) as found:
        make()
    assert isinstance(found.value, AgentDefinitionError) and isinstance(found.value, TypeError)
    assert [problem for problem in problems if problem not in str(found.value)] == []
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)


def test_what_goes_into_the_input_is_named() -> None:
    agent = Agent(MODEL)
    with raises(UnknownOption, name="company", meant={"company": "compaction"}):
        agent.run_sync("Hi", company="acme")  # type: ignore[call-arg]
    with pytest.raises(ContextError) as caught:
        agent.run_sync({"messages": []})
    assert [place for place, _ in caught.value.problems] == ["user_input.messages"]


def test_signatures_and_values_are_what_they_were() -> None:
    assert list(inspect.signature(Limits).parameters)[:2] == ["steps", "tool_calls"]
    assert "layers" in inspect.signature(Agent).parameters
    limits = Limits(3, seconds=2)
    assert pickle.loads(pickle.dumps(limits)) == limits == Limits(steps=3, seconds=2)
    with pytest.raises(TypeError):
        ANY["limits"](*range(1, 30))
