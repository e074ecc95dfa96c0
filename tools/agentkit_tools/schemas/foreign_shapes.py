"""Recognition of the tools of other libraries by their attributes."""

from __future__ import annotations

from typing import Any, Literal

__all__ = ["ToolLibrary", "library_of"]

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
