"""Toolsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool

__all__ = ["by_name"]


def by_name(tools: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Return tools by the name a model calls them by; plain functions become tools.

    Raises:
        ToolDefinitionError: Two tools have the same name; all such names are listed.
    """
    found: dict[str, Tool] = {}
    clashes: dict[str, None] = {}
    for item in tools:
        one = item if isinstance(item, Tool) else Tool.from_function(item)
        if found.setdefault(one.name, one) is not one:
            clashes[one.name] = None
    if clashes:
        raise ToolDefinitionError(
            f"more than one tool is named {', '.join(clashes)}: rename all but one with `tool.but(name=...)`"
        )
    return found
