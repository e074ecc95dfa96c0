"""The tools in an answer of a server: one that breaks the protocol is reported, and the others are read."""

from __future__ import annotations

from typing import Any

__all__ = ["MAX_LISTED", "PROBLEM", "readable"]

MAX_LISTED = 20_000
"""Tools, resources or prompts that a server may list."""
PROBLEM = "agentkit/problem"
"""Under this name the `_meta` of a tool says why it is left out, and that of a list how much too long it was."""
_VERSION = "2025-11-25"
_CHUNK = 200
_KINDS = ("tools", "resources", "prompts")
_MAX_NAME = 100


def readable(result: Any) -> Any:
    """Return the result of a request. If it lists tools, invalid ones are replaced by ones that say why."""
    # Count before the SDK reads them: it would read all.
    for kind in _KINDS:
        listed = result.get(kind) if isinstance(result, dict) else None
        if isinstance(listed, list) and len(listed) > MAX_LISTED:
            return {kind: [], "_meta": {PROBLEM: len(listed)}}
    tools = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(tools, list):
        return result
    made: list[Any] = []
    for start in range(0, len(tools), _CHUNK):
        chunk = tools[start : start + _CHUNK]
        made += chunk if not _fault(chunk) else [_or_problem(one) for one in chunk]
    return {**result, "tools": made}


def _or_problem(tool: Any) -> Any:
    fault = _fault([tool])
    if not fault:
        return tool
    name = tool.get("name") if isinstance(tool, dict) else None
    shown = name[:_MAX_NAME] if isinstance(name, str) else ""
    return {"name": shown, "inputSchema": {"type": "object"}, "_meta": {PROBLEM: fault}}


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
