"""Recognition of the tools of other libraries by their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["ToolLibrary", "library_of", "tools_advice"]

ToolLibrary = Literal["LangChain", "LlamaIndex", "pydantic-ai", ""]


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
