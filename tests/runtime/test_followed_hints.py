"""Calls in the vocabulary of other libraries: the message names the right call, and the right call works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentkit
from agentkit import (
    Agent,
    Limits,
    Memory,
    Message,
    ModelSettings,
    OfflineModel,
    OpenAIModel,
    ScriptedModel,
    Session,
    Tool,
    tool,
)
from agentkit.errors import AgentDefinitionError, UnknownOption
from agentkit.memory import RecallFilter
from agentkit.prompts import PromptError, Size
from agentkit.tools import ToolDefinitionError, ToolDescriptionWarning
from tests.wrong_calls import check_right_way


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent: Any = Agent(ScriptedModel.repeat("4"), "Be brief.")


async def _text() -> str:
    return "".join([text async for text in agent.stream_text("2+2?")])


CALLS: list[tuple[Callable[[], object], type[Exception], str, Callable[[], object]]] = [
    (lambda: agent("2+2?"), TypeError, "use agent.run_sync(text)", lambda: agent.run_sync("2+2?").output == "4"),
    (lambda: agent | int, TypeError, "use Agent(model, output=type)", lambda: _answer(output=int) == 4),
    (
        lambda: "Be brief." | agent,
        TypeError,
        "use Agent(model, instructions=prompt)",
        lambda: _answer(instructions="x"),
    ),
    (
        lambda: list(agent.stream("2+2?")),
        TypeError,
        "use async for, or agent.stream_sync(text)",
        lambda: list(agent.stream_sync("2+2?"))[-1].result.output == "4",
    ),
    (
        lambda: list(agent.stream_text("2+2?")),
        TypeError,
        "use async for, or agent.stream_text_sync(text)",
        lambda: "".join(agent.stream_text_sync("2+2?")) == asyncio.run(_text()) == "4",
    ),
    (
        lambda: agent.run_sync("2+2?").usage(),
        TypeError,
        "use result.usage without parentheses",
        lambda: agent.run_sync("2+2?").usage.input_tokens == 0,
    ),
    (
        lambda: tool(return_direct=True)(add),  # type: ignore[call-overload]
        ToolDefinitionError,
        "use final=True",
        lambda: tool(final=True)(add),
    ),
    (
        lambda: agentkit.model("openai/gpt-5-mini"),
        AgentDefinitionError,
        "such as 'openai:gpt-5-mini'",
        lambda: agentkit.model("openai:gpt-5-mini"),
    ),
    (
        lambda: agentkit.model("claude-opus-4-8"),
        AgentDefinitionError,
        'such as "anthropic:claude-opus-4-8"',
        lambda: agentkit.model("anthropic:claude-opus-4-8"),
    ),
    (
        lambda: OpenAIModel("m", temperature=0),  # type: ignore[call-arg]
        UnknownOption,
        "use settings=ModelSettings(temperature=...)",
        lambda: OpenAIModel("m", settings=ModelSettings(temperature=0)),
    ),
    (
        lambda: _answer(max_tokens=9),
        UnknownOption,
        "use settings=ModelSettings(max_tokens=...)",
        lambda: Agent(OfflineModel(), settings=ModelSettings(max_tokens=9)),
    ),
    (
        lambda: _answer(max_turns=3),
        UnknownOption,
        "use limits=Limits(steps=...)",
        lambda: _answer(limits=Limits(steps=3)),
    ),
    (
        lambda: agent.run_sync("And 3?", thread_id="ada"),
        UnknownOption,
        "run(..., session=Session('name'))",
        lambda: agent.run_sync("And 3?", session=Session("ada")).output == "4",
    ),
    (
        lambda: agent.run_sync("And 3?", message_history=[]),
        UnknownOption,
        "use history=[...]",
        lambda: agent.run_sync("And 3?", history=[Message("user", "2+2?"), Message("assistant", "4")]),
    ),
    (lambda: Size(100), PromptError, "Size(min=..., target=..., max=..., ", lambda: Size(max=100)),  # type: ignore[call-arg]
    (
        lambda: _answer(tools=[agent]),
        ToolDefinitionError,
        "use agent.as_tool(name=..., description=...)",
        lambda: _answer(tools=[agent.as_tool(name="adder", description="Adds.")]),
    ),
]


def _answer(**options: Any) -> Any:
    create: Any = Agent
    return create(ScriptedModel.repeat("4"), **options).run_sync("2+2?").output


@pytest.mark.parametrize(("wrong", "error", "message", "right"), CALLS, ids=[message for _, _, message, _ in CALLS])
def test_the_message_names_a_call_that_works(
    wrong: Callable[[], object], error: type[Exception], message: str, right: Callable[[], object]
) -> None:
    check_right_way(wrong, error, message, right)


def test_a_lambda_becomes_a_tool_with_a_name() -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Agent(OfflineModel(), tools=[lambda text: text])
    assert "Tool(function, name='...')" in str(caught.value)
    with pytest.warns(ToolDescriptionWarning):
        named = Tool(lambda text: text, name="echo")
    assert "echo" in Agent(OfflineModel(), tools=[named]).tools


def test_a_memory_names_its_calls(tmp_path: Path) -> None:
    with Memory(tmp_path / "memory") as opened:
        memory: Any = opened
        with pytest.raises(TypeError) as caught:
            memory.documents.add("a.md", "The tower is 300 m high.")
        assert "use documents.add(text, source=name)" in str(caught.value)
        assert memory.documents.add("The tower is 300 m high.", source="a.md").source == "a.md"
        with pytest.raises(TypeError) as caught:
            memory.recall("tower", 3)
        assert "use memory.recall(text, limit=3)" in str(caught.value)
        assert memory.recall("tower", limit=3).documents
        with pytest.raises(TypeError) as caught:
            memory.recall("tower", filter={"year": 2020})
        assert "use where=RecallFilter(...)" in str(caught.value)
        assert not memory.recall("tower", where=RecallFilter(metadata={"year": 2020})).documents


def test_a_stream_can_be_closed_early_and_is_an_async_generator() -> None:
    async def first() -> str:
        stream = agent.stream_text("2+2?")
        text: str = await anext(stream)
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return text

    assert asyncio.run(first()) == "4"


def test_a_module_that_is_not_imported_yet_names_the_import() -> None:
    # Other tests of this process have imported the module.
    program = [sys.executable, "-c", "import agentkit; agentkit.testing"]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (
        "AttributeError: module 'agentkit' has no attribute 'testing'; import agentkit.testing first" in result.stderr
    )
