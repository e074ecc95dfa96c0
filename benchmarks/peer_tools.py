"""Tools of other libraries: creation from a function, and a call with JSON arguments.

llama-index creates no tool from a function whose annotations are texts with `Literal`.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Builder: TypeAlias = Callable[[Any], Any]
"""A function that creates a tool from a function."""
Call: TypeAlias = Callable[[str, str], Awaitable[Any]]
"""A function that calls a tool with the id of a call and JSON arguments."""


def _pydantic_ai() -> Builder:
    from pydantic_ai import Tool

    return lambda function: Tool(function, takes_ctx=False)


def _openai_agents() -> Builder:
    from agents import function_tool

    return lambda function: function_tool(function, strict_mode=False)


def _langchain() -> Builder:
    from langchain_core.tools import StructuredTool

    return lambda function: StructuredTool.from_function(coroutine=function, parse_docstring=True).args


def _haystack() -> Builder:
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read during the import
    from haystack.tools import create_tool_from_function

    return create_tool_from_function


def _agno() -> Builder:
    from agno.tools.function import Function

    def build(function: Any) -> Any:
        tool = Function.from_callable(function)
        tool.process_entrypoint()
        return tool

    return build


def _openai_agents_call(function: Any) -> Call:
    from agents.tool_context import ToolContext

    tool: Any = _openai_agents()(function)

    def call(call_id: str, text: str) -> Awaitable[Any]:
        context: Any = ToolContext(context=None, tool_name="search", tool_call_id=call_id, tool_arguments=text)
        result: Awaitable[Any] = tool.on_invoke_tool(context, text)
        return result

    return call


def _langchain_call(function: Any) -> Call:
    from langchain_core.tools import StructuredTool

    tool: Any = StructuredTool.from_function(coroutine=function)
    return lambda call_id, text: tool.ainvoke(
        {"type": "tool_call", "id": call_id, "name": "search", "args": json.loads(text)}
    )


def _agno_call(function: Any) -> Call:
    from agno.tools.function import FunctionCall

    tool = _agno()(function)

    def call(call_id: str, text: str) -> Awaitable[Any]:
        return FunctionCall(function=tool, arguments=json.loads(text), call_id=call_id).aexecute()

    return call


def _llama_index_call(function: Any) -> Call:
    from llama_index.core.tools import FunctionTool

    tool = FunctionTool.from_defaults(async_fn=function)
    return lambda call_id, text: tool.acall(**json.loads(text))


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


BUILDERS: dict[str, Callable[[], Builder]] = {
    name: builder
    for name, module, builder in (
        ("pydantic-ai", "pydantic_ai", _pydantic_ai),
        ("openai-agents", "agents", _openai_agents),
        ("langchain", "langchain_core", _langchain),
        ("haystack", "haystack", _haystack),
        ("agno", "agno", _agno),
    )
    if _is_installed(module)
}
"""Functions that import a library and return its builder, by name; each builder also creates the JSON Schema."""
CALLS: dict[str, Callable[[Any], Call]] = {
    name: call
    for name, module, call in (
        ("openai-agents", "agents", _openai_agents_call),
        ("langchain", "langchain_core", _langchain_call),
        ("agno", "agno", _agno_call),
        ("llama-index", "llama_index", _llama_index_call),
    )
    if _is_installed(module)
}
"""Functions that import a library and return the call of a tool, by name."""
