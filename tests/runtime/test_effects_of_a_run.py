"""Assertions on the effects of a run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, Journal, RunResult, ScriptedModel, tool
from agentkit.models import ModelUnavailable
from agentkit.testing import assert_effects, effects
from tests.runtime.scripts import calling

EVERY = ["Begin", "Append", "CallModel", "CallTools(look)", "CallTools(send)", "Append", "CallModel", "Append"]


@pytest.fixture(scope="module")
def result() -> RunResult[str]:
    tools = [tool(lambda: "", name=name, description="Does something.", sequential=True) for name in ("look", "send")]
    return Agent(ScriptedModel([calling("look", "send"), "done"]), tools=tools).run_sync("x")


@pytest.mark.parametrize(
    "expected",
    [
        EVERY,
        [...],
        ["Begin", ..., "CallTools", "CallTools", ...],
        [..., "CallTools(send)", ..., "Append"],
        [..., "CallModel", ..., "CallModel", ...],
        [*EVERY, ...],
    ],
)
def test_the_effects_of_a_run_are_accepted(result: RunResult[str], expected: list[Any]) -> None:
    assert_effects(result, expected)
    assert_effects(result.journal, expected)


@pytest.mark.parametrize(
    "expected",
    [
        [],
        ["Begin"],
        EVERY[:-1],
        EVERY[1:],
        [..., "CallTools(pay)", ...],
        [..., "CallTools", "CallTools", "CallTools", ...],
        [..., "CallModel", ..., "CallModel", ..., "CallModel", ...],
        [..., "calltools", ...],
    ],
)
def test_other_effects_than_the_effects_of_a_run_are_refused_with_the_difference(
    result: RunResult[str], expected: list[Any]
) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_effects(result, expected)
    assert "CallTools(send)" in str(caught.value)


@given(st.data())
def test_a_list_with_gaps_is_accepted_if_the_gaps_can_be_filled(result: RunResult[str], data: Any) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(EVERY) - 1))))
    expected: list[Any] = [...]
    for at in chosen:
        expected += [EVERY[at], ...]
    assert_effects(result, expected)
    with pytest.raises(AssertionError):
        assert_effects(result, [*expected, "Recall"])


def test_an_error_of_a_run_has_effects_too() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        Agent(ScriptedModel([ModelUnavailable("down")])).run_sync("x")
    assert effects(caught.value) == ["Begin", "Append"]


@pytest.mark.parametrize("nothing", [None, "Begin", ValueError("no run")])
def test_a_value_without_a_journal_is_refused(nothing: Any) -> None:
    with pytest.raises(TypeError):
        effects(nothing)


def test_a_str_is_not_a_list_of_effects(result: RunResult[str]) -> None:
    assert isinstance(result.journal, Journal)
    with pytest.raises(TypeError):
        assert_effects(result, "Begin")
