"""Agents of other libraries, with a model without latency: parallel calls of all tools, then the answer.

Each class is used as its library documents: tools are ready before an agent is constructed, tracing and telemetry are
off, and a session keeps the whole conversation.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

Run: TypeAlias = Callable[[str], Awaitable[Any]]
"""A function that answers one question."""
ANSWER = "Done."


class Peer(Protocol):
    """Agents of one library; `texts` are the arguments of the tool calls, as JSON, in turn."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None: ...

    def agent(self) -> Any:
        """Construct an agent."""

    def run(self) -> Run:
        """Return a function that answers each question in a new conversation."""

    def session(self) -> Run:
        """Return a function that answers each question in the same conversation."""


class PydanticAI:
    """Agents of pydantic-ai."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None:
        from pydantic_ai import Tool
        from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
        from pydantic_ai.models.function import AgentInfo, FunctionModel

        following = itertools.cycle(texts)

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            if not tools or any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
                return ModelResponse(parts=[TextPart(ANSWER)])
            text = next(following)
            return ModelResponse(parts=[ToolCallPart(tool.__name__, text, f"c{at}") for at, tool in enumerate(tools)])

        self.model = FunctionModel(answer)
        self.system = system
        self.tools = [Tool(tool) for tool in tools]

    def agent(self) -> Any:
        from pydantic_ai import Agent

        return Agent(self.model, system_prompt=self.system, tools=self.tools)

    def run(self) -> Run:
        run: Run = self.agent().run
        return run

    def session(self) -> Run:
        agent, messages = self.agent(), []

        async def run(text: str) -> Any:
            nonlocal messages
            result = await agent.run(text, message_history=messages)
            messages = result.all_messages()

        return run


class OpenAIAgents:
    """Agents of the OpenAI Agents SDK."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None:
        from agents import RunConfig, function_tool
        from agents.items import ModelResponse
        from agents.models.interface import Model
        from agents.usage import Usage
        from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

        following = itertools.cycle(texts)

        class Answering(Model):
            async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
                if not tools or (isinstance(input, list) and input[-1].get("type") == "function_call_output"):
                    text = ResponseOutputText(annotations=[], text=ANSWER, type="output_text")
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

        self.model = Answering()
        self.system = system
        self.tools = [function_tool(tool) for tool in tools]
        self.config = RunConfig(tracing_disabled=True)

    def agent(self) -> Any:
        from agents import Agent

        return Agent(name="sums", instructions=self.system, model=self.model, tools=self.tools)

    def run(self) -> Run:
        return self._run(None)

    def session(self) -> Run:
        from agents import SQLiteSession

        return self._run(SQLiteSession("s"))

    def _run(self, session: Any) -> Run:
        from agents import Runner

        agent = self.agent()

        async def run(text: str) -> Any:
            return await Runner.run(agent, text, run_config=self.config, session=session)

        return run


