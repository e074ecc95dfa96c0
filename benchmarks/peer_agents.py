"""Runs of other libraries, with a model without latency: two parallel tool calls, then the answer."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

__all__ = ["PEERS", "Run"]

Run: TypeAlias = Callable[[str], Awaitable[Any]]
"""A function that answers one question."""


def _pydantic_ai(system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> Run:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    following = itertools.cycle(texts)

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[TextPart("Done.")])
        text = next(following)
        return ModelResponse(parts=[ToolCallPart(tool.__name__, text, f"c{at}") for at, tool in enumerate(tools)])

    return Agent(FunctionModel(answer), system_prompt=system, tools=list(tools)).run


def _openai_agents(system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> Run:
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    following = itertools.cycle(texts)

    class Answering(Model):
        async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
            if isinstance(input, list) and input[-1].get("type") == "function_call_output":
                text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
                message = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
                return ModelResponse(output=[message], usage=Usage(), response_id=None)
            text = next(following)
            calls = [
                ResponseFunctionToolCall(arguments=text, call_id=f"c{at}", name=tool.__name__, type="function_call")
                for at, tool in enumerate(tools)
            ]
            return ModelResponse(output=[*calls], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="sums", instructions=system, model=Answering(), tools=[function_tool(tool) for tool in tools])
    config = RunConfig(tracing_disabled=True)

    async def run(text: str) -> Any:
        return await Runner.run(agent, text, run_config=config)

    return run


def _langchain(system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> Run:
    import json

    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import StructuredTool

    following = itertools.cycle(texts)

    class Answering(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "answering"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            message = AIMessage("Done.")
            if not isinstance(messages[-1], ToolMessage):
                arguments = json.loads(next(following))
                calls = [
                    {"name": tool.__name__, "args": arguments, "id": f"c{at}", "type": "tool_call"}
                    for at, tool in enumerate(tools)
                ]
                message = AIMessage("", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            return self._generate(messages)

    structured_tools = [
        StructuredTool.from_function(coroutine=tool, name=tool.__name__, description="") for tool in tools
    ]
    agent = create_agent(Answering(), structured_tools, system_prompt=system)

    async def run(text: str) -> Any:
        return await agent.ainvoke({"messages": [{"role": "user", "content": text}]})

    return run


def _haystack(system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> Run:
    import json
    import os

    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read during the import
    from haystack import component
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage, ToolCall
    from haystack.tools import create_tool_from_function

    following = itertools.cycle(texts)

    @component
    class Answering:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
            if messages[-1].tool_call_results:
                return {"replies": [ChatMessage.from_assistant("Done.")]}
            arguments = json.loads(next(following))
            calls = [ToolCall(tool.name, arguments, f"c{at}") for at, tool in enumerate(haystack_tools)]
            return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}

        @component.output_types(replies=list[ChatMessage])
        async def run_async(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
            return self.run(messages)

    haystack_tools = [create_tool_from_function(tool) for tool in tools]
    agent = Agent(chat_generator=Answering(), tools=haystack_tools, system_prompt=system)

    async def run(text: str) -> Any:
        return await agent.run_async(messages=[ChatMessage.from_user(text)])

    return run


def _installed() -> Iterator[tuple[str, Callable[..., Run]]]:
    for name, module, create_run in (
        ("pydantic-ai", "pydantic_ai", _pydantic_ai),
        ("openai-agents", "agents", _openai_agents),
        ("langchain (LangGraph)", "langchain", _langchain),
        ("haystack", "haystack", _haystack),
    ):
        if importlib.util.find_spec(module) is not None:
            yield name, create_run


PEERS = dict(_installed())
"""Functions by name of library that create a run from a system text, tools and the arguments of the calls."""
