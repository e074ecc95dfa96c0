"""An agent with one prompt, and hints for texts in the form of another framework."""

from __future__ import annotations

import warnings

import pytest

from agentkit import Agent, Chain, Layers, OfflineModel, Session, UserInput
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.models import OpenAIModel
from agentkit.prompts import (
    AdditionalInfoPrompt,
    LiteralTextWarning,
    Template,
    TemplateError,
    TextPrompt,
    VolatilityWarning,
)
from agentkit_prompts.tree.prompt import Volatility
from tests.raising import raises

SHOP = "You sell {{ goods }} in {{ language }}."


def test_any_prompt_and_template_is_the_layers_of_an_agent() -> None:
    asked = AdditionalInfoPrompt(SHOP, volatility="session")
    kwargs = {"input": "Hi", "additional_kwargs": {"goods": "tea", "language": "French"}}
    for agent in (Agent(OfflineModel(), asked), Agent(OfflineModel()).with_changes(instructions=asked)):
        assert agent.compose(kwargs).messages[0].text == "You sell tea in French."
        assert agent.chain.layers.system == (asked,)
    template = Template("Speak {{ locale }}.")
    for made in (template, TextPrompt(template)):
        assert Chain(OfflineModel(), made).layers == Layers(made)
        assert Agent(OfflineModel(), made).chain.layers == Layers(made)
    with raises(AgentDefinitionError, name="instructions", value="list"):
        Agent(OfflineModel(), [asked])  # type: ignore[call-overload]


def test_the_error_of_an_unknown_variable_names_the_variable() -> None:
    with raises(TemplateError, line=1, variable="goods"):
        TextPrompt(SHOP)
    with pytest.warns(LiteralTextWarning):
        Layers("You sell {goods} here.")


def test_a_prompt_of_every_turn_before_a_conversation_warns_from_the_second_turn_on() -> None:
    agent = Agent(OfflineModel(), AdditionalInfoPrompt(SHOP))
    session = Session()
    user_input = UserInput("Hi", additional_kwargs={"goods": "tea", "language": "French"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", VolatilityWarning)
        agent.run_sync(user_input, session=session)
    with pytest.warns(VolatilityWarning):
        agent.run_sync(user_input, session=session)


@pytest.mark.parametrize(
    "text",
    [
        *(
            'Answer as {"goods": 1}.',
            "{}",
            "{ x: 1 }",
            "f(){return}",
            "${HOME}",
            "\\\\frac{a}{b}",
            "GET /runs/{id}",
            "`{x}`",
        ),
        *("{1}", "{x y}", "print(f'{x}')", "@{upstream}"),
    ],
)
def test_braces_of_code_and_json_are_not_variables(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Layers(text)


def test_a_budget_can_be_changed() -> None:
    agent = Agent(OfflineModel(), "Rules.", budget=500)
    assert agent.with_changes(budget=2000).chain.budget == 2000 and agent.with_changes(budget=None).chain.budget is None
    assert agent.with_changes(instructions="Others.").chain.budget == 500


def test_words_of_other_frameworks_name_ours() -> None:
    with raises(UnknownOption, name="checkpointer", meant={"checkpointer": None}):
        Agent(OfflineModel(), checkpointer=1)  # type: ignore[call-overload]
    with raises(AgentDefinitionError, name="model", value="gpt-5-mini") as raised:
        Agent("gpt-5-mini")
    assert "did you mean" not in str(raised.value)


def test_no_settings_are_the_default() -> None:
    model = OpenAIModel("m", api_key="k", settings=None)
    assert model.settings == OpenAIModel("m", api_key="k").settings


@pytest.mark.parametrize("volatility", ["static", "session"])
def test_the_prompt_for_a_typed_answer_causes_no_warning(volatility: Volatility) -> None:
    layers = Layers(AdditionalInfoPrompt("You sell {{ goods }}.", volatility=volatility))
    with warnings.catch_warnings():
        warnings.simplefilter("error", VolatilityWarning)
        agent = Agent(OfflineModel(), layers=layers, output=int)
        user_input = UserInput("How many?", additional_kwargs={"goods": "lamps"})
        composition = agent.compose(user_input, session=Session(conversation=[{"role": "user", "content": "Hi."}]))
    assert "JSON Schema" in composition.text


def test_an_agent_lists_the_attributes_that_it_has_and_no_method_of_another_framework() -> None:
    agent = Agent(OfflineModel(), "Hi.")
    assert {"run", "run_sync", "compose", "chain", "name"} <= {*dir(agent)}
    assert [name for name in dir(agent) if not name.startswith("_") and not hasattr(agent, name)] == []
