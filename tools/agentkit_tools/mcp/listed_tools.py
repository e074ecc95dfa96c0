"""The tools in an answer of a server: one that breaks the protocol is reported, and the others are read."""

from __future__ import annotations

from typing import Any

from agentkit_prompts.limits import MAX_ENTRIES, MAX_NAME_CHARS

__all__ = ["PROBLEM", "readable"]

PROBLEM = "agentkit/problem"
"""Under this name the `_meta` of a tool says why it is left out, and that of a list how much too long it was."""
_VERSION = "2025-11-25"
_CHUNK = 200
_KINDS = ("tools", "resources", "prompts")


def readable(result: Any) -> Any:
    """Return the result of a request. If it lists tools, invalid ones are replaced by ones that say why."""
    if not isinstance(result, dict):
        return result
    # Count before the SDK reads them: it would read all.
    for kind in _KINDS:
        entries = result.get(kind)
        if isinstance(entries, list) and len(entries) > MAX_ENTRIES:
            return {kind: [], "_meta": {PROBLEM: len(entries)}}
    tools = result.get("tools")
    if not isinstance(tools, list):
        return result
    readable_tools: list[Any] = []
    # Chunks: valid tools are checked many at a time, which is much faster than one by one.
    for start in range(0, len(tools), _CHUNK):
        chunk = tools[start : start + _CHUNK]
        if _fault(chunk):
            chunk = [_or_problem(tool) for tool in chunk]
        readable_tools += chunk
    return {**result, "tools": readable_tools}


def _or_problem(tool: Any) -> Any:
    fault = _fault([tool])
    if not fault:
        return tool
    name = ""
    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
        name = tool["name"][:MAX_NAME_CHARS]
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {PROBLEM: fault}}


def _fault(tools: list[Any]) -> str:
    """Return what the protocol has against some tools; nothing is ""."""
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    try:
        validate_server_result("tools/list", _VERSION, {"tools": tools})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"][2:])) or "it"
        return f"{place}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        return type(error).__name__
    return ""
