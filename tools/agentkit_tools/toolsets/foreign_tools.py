"""Tools of LangChain, LlamaIndex and pydantic-ai as `Tool`, recognised by their attributes; no library is imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, Protocol, TypeAlias, get_args, get_type_hints

from agentkit_prompts.context.wire.pydantic_ai_messages import PYDANTIC_AI_MEDIA
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_tools.calling.result_content import Content
from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError, ToolFailure
from agentkit_tools.schemas.foreign_shapes import library_of
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

_CALL_ID = "InjectedToolCallId"
_CONTROL = ("ApprovalRequired", "CallDeferred")
"""Exceptions of pydantic-ai that end its run, by their names."""
_TOP = ("title", "description")
"""Keys of a schema that repeat the name and the description of the tool."""


class _LangChainTool(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def tool_call_schema(self) -> Any: ...


class _LlamaIndexTool(Protocol):
    @property
    def metadata(self) -> Any: ...
    def __call__(self, input: Any) -> Any: ...


class _PydanticAITool(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def function_schema(self) -> Any: ...


ForeignTool: TypeAlias = _LangChainTool | _LlamaIndexTool | _PydanticAITool
"""A tool of LangChain, LlamaIndex or pydantic-ai."""


def foreign_tool(item: Any) -> Tool | None:
    """Return a tool of another library as a tool, or None for any other value.

    Raises:
        ToolDefinitionError: The tool depends on its library in a way that has no counterpart; the message lists all.
    """
    match library_of(item):
        case "pydantic-ai":
            return _pydantic_ai_tool(item)
        case "LlamaIndex":
            return _llama_index_tool(item)
        case "LangChain":
            return _langchain_tool(item)
    return None


def _refuse(library: str, tool: str, problems: Mapping[str, str]) -> None:
    if problems:
        listed = "; ".join([f"{name}: {problem}" for name, problem in problems.items()])
        raise ToolDefinitionError(f"tool {tool} of {library}: {listed}", tool=tool, names=problems)


def _without_top(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in _TOP}


def _content(**message: Any) -> Content:
    """Return the content of a message of another library. Its media can be data or public addresses only."""
    (read,) = read_messages([message], where="result", is_linked=False)
    return read.content


def _result(content: Content, value: Any, *, is_error: bool) -> ToolResult:
    """Return a result; `Tool.call` sets the id and the name of its call."""
    if is_error:
        return ToolResult("", "", content, "error", value, ToolFailure(str(content)))
    return ToolResult("", "", content, value=value)


# --- LangChain


def _langchain_tool(item: Any) -> Tool:
    _refuse("LangChain", item.name, _langchain_problems(item))

    async def call(agentkit_context: ToolContext[Any], **arguments: Any) -> Any:
        # With a tool call as input, the tool returns a message with its status and artifact.
        call = {"name": item.name, "args": arguments, "id": agentkit_context.call_id, "type": "tool_call"}
        answer = await item.ainvoke(call)
        if hasattr(answer, "tool_call_id") and hasattr(answer, "content"):
            artifact = getattr(answer, "artifact", None)
            content = _content(type="tool", content=answer.content, tool_call_id="result")
            value = answer.content if artifact is None else artifact
            return _result(content, value, is_error=getattr(answer, "status", "success") == "error")
        if hasattr(answer, "goto") and hasattr(answer, "update"):
            raise ToolFailure(f"{item.name} returned a Command of LangGraph, which has no counterpart: return content")
        return answer

    schema = _json_schema(_langchain_schema(item))
    final = bool(item.return_direct)
    return Tool.from_json_schema(item.name, item.description, _without_top(schema), call, final=final)


def _langchain_schema(item: Any) -> Any:
    """Return the schema for the model, without injected arguments: a class, or a JSON Schema."""
    schema = getattr(item, "tool_call_schema", None) or item.args_schema
    if item.args_schema is not None:
        return schema
    arguments = getattr(item, "args", {})
    if schema is None or arguments.keys() != _json_schema(schema).get("properties", {}).keys():
        # A tool with one text as input, whose function has no schema.
        return {"type": "object", "properties": arguments, "required": list(arguments)}
    return schema


def _json_schema(schema: Any) -> Mapping[str, Any]:
    if isinstance(schema, Mapping):
        return schema
    # The second name belongs to classes of pydantic 1.
    write = getattr(schema, "model_json_schema", None) or schema.schema
    json_schema: Mapping[str, Any] = write()
    return json_schema


def _langchain_problems(item: Any) -> dict[str, str]:
    problems: dict[str, str] = {}
    if getattr(item, "extras", None):
        problems["extras"] = "settings of a provider have no counterpart: remove them"
    properties = _json_schema(_langchain_schema(item)).get("properties", {})
    function = getattr(item, "func", None) or getattr(item, "coroutine", None)
    parameters: Mapping[str, Parameter] = {} if function is None else signature(function).parameters
    injected = {
        name: repr(parameters[name].annotation)
        for name in getattr(item, "_injected_args_keys", ())
        if name in parameters and parameters[name].default is Parameter.empty
    }
    for name, field in getattr(item.args_schema, "model_fields", {}).items():
        is_shown = name in properties or getattr(field, "alias", None) in properties
        if not is_shown and field.is_required():
            injected[name] = repr(field)
    for name, hint in injected.items():
        if _CALL_ID not in hint:
            problems[name] = "LangGraph injects this argument: use a function with a ToolContext, or a default"
    return problems


# --- LlamaIndex


def _llama_index_tool(item: Any) -> Tool:
    metadata = item.metadata
    name = metadata.name or type(item).__name__
    if getattr(item, "requires_context", False):
        argument = getattr(item, "ctx_param_name", None) or "ctx"
        _refuse("LlamaIndex", name, {argument: "a workflow injects this context: use a function with a ToolContext"})
    call: Callable[..., Any] = item
    if callable(getattr(item, "acall", None)):

        async def call_async(**arguments: Any) -> Any:
            return _llama_index_result(await item.acall(**arguments))

        call = call_async
    else:

        def call_sync(**arguments: Any) -> Any:
            return _llama_index_result(item(**arguments))

        call = call_sync
    schema = _without_top(metadata.get_parameters_dict())
    return Tool.from_json_schema(name, metadata.description, schema, call, final=bool(metadata.return_direct))


def _llama_index_result(answer: Any) -> Any:
    if not hasattr(answer, "raw_output"):
        return answer
    # A function that returns an output gets it wrapped in another output.
    if hasattr(answer.raw_output, "raw_output"):
        answer = answer.raw_output
    blocks = getattr(answer, "blocks", None)
    content = _content(role="user", blocks=blocks) if blocks else str(answer)
    return _result(content, answer.raw_output, is_error=bool(getattr(answer, "is_error", False)))


# --- pydantic-ai


class _RunContext:
    """The fields of a `RunContext` of pydantic-ai that a call has here."""

    def __init__(self, context: ToolContext[Any], tool: str) -> None:
        self.deps = context.deps
        self.tool_name = tool
        self.tool_call_id = context.call_id
        self.tool_call_approved = context.approved
        self.retry = context.attempt - 1
        self.run_step = context.step
        self.run_id = context.run_id

    def __getattr__(self, name: str) -> Any:
        names = ", ".join(vars(self))
        raise AttributeError(f"RunContext.{name} has no counterpart; a tool can read {names}", name=name, obj=self)


def _pydantic_ai_tool(item: Any) -> Tool:
    schema = item.function_schema
    problems: dict[str, str] = {}
    for name in ("prepare", "args_validator"):
        if getattr(item, name, None) is not None:
            problems[name] = "a function of pydantic-ai has no counterpart: use a DynamicToolset, or check in the tool"
    for name in ("defer_loading", "include_return_schema"):
        if getattr(item, name, None):
            problems[name] = "has no counterpart: use ToolSearch, or the description"
    _refuse("pydantic-ai", item.name, problems)

    async def call(agentkit_context: ToolContext[Any], **arguments: Any) -> Any:
        values = schema.validator.validate_json(json.dumps(arguments))
        try:
            value = await schema.call(values, _RunContext(agentkit_context, item.name))
        except Exception as error:
            if type(error).__name__ in _CONTROL:
                reason = f"{type(error).__name__} has no counterpart in a call: use approval= of the tool"
                raise ToolFailure(f"{item.name}: {reason}") from error
            raise
        return _pydantic_ai_result(value)

    if item.takes_ctx:
        call.__annotations__["agentkit_context"] = ToolContext[_deps_of(item.function)]  # type: ignore[misc]
    policy: PolicyOptions = {"sequential": bool(item.sequential)}
    if getattr(item, "requires_approval", False):
        policy["approval"] = "always"
    if getattr(item, "timeout", None) is not None:
        policy["timeout"] = float(item.timeout)
    if item.max_retries is not None:
        policy["max_consecutive_failures"] = item.max_retries + 1
    description = item.description or ""
    tool = Tool.from_json_schema(item.name, description, _without_top(schema.json_schema), call, **policy)
    return tool.strict() if item.strict else tool


def _deps_of(function: Callable[..., Any]) -> Any:
    """Return the type of the deps in the annotation of the first parameter; `Any` if it is unknown."""
    try:
        hints = get_type_hints(function)
    except Exception:
        # Names that only type checkers import.
        return Any
    arguments = get_args(next(iter(hints.values()), None))
    if len(arguments) != 1 or arguments[0] is type(None):
        return Any
    return arguments[0]


def _pydantic_ai_result(value: Any) -> Any:
    if getattr(value, "kind", None) == "tool-return" and hasattr(value, "return_value"):
        items = [value.return_value]
        if value.content is not None:
            further = value.content
            items += [further] if isinstance(further, str) else further
        content = _of_values(items if len(items) > 1 else items[0])
        artifact = value.return_value if value.metadata is None else value.metadata
        return _result(content, artifact, is_error=False)
    if _has_media(value):
        return _result(_of_values(value), value, is_error=False)
    return value


def _has_media(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_media, value))
    return getattr(value, "kind", None) in PYDANTIC_AI_MEDIA


def _of_values(value: Any) -> Content:
    part = {"part_kind": "tool-return", "tool_name": "tool", "tool_call_id": "result", "content": value}
    return _content(kind="request", parts=[part])
