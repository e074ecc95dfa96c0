"""Typed answers: their validation, their repair by the model, and the error after the last repair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from agentkit import Agent, Chain, LimitExceeded, Limits, ScriptedModel, Session
from agentkit.errors import AgentDefinitionError, OutputError
from agentkit.prompts import Layers
from tests.raising import raises
from tests.runtime.scripts import calling, roles, valid


class City(BaseModel):
    name: str
    inhabitants: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int


def test_a_model_a_dataclass_and_plain_types_are_read_from_json() -> None:
    def ask(output: type, text: str) -> object:
        return Agent(ScriptedModel([text]), output=output).run_sync("go").output

    assert ask(City, '{"name": "Bern", "inhabitants": 134000}') == City(name="Bern", inhabitants=134000)
    assert ask(Point, '{"x": 1, "y": 2}') == Point(1, 2)
    assert ask(list[int], "[1, 2]") == [1, 2]
    assert ask(int, "7") == 7
    assert ask(Literal["yes", "no"], '"yes"') == "yes"  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["```json\n[1]\n```", "```\n[1]\n```", "  ```json\n[1]```\n", " [1] "])
def test_a_code_fence_around_the_answer_is_ignored(text: str) -> None:
    assert Agent(ScriptedModel([text]), output=list[int]).run_sync("go").output == [1]


def test_text_is_returned_unchanged() -> None:
    assert Agent(ScriptedModel(["```json\n1\n```"])).run_sync("go").output == "```json\n1\n```"


def test_the_model_gets_the_schema_in_every_step() -> None:
    model = ScriptedModel([calling("look"), '{"name": "Bern", "inhabitants": 1}'])

    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(model, tools=[look], output=City)
    agent.run_sync("go")
    for sent in model.requests:
        schema = sent.to_openai()["response_format"]["json_schema"]["schema"]
        assert schema["required"] == ["name", "inhabitants"]
    assert agent.chain.output_schema == City.model_json_schema()


def test_the_model_may_repair_its_answer() -> None:
    session = Session()
    model = ScriptedModel(["Bern!", '{"name": "Bern", "inhabitants": -1}', '{"name": "Bern", "inhabitants": 9}'])
    result = Agent(model, output=City).run_sync("Name a city.", session=session)
    assert result.output.inhabitants == 9
    assert result.steps == 3
    assert roles(session.conversation) == "user assistant user assistant user assistant"
    asked_again = model.requests[2].messages[-1].text
    assert "inhabitants: expected 0 or more" in asked_again
    assert "valid City" in asked_again


def test_after_all_repairs_the_error_contains_the_problems() -> None:
    session, model = Session(), ScriptedModel.repeat("Bern!")
    with raises(OutputError, name="answer") as caught:
        Agent(model, output=City).run_sync("go", session=session)
    assert caught.value.text == "Bern!"
    assert "Invalid JSON" in caught.value.problems
    assert len(model.requests) == 3
    assert roles(session.conversation) == "user assistant user assistant user assistant"


def test_repairs_can_be_forbidden() -> None:
    model = ScriptedModel.repeat("Bern!")
    with pytest.raises(OutputError):
        Agent(model, output=City, limits=Limits(repairs=0)).run_sync("go")
    assert len(model.requests) == 1


def test_repairs_count_as_steps() -> None:
    with raises(LimitExceeded, value=2, limit="steps"):
        Agent(ScriptedModel.repeat("no"), output=City, limits=Limits(steps=2, repairs=9)).run_sync("go")


def test_a_model_may_call_tools_after_a_bad_answer() -> None:
    session = Session()
    model = ScriptedModel(["Bern!", calling("look"), "still no", '{"name": "Bern", "inhabitants": 1}'])

    def look() -> str:
        """Look."""
        return "seen"

    assert Agent(model, tools=[look], output=City).run_sync("go", session=session).output.name == "Bern"
    assert valid(session.conversation)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"\ud800"', "NaN", '{"name": "a", "inhabitants": 1} tail'])
def test_any_text_that_is_not_an_answer_is_an_output_error(text: str) -> None:
    with pytest.raises(OutputError):
        Agent(ScriptedModel.repeat(text), output=City).run_sync("go")


def test_every_problem_of_an_answer_is_named_with_its_place() -> None:
    chain = Chain(ScriptedModel(['[{"name": 1, "inhabitants": "x"}, {}]']), output=list[City])
    with pytest.raises(OutputError) as caught:
        Agent(chain, limits=Limits(repairs=0)).run_sync("go")
    for place in ("[0].name", "[0].inhabitants", "[1].name", "[1].inhabitants"):
        assert f"{place}: " in caught.value.problems


def test_a_type_that_no_model_can_answer_with_is_refused_immediately() -> None:
    class Socket:
        pass

    with raises(AgentDefinitionError, name="output", value="Socket"):
        Agent(ScriptedModel([]), output=Socket)
    with raises(AgentDefinitionError, name="output", value="Callable"):
        Chain(ScriptedModel([]), output=Callable[[], int])  # type: ignore[arg-type]


def test_a_type_with_unhashable_metadata_is_accepted() -> None:
    small = Annotated[int, Field(json_schema_extra={"examples": [1]}, le=3)]
    assert Chain(ScriptedModel([]), output=small).output_schema is not None  # type: ignore[arg-type]


def test_the_output_type_does_not_depend_on_the_layers() -> None:
    layers = Layers("Name a city.")
    text, typed = Chain(ScriptedModel(["Bern"]), layers), Chain(ScriptedModel(["3"]), layers, output=int)
    assert (text.output_schema, typed.output_schema) == (None, {"type": "integer"})
