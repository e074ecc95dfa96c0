"""Constructors with named options refuse an unknown name, and name the option with the closest name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentkit import AnthropicModel, Limits, OpenAIModel, OpenAIResponsesModel, OutputSpec, RecallOptions, Trim, model
from agentkit.errors import UnknownOption
from agentkit.memory import FactDraft, Gate, IngestOptions, RecallFilter, StoreError
from agentkit.memory.recall import RecallPolicy
from agentkit.models import ModelSettings, Price
from agentkit.prompts import Budget, Layers, MemoPrompt, PromptContext, PromptError, Size, UserInput
from agentkit.server import ServerOptions
from agentkit.tools import MCPToolset, ToolDefinitionError, ToolPolicy, mcp_server, serve_mcp

SERVER = ["a-server"]


@pytest.mark.parametrize(
    ("make", "meant", "error"),
    [
        (lambda: MemoPrompt(fense=True), "fence", PromptError),  # type: ignore[call-arg]
        (lambda: Layers(sytem="x"), "system", PromptError),  # type: ignore[call-arg]
        (lambda: Size(maxx=3), "max", PromptError),  # type: ignore[call-arg]
        (lambda: Budget(9, reserv=3), "reserve", PromptError),  # type: ignore[call-arg]
        (lambda: PromptContext(user_inputs="x"), "user_input", PromptError),  # type: ignore[call-arg]
        (lambda: UserInput("x", aditional_kwargs={}), "additional_kwargs", PromptError),  # type: ignore[call-arg]
        (lambda: Limits(step=3), "steps", UnknownOption),  # type: ignore[call-arg]
        (lambda: Trim(token=3), "tokens", UnknownOption),  # type: ignore[call-arg]
        (lambda: RecallOptions(limt=3), "limit", UnknownOption),  # type: ignore[call-arg]
        (lambda: OutputSpec(int, mod="tool"), "mode", UnknownOption),  # type: ignore[call-overload]
        (lambda: ModelSettings(temprature=0), "temperature", UnknownOption),  # type: ignore[call-arg]
        (lambda: Price(inputt=1.0), "input", UnknownOption),  # type: ignore[call-arg]
        (lambda: ServerOptions(body_byte=1), "body_bytes", UnknownOption),  # type: ignore[call-arg]
        (lambda: ToolPolicy(retris=2), "retries", ToolDefinitionError),  # type: ignore[call-arg]
        (lambda: MCPToolset(SERVER, timout=2), "timeout", ToolDefinitionError),  # type: ignore[call-arg]
        (lambda: mcp_server([], nme="shop"), "name", ToolDefinitionError),  # type: ignore[call-arg]
        (lambda: serve_mcp([], aprove=None), "approve", ToolDefinitionError),  # type: ignore[call-arg]
        (lambda: RecallFilter(kind=("fact",)), "kinds", StoreError),  # type: ignore[call-arg]
        (lambda: RecallPolicy(scorrers=()), "scorers", StoreError),  # type: ignore[call-arg]
        (lambda: IngestOptions(alt_txt=None), "alt_text", StoreError),  # type: ignore[call-arg]
        (lambda: Gate(self_retrival=1), "self_retrieval", StoreError),  # type: ignore[call-arg]
        (lambda: FactDraft("x", source=["t"]), "sources", StoreError),  # type: ignore[call-arg]
    ],
)
def test_the_error_of_a_mistyped_option_names_the_closest_option(
    make: Callable[[], Any], meant: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert f"'{meant}'" in str(caught.value)


def by_name(name: str, **options: Any) -> Any:
    return model(f"groq:{name}", **options)


@pytest.mark.parametrize("kind", [OpenAIModel, OpenAIResponsesModel, AnthropicModel, by_name])
def test_a_model_names_the_closest_option_and_the_place_of_settings(kind: Any) -> None:
    with pytest.raises(UnknownOption) as caught:
        kind("m", base_ur="http://localhost:1/v1")
    assert "'base_url'" in str(caught.value)
    with pytest.raises(UnknownOption) as caught:
        kind("m", temperature=0)
    assert "use settings=ModelSettings(temperature=...)" in str(caught.value)


def test_an_invalid_policy_is_an_error_before_a_server_is_called() -> None:
    with pytest.raises(ToolDefinitionError):
        MCPToolset(SERVER, timeout=-1)
