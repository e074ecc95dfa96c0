"""Agents with skills: the prompt lists them, and shows loaded skills also after compaction and in stored sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, ScriptedModel, Session, ToolCall, Trim
from agentkit.agent_files import AgentFileError, load_agent
from agentkit.errors import AgentDefinitionError
from agentkit.prompts import Layers, LoadedSkillsPrompt, SkillsPrompt, UnshownWarning
from agentkit.sandbox import MontySandbox
from agentkit.tools import DynamicToolset, SkillFolder, ToolDefinitionError, Toolset
from tests.tools.skills.test_skill_folder import skill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skill(tmp_path / "skills", "refunds", "How to refund.", "Ask for the order number.")
    skill(tmp_path / "skills", "returns", "How to return.", "Print a label.")
    return tmp_path / "skills"


def loads(name: str) -> ToolCall:
    return ToolCall(name="load_skill", arguments={"name": name})


def prompt(agent: Agent, session: Session) -> str:
    return "\n".join(message.text for message in agent.compose("Hi", session=session).messages)


def test_a_loaded_skill_stays_in_the_prompt_after_compaction(folder: Path) -> None:
    model = ScriptedModel([loads("refunds"), "Which order?", *["word " * 400] * 6])
    agent = Agent(model, "You help.", tools=[SkillFolder(folder)], compaction=Trim(tokens=800, keep=0))
    session = Session("s")
    result = agent.run_sync("I want my money back.", session=session)

    assert "- refunds: How to refund." in result.composition.messages[0].text
    assert "Ask for the order number." in result.composition.messages[1].text
    assert "Print a label." not in str(result.composition.messages)
    assert "refunds/SKILL.md" in str(result.composition.why("loaded_skills[0]"))
    for _ in range(3):
        last = agent.run_sync("And then?", session=session)
    assert "I want my money back." not in str(last.composition.messages)
    assert "Ask for the order number." in str(last.composition.messages)
    assert "Ask for the order number." in prompt(agent, session)


def test_a_resumed_run_shows_its_loaded_skills(folder: Path) -> None:
    agent = Agent(ScriptedModel([loads("returns"), "Done."]), tools=[SkillFolder(folder)])
    journal = agent.run_sync("Hi").journal
    cut = type(journal).loads("\n".join(journal.dumps().splitlines()[:-1]))
    again = Agent(ScriptedModel(["Done."]), tools=[SkillFolder(folder)])
    assert "Print a label." in str(again.resume_sync(cut).composition.messages)


def test_a_script_runs_after_its_skill_was_loaded_also_after_compaction_and_resuming(folder: Path) -> None:
    (folder / "returns" / "label.py").write_text("print('a label')")
    script = ToolCall(name="run_skill_script", arguments={"name": "returns", "script": "label.py"})
    skills = SkillFolder(folder, sandbox=MontySandbox())

    def agent(*replies: Any) -> Agent:
        return Agent(ScriptedModel([*replies]), "You help.", tools=[skills], compaction=Trim(tokens=800, keep=0))

    def results(result: Any) -> list[str]:
        return [message.text for message in result.messages if message.name == "run_skill_script"]

    session = Session("s")
    early = agent(script, [loads("returns"), script], script, "Done.").run_sync("Hi", session=session)
    assert ["is not loaded" in text for text in results(early)] == [True, True, False]
    assert results(early)[2] == "a label"
    for _ in range(3):
        agent("word " * 400).run_sync("Hi", session=session)
    later = agent(script, "Done.").run_sync("Hi", session=session)
    assert "are in the prompt now" not in str(later.composition.messages)
    assert results(later) == ["a label"]
    entries = agent(script, [loads("returns"), script], script, "Done.").run_sync("Hi").journal.dumps().splitlines()
    for end in range(1, len(entries)):
        cut = Journal.loads("\n".join([*entries[:end], ""]))
        replies = [script, [loads("returns"), script], script, "Done."]
        requests = sum('"CallModel"' in entry for entry in entries[:end])
        assert results(agent(*replies[requests:]).resume_sync(cut)) == results(early)


def test_layers_must_show_skills(folder: Path) -> None:
    with pytest.raises(AgentDefinitionError):
        Agent(ScriptedModel([]), layers=Layers("x", before_input=LoadedSkillsPrompt()), tools=[SkillFolder(folder)])
    layers = Layers(["x", SkillsPrompt()], before_input=LoadedSkillsPrompt())
    agent = Agent(ScriptedModel(["a"]), layers=layers, tools=[SkillFolder(folder)])
    assert "refunds" in prompt(agent, Session("s"))
    without = Agent(ScriptedModel(["a"]), "x", tools=[SkillFolder(folder)]).with_changes(tools=[])
    assert "refunds" not in prompt(without, Session("s"))
    assert "refunds" in prompt(without.with_changes(tools=[SkillFolder(folder)]), Session("s"))


def test_skills_that_no_prompt_could_show_are_refused(folder: Path) -> None:
    skills = SkillFolder(folder)
    with pytest.raises(ToolDefinitionError, match="adds a part to the prompt"):
        Toolset(skills)
    for toolset in (DynamicToolset(lambda context: skills), DynamicToolset(lambda context: [skills])):
        agent = Agent(ScriptedModel(["Hi"]), tools=[toolset])
        with pytest.raises(ToolDefinitionError, match="adds a part to the prompt"):
            agent.run_sync("Hi")
    assert "refunds" in prompt(Agent(ScriptedModel([]), tools=skills), Session("s"))


def test_an_agent_has_only_one_folder_of_skills(folder: Path) -> None:
    with pytest.raises(ToolDefinitionError, match="several toolsets of the class SkillFolder"):
        Agent(ScriptedModel([]), tools=[SkillFolder(folder), SkillFolder(folder)])


def test_an_agent_file_names_a_folder_of_skills(folder: Path) -> None:
    file = folder.parent / "agent.yaml"
    file.write_text("model: offline\ninstructions: You help.\nskills: skills\n")
    loaded = load_agent(file)
    assert "- returns: How to return." in prompt(loaded.agent, Session("s"))
    (folder / "refunds" / "SKILL.md").write_text("---\nname: refunds\ndescription: x\n---\nOther.\n")
    assert load_agent(file).version != loaded.version
    (folder / "returns" / "SKILL.md").write_text("Print a label.")
    with pytest.raises(AgentFileError) as caught:
        load_agent(file)
    assert caught.value.line == 3


def test_skills_that_no_prompt_shows_cause_a_warning() -> None:
    from agentkit.prompts import PromptContext, compose

    with pytest.warns(UnshownWarning):
        compose(Layers("x"), PromptContext("Hi", skills=["one"]))


def test_the_version_of_an_agent_depends_on_its_skills(folder: Path) -> None:
    before, same = (Agent(ScriptedModel([]), tools=[SkillFolder(folder)]).definition.version for _ in range(2))
    (folder / "refunds" / "SKILL.md").write_text("---\nname: refunds\ndescription: How to refund.\n---\nRefuse.\n")
    after = Agent(ScriptedModel([]), tools=[SkillFolder(folder)]).definition.version
    assert before.id == same.id != after.id
    changed = {name for name, text in after.texts.items() if before.texts.get(name) != text}
    assert changed == {"skills.refunds"}
