"""Recognition of the tools of other libraries by their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

ToolLibrary = Literal["LangChain", "LlamaIndex", "pydantic-ai", ""]

_PACKAGES = ("agents", "langchain", "langchain_core", "langgraph", "llama_index", "pydantic_ai", "workflows")
_INJECTED = ("Context", "RunContext", "RunContextWrapper", "RunnableConfig", "ToolContext", "ToolRuntime")
"""Classes of the packages above that annotate an injected argument, next to names such as `InjectedState`."""


def library_of(item: Any) -> ToolLibrary:
    """Return the name of the library of a tool; empty for any other value."""
    if isinstance(item, type):
        return ""
    if hasattr(item, "function_schema") and hasattr(item, "takes_ctx"):
        return "pydantic-ai"
    metadata = getattr(item, "metadata", None)
    if callable(getattr(metadata, "get_parameters_dict", None)) and hasattr(metadata, "description"):
        return "LlamaIndex"
    if callable(getattr(item, "ainvoke", None)) and hasattr(item, "args_schema") and hasattr(item, "return_direct"):
        return "LangChain"
    return ""


def tools_advice(item: Any) -> str:
    """Return the end of an error about a value that is no list of tools: how to pass its tools; empty if unknown."""
    if isinstance(item, type):
        return ""
    if library_of(item):
        return "; write tools=[...]"
    if callable(getattr(item, "to_tool_list", None)):
        return "; pass the tools of the object: tools=[*spec.to_tool_list()]"
    for name in ("tools", "tools_by_name"):
        if isinstance(getattr(item, name, None), Mapping):
            return f"; pass the tools of the object: tools=[*toolset.{name}.values()]"
    if not callable(getattr(item, "get_tools", None)):
        return ""
    if hasattr(item, "call_tool"):
        return "; a toolset of pydantic-ai that creates its tools has no counterpart: use a DynamicToolset"
    return "; pass the tools of the object: tools=[*toolkit.get_tools()]"


def injected_class(annotation: Any) -> str:
    """Return the name of the class by which another library injects an argument; empty for other annotations."""
    markers = [annotation]
    if get_origin(annotation) is Annotated:
        markers = [*get_args(annotation)]
    for marker in markers:
        kind: type = type(marker)
        if isinstance(marker, type):
            kind = marker
        elif isinstance(get_origin(marker), type):
            kind = get_origin(marker)
        is_injected = kind.__name__ in _INJECTED or kind.__name__.startswith("Injected")
        if is_injected and kind.__module__.partition(".")[0] in _PACKAGES:
            return kind.__name__
    return ""
