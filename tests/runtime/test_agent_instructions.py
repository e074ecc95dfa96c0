"""The instructions, the layers and the model settings of an agent."""

from __future__ import annotations

from typing import Any

from agentkit import Agent, Chain, Layers, ModelSettings, OpenAIModel, ScriptedModel
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.prompts import TextPrompt
from tests.raising import raises

MODEL = ScriptedModel.repeat("Hello.")
ANY: Any = Agent


def sent_settings(agent: Agent[Any, Any]) -> ModelSettings:
    model: Any = agent.chain.model
    settings: ModelSettings = model.settings
    return settings


def test_instructions_are_the_first_layer_of_the_system_prompt() -> None:
    for instructions in ("Be brief.", TextPrompt("Be brief.")):
        for agent in (Agent(MODEL, instructions=instructions), Agent(MODEL, instructions)):
            assert agent.compose("Hi").system.text == "Be brief."
            assert len(agent.chain.layers.system) == 1
    assert Agent(MODEL, layers=Layers("Be brief.", after_input="Go.")).compose("Hi").system.text == "Be brief."


def test_an_agent_has_instructions_or_layers() -> None:
    with raises(AgentDefinitionError, name="layers"):
        Agent(MODEL, "Be brief.", layers=Layers("Go."))
    with raises(AgentDefinitionError, name="layers"):
        Agent(MODEL, "Be brief.").with_changes(instructions="Go.", layers=Layers("Go."))
    with raises(AgentDefinitionError, name="layers", value="str"):
        ANY(MODEL, layers="Be brief.")
    with raises(AgentDefinitionError, name="instructions", value="Layers"):
        ANY(MODEL, Layers("Be brief."))
    with raises(AgentDefinitionError, name="model", value="Chain"):
        ANY(Chain(MODEL, "Be brief."), "Go.")


def test_settings_of_an_agent_override_settings_of_its_model_and_a_run_overrides_both() -> None:
    model = OpenAIModel("m", settings=ModelSettings(temperature=0.1, max_tokens=10))
    agent = Agent(model, settings={"temperature": 0.5, "seed": 1})
    assert sent_settings(agent) == ModelSettings(temperature=0.5, max_tokens=10, seed=1)
    changed = agent.with_changes(settings=ModelSettings(seed=2))
    assert sent_settings(changed) == ModelSettings(temperature=0.5, max_tokens=10, seed=2)
    assert sent_settings(Agent(Chain(model), settings={"seed": 3})).seed == 3
    assert model.settings == ModelSettings(temperature=0.1, max_tokens=10)


def test_settings_of_an_agent_also_apply_to_a_model_that_replaces_its_model() -> None:
    agent = Agent(OpenAIModel("a"), settings=ModelSettings(seed=1)).with_changes(settings={"top_p": 0.5})
    other = agent.with_changes(model=OpenAIModel("b", settings=ModelSettings(seed=7, max_tokens=9)))
    assert sent_settings(other) == ModelSettings(seed=1, top_p=0.5, max_tokens=9)
    assert sent_settings(agent.with_changes(model=OpenAIModel("b"), settings={"seed": 2})).seed == 2


def test_a_mapping_of_settings_must_have_names_of_settings() -> None:
    with raises(UnknownOption):
        Agent(OpenAIModel("m"), settings={"temprature": 0})
