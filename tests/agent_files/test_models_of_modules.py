"""Errors of another model for the agent of a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit.agent_files import AgentFileError, load_agent
from agentkit.models import ScriptedModel

MODULE = """
from agentkit import Agent
from agentkit.models import CompletionModel, ScriptedModel

plain = Agent(ScriptedModel.repeat("Hi"))
seeded = Agent("openai:a", settings={"seed": 7})
local = Agent(CompletionModel("m", "qwen", base_url="http://h/v1", session_len=4000, control_tokens="reject"))

def made():
    return local
"""
# Name of the agent, arguments of `load_agent`, the argument of the error, and the text before the place in the module.
INVALID: list[tuple[str, dict[str, Any], str, str]] = [
    ("plain", {"model": "olama:x"}, "model", ""),
    ("plain", {"model": "ollama:"}, "model", ""),
    ("plain", {"model": "http://h/v1"}, "model", ""),
    ("local", {"model": "ollama:x"}, "model", "chat_template is in "),
    ("local", {"model": "anthropic:x"}, "model", "chat_template is in "),
    ("made", {"model": "ollama:x"}, "model", "chat_template is in "),
    ("local", {"model": "http://h/v1#x", "chat_template": "nope"}, "chat_template", ""),
    ("plain", {"model": "ollama:x", "chat_template": "qwen"}, "chat_template", ""),
    ("plain", {"model": ScriptedModel.repeat("Hi"), "chat_template": "qwen"}, "chat_template", ""),
    ("seeded", {"model": "anthropic:x"}, "model", "the agent is in "),
]


def test_an_error_of_another_model_names_the_argument_and_the_module(tmp_path: Path) -> None:
    module = tmp_path / "shop.py"
    module.write_text(MODULE)
    wrong = []
    for name, arguments, argument, place in INVALID:
        path = f"{module}:{name}"
        with pytest.raises(AgentFileError) as caught:
            load_agent(path, **arguments)
        (problem,) = caught.value.problems
        expected = ""
        if place:
            expected = place + path
        if problem.file != argument or expected not in problem.message:
            wrong.append((name, arguments, str(problem)))
        if not place and "is in " in problem.message:
            wrong.append((name, arguments, str(problem)))
    assert not wrong
