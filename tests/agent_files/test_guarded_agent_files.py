"""Agent files name guards, and redact the requests of each model of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit import ScriptedModel, Summarise
from agentkit.agent_files import AgentFileError, load_agent
from agentkit.guards import GuardStopped, RedactingModel

GUARDS = """
from agentkit.guards import Stop, guard

@guard("input")
def no_prices(text):
    return Stop("no prices") if "price" in text else None

def plain(text): ...
"""


def written(folder: Path, text: str) -> Path:
    (folder / "guards.py").write_text(GUARDS)
    (folder / "agent.yaml").write_text(text)
    return folder / "agent.yaml"


def test_a_file_lists_guards(tmp_path: Path) -> None:
    loaded = load_agent(written(tmp_path, "model: offline\nguards: [./guards.py:no_prices]\n"))
    loaded.agent.run_sync("Hi")
    with pytest.raises(GuardStopped):
        loaded.agent.run_sync("What is the price?")
    assert tmp_path / "guards.py" in loaded.files


def test_invalid_guards_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = "model: offline\nguards:\n- ./guards.py:plain\n- ./guards.py:missing\n- ./guards.py:no_prices\n"
    with pytest.raises(AgentFileError) as caught:
        load_agent(written(tmp_path, text))
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [(3, "guards[0]"), (4, "guards[1]")]
    with pytest.raises(AgentFileError):
        load_agent(written(tmp_path, "model: {name: offline, redact: some}\n"))


def test_redaction_covers_the_model_of_the_caller_and_the_model_of_summaries(tmp_path: Path) -> None:
    text = "model: {name: offline, redact: untrusted}\ncompaction: {kind: summarise, model: offline, tokens: 900}\n"
    received: list[str] = []

    def reply(composition: Any) -> str:
        received.append(composition.messages[-1].text)
        return "Yes."

    agent = load_agent(written(tmp_path, text), model=ScriptedModel([reply])).agent
    agent.run_sync("I am ada@example.com")
    compaction = agent.definition.compaction
    assert received[0].startswith("I am [EMAIL_")
    assert isinstance(compaction, Summarise)
    assert isinstance(compaction.model, RedactingModel)
