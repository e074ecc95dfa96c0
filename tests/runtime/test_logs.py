"""Logs of runs, and the refusal of real models in tests."""

from __future__ import annotations

import logging

import pytest

from agentkit import Agent, OpenAIModel, ScriptedModel, tool
from agentkit.models.model_errors import NetworkRefused
from agentkit.testing import no_real_models
from tests.raising import raises
from tests.runtime.scripts import calling


@tool
def fall() -> str:
    """Fall."""
    raise ValueError("off the table")


def test_a_tool_that_fails_is_logged_with_its_traceback_and_each_effect_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "agentkit")
    Agent(ScriptedModel([calling("fall"), "ok"]), tools=[fall]).run_sync("secret words", run_id="r1")
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("run r1: the tool fall failed (id1)\nTraceback")
    assert "off the table" in caplog.text and "in fall" in caplog.text
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG] == [
        f"run r1: {name}" for name in ("Begin", "Append", "CallModel", "CallTools", "Append", "CallModel", "Append")
    ]
    assert "secret words" not in caplog.text


def test_real_models_can_be_refused_and_scripted_models_still_answer() -> None:
    with no_real_models():
        with raises(NetworkRefused, model="m"):
            Agent(OpenAIModel("m", base_url="http://127.0.0.1:9", api_key="k")).run_sync("x")
        assert Agent(ScriptedModel(["ok"])).run_sync("x").output == "ok"
