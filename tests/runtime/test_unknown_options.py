"""Unknown options: the error names the options with the closest names, for all of them at once."""

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
    ("make", "meant"),
    [
        (lambda: Agent(MODEL, system="x"), {"system": "instructions"}),  # type: ignore[call-overload]
        (
            lambda: ANY["agent"](MODEL, outputs=int, tols=[], memry=None, max_steps=3),
            {"outputs": "output", "tols": "tools", "memry": "memory", "max_steps": "limits"},
        ),
        (
            lambda: ANY["limits"](max_steps=3, timeout=2, max_cost=1),
            {"max_steps": "steps", "timeout": "seconds", "max_cost": "money"},
        ),
        (lambda: Chain(MODEL, system_prompt="x"), {"system_prompt": "layers"}),  # type: ignore[call-arg]
        (lambda: RecallOptions(top_k=3), {"top_k": "limit"}),  # type: ignore[call-arg]
        (lambda: Trim(max_tokens=3), {"max_tokens": "tokens"}),  # type: ignore[call-arg]
        (lambda: Summarise(MODEL, instruction="x"), {"instruction": "instructions"}),  # type: ignore[call-arg]
        (lambda: Price(inputs=1, output=2), {"inputs": "input"}),  # type: ignore[call-arg]
        (lambda: ANY["agent"](MODEL).with_changes(memori=1), {"memori": "memory"}),
        (
            lambda: ANY["agent"](MODEL).run_sync("x", sesion=1, system="y"),
            {"sesion": "session", "system": "instructions"},
        ),
        (lambda: ANY["limits"](nonsense=1), {"nonsense": None}),
    ],
)
def test_the_error_names_the_option_with_the_closest_name(
    make: Callable[[], Any], meant: dict[str, str | None]
) -> None:
    with pytest.raises(UnknownOption) as caught:
        make()
    error = caught.value
    assert isinstance(error, AgentDefinitionError) and isinstance(error, TypeError)
    assert error.meant == meant
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.meant == meant


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda agent: agent.with_changes(counter=None), "counter"),
        (lambda agent: agent.with_changes(session=None), "session"),
        (lambda agent: agent.run_sync("x", priority=1), "priority"),
        (lambda agent: agent.resume_sync("journal.jsonl", history=[]), "history"),
        (lambda agent: agent.resume_sync("journal.jsonl", run_id="r"), "run_id"),
    ],
)
def test_an_option_of_another_method_is_refused(call: Callable[[Any], Any], name: str) -> None:
    with raises(UnknownOption, name=name, meant={name: None}):
        call(Agent(MODEL))


def test_options_that_belong_to_the_input_are_named() -> None:
    agent = Agent(MODEL)
    with raises(UnknownOption, name="company", meant={"company": "compaction"}):
        agent.run_sync("Hi", company="acme")  # type: ignore[call-arg]
    with pytest.raises(ContextError) as caught:
        agent.run_sync({"messages": []})
    assert [place for place, _ in caught.value.problems] == ["user_input.messages"]


def test_signatures_and_values_do_not_change() -> None:
    assert list(inspect.signature(Limits).parameters)[:2] == ["steps", "tool_calls"]
    assert "layers" in inspect.signature(Agent).parameters
    limits = Limits(3, seconds=2)
    assert pickle.loads(pickle.dumps(limits)) == limits == Limits(steps=3, seconds=2)
    with pytest.raises(TypeError):
        ANY["limits"](*range(1, 30))