class LangChain:
    """Agents of langchain, which are graphs of LangGraph."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None:
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
                message = AIMessage(ANSWER)
                if tools and not isinstance(messages[-1], ToolMessage):
                    arguments = json.loads(next(following))
                    calls = [
                        {"name": tool.__name__, "args": arguments, "id": f"c{at}", "type": "tool_call"}
                        for at, tool in enumerate(tools)
                    ]
                    message = AIMessage("", tool_calls=calls)
                return ChatResult(generations=[ChatGeneration(message=message)])

            async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
                return self._generate(messages)

        self.model = Answering()
        self.system = system
        self.tools = [
            StructuredTool.from_function(coroutine=tool, name=tool.__name__, description=tool.__doc__ or "")
            for tool in tools
        ]

    def agent(self) -> Any:
        return self._agent(None)

    def _agent(self, checkpointer: Any) -> Any:
        from langchain.agents import create_agent

        return create_agent(self.model, self.tools, system_prompt=self.system, checkpointer=checkpointer)

    def run(self) -> Run:
        return self._run(self.agent(), {})

    def session(self) -> Run:
        from langgraph.checkpoint.memory import InMemorySaver

        return self._run(self._agent(InMemorySaver()), {"configurable": {"thread_id": "s"}})

    def _run(self, agent: Any, config: Any) -> Run:
        async def run(text: str) -> Any:
            return await agent.ainvoke({"messages": [{"role": "user", "content": text}]}, config)

        return run


class Haystack:
    """Agents of haystack."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None:
        os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read during the import
        from haystack import component
        from haystack.dataclasses import ChatMessage, ToolCall
        from haystack.tools import create_tool_from_function

        following = itertools.cycle(texts)
        ready = self.tools = [create_tool_from_function(tool) for tool in tools]

        @component
        class Answering:
            @component.output_types(replies=list[ChatMessage])
            def run(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
                if not ready or messages[-1].tool_call_results:
                    return {"replies": [ChatMessage.from_assistant(ANSWER)]}
                arguments = json.loads(next(following))
                calls = [ToolCall(tool.name, arguments, f"c{at}") for at, tool in enumerate(ready)]
                return {"replies": [ChatMessage.from_assistant(tool_calls=calls)]}

            @component.output_types(replies=list[ChatMessage])
            async def run_async(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
                return self.run(messages)

        self.model = Answering()
        self.system = system

    def agent(self) -> Any:
        from haystack.components.agents import Agent

        return Agent(chat_generator=self.model, tools=self.tools, system_prompt=self.system)

    def run(self) -> Run:
        from haystack.dataclasses import ChatMessage

        agent = self.agent()

        async def run(text: str) -> Any:
            return await agent.run_async(messages=[ChatMessage.from_user(text)])

        return run

    def session(self) -> Run:
        from haystack.dataclasses import ChatMessage

        agent, messages = self.agent(), []

        async def run(text: str) -> Any:
            nonlocal messages
            result = await agent.run_async(messages=[*messages, ChatMessage.from_user(text)])
            messages = [message for message in result["messages"] if not message.is_from("system")]

        return run


class Agno:
    """Agents of agno."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None:
        os.environ["AGNO_TELEMETRY"] = "false"
        from agno.models.base import Model
        from agno.models.response import ModelResponse
        from agno.tools.function import Function

        following = itertools.cycle(texts)

        class Answering(Model):
            async def ainvoke(self, messages: Any, **_: Any) -> ModelResponse:
                return self.invoke(messages)

            def invoke(self, messages: Any, **_: Any) -> ModelResponse:
                if not tools or messages[-1].role == "tool":
                    return ModelResponse(role="assistant", content=ANSWER)
                text = next(following)
                calls = [
                    {"id": f"c{at}", "type": "function", "function": {"name": tool.__name__, "arguments": text}}
                    for at, tool in enumerate(tools)
                ]
                return ModelResponse(role="assistant", tool_calls=calls)

            def invoke_stream(self, *_: Any, **__: Any) -> Any:
                raise NotImplementedError

            def ainvoke_stream(self, *_: Any, **__: Any) -> Any:
                raise NotImplementedError

            def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
                raise NotImplementedError

            def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
                raise NotImplementedError

        self.model = Answering(id="answering")
        self.system = system
        self.tools = [Function.from_callable(tool) for tool in tools]

    def agent(self) -> Any:
        from agno.agent import Agent

        return Agent(model=self.model, system_message=self.system, tools=self.tools, telemetry=False)

    def run(self) -> Run:
        run: Run = self.agent().arun
        return run

    def session(self) -> Run:
        from agno.agent import Agent
        from agno.db.in_memory import InMemoryDb

        agent = Agent(
            model=self.model,
            system_message=self.system,
            db=InMemoryDb(),
            session_id="s",
            add_history_to_context=True,
            num_history_runs=1_000_000,
            telemetry=False,
        )
        run: Run = agent.arun
        return run


class LlamaIndex:
    """Agents of llama-index."""

    def __init__(self, system: str, tools: Sequence[Callable[..., Any]], texts: Sequence[str]) -> None:
        from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
        from llama_index.core.llms.mock import MockFunctionCallingLLM
        from llama_index.core.tools import FunctionTool

        following = itertools.cycle(texts)

        def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
            if not tools or messages[-1].role == MessageRole.TOOL:
                return ChatMessage(role=MessageRole.ASSISTANT, content=ANSWER)
            arguments = json.loads(next(following))
            calls = [
                ToolCallBlock(tool_call_id=f"c{at}", tool_name=tool.__name__, tool_kwargs=arguments)
                for at, tool in enumerate(tools)
            ]
            return ChatMessage(role=MessageRole.ASSISTANT, blocks=[*calls])

        self.model = MockFunctionCallingLLM(response_generator=answer)
        self.system = system
        self.tools = [FunctionTool.from_defaults(async_fn=tool) for tool in tools]

    def agent(self) -> Any:
        from llama_index.core.agent.workflow import FunctionAgent

        return FunctionAgent(llm=self.model, tools=self.tools, system_prompt=self.system, streaming=False)

    def run(self) -> Run:
        agent = self.agent()

        async def run(text: str) -> Any:
            return await agent.run(text)

        return run

    def session(self) -> Run:
        from llama_index.core.memory import ChatMemoryBuffer

        agent = self.agent()
        memory = ChatMemoryBuffer.from_defaults(token_limit=10_000_000)

        async def run(text: str) -> Any:
            return await agent.run(text, memory=memory)

        return run


def _installed() -> Iterator[tuple[str, type[Peer]]]:
    peers: list[tuple[str, str, type[Peer]]] = [
        ("pydantic-ai", "pydantic_ai", PydanticAI),
        ("openai-agents", "agents", OpenAIAgents),
        ("langchain (LangGraph)", "langchain", LangChain),
        ("haystack", "haystack", Haystack),
        ("agno", "agno", Agno),
        ("llama-index", "llama_index", LlamaIndex),
    ]
    for name, module, peer in peers:
        if importlib.util.find_spec(module) is not None:
            yield name, peer


PEERS = dict(_installed())
"""Installed libraries, by name."""
