"""Validation of the tools that a server lists: an invalid tool is reported, and the valid tools are used."""

from __future__ import annotations

from typing import Any

from agentkit_prompts.limits import MAX_ENTRIES, MAX_NAME_CHARS, MAX_REASON_CHARS

PROBLEM = "agentkit/problem"
"""Key in the `_meta` of an invalid tool, for its problem, and in the `_meta` of a list that is too long, for its size.
"""
DROPPED = "agentkit/dropped"
"""Key in the `_meta` of a list: problem by name of each tool that the SDK drops in newer versions of the protocol."""
OUTPUT = "agentkit/output"
"""Key in the `_meta` of a tool for its output schema, if the protocol does not allow this schema."""
_VERSION = "2025-11-25"
_CHUNK = 200
_KINDS = ("tools", "resources", "prompts")


def readable(result: Any) -> Any:
    """Return the result of a request, in which tools with a problem replace invalid tools."""
    if not isinstance(result, dict):
        return result
    # Count the entries before the SDK validates them, because it would validate all of them.
    for kind in _KINDS:
        entries = result.get(kind)
        if isinstance(entries, list) and len(entries) > MAX_ENTRIES:
            return {kind: [], "_meta": {PROBLEM: len(entries)}}
    tools = result.get("tools")
    if not isinstance(tools, list):
        return result
    readable_tools: list[Any] = []
    # Validating a chunk of valid tools at once is much faster than validating each tool.
    for start in range(0, len(tools), _CHUNK):
        chunk = tools[start : start + _CHUNK]
        if _problem(chunk):
            chunk = [_or_problem(tool) for tool in chunk]
        readable_tools += chunk
    result = {**result, "tools": readable_tools}
    if dropped := _dropped(readable_tools):
        meta = result.get("_meta")
        result["_meta"] = {**(meta if isinstance(meta, dict) else {}), DROPPED: dropped}
    return result


def _dropped(tools: list[Any]) -> dict[str, str]:
    """Return the problems of the tools whose arguments cannot become headers of a request over HTTP, by name.

    The version of the protocol is unknown here: older versions have no such headers, and the SDK keeps these tools.
    """
    from mcp.shared.inbound import find_invalid_x_mcp_header

    problems = {}
    for tool in tools:
        problem = find_invalid_x_mcp_header(tool.get("inputSchema"))
        if problem is not None:
            problems[tool["name"]] = problem[:MAX_REASON_CHARS]
    return problems


def _or_problem(tool: Any) -> Any:
    problem = _problem([tool])
    if not problem:
        return tool
    if isinstance(tool, dict) and "outputSchema" in tool:
        # The output schema is no part of a call: the tool is useful without it.
        meta = tool.get("_meta")
        meta = {**(meta if isinstance(meta, dict) else {}), OUTPUT: tool["outputSchema"]}
        rest = {**{key: value for key, value in tool.items() if key != "outputSchema"}, "_meta": meta}
        if not _problem([rest]):
            return rest
    name = ""
    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
        name = tool["name"][:MAX_NAME_CHARS]
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {PROBLEM: problem}}


def _problem(tools: list[Any]) -> str:
    """Return the first violation of the protocol by some tools; "" for valid tools."""
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    from agentkit_prompts.invalid_values import JSON_WORDS, invalid_values, json_value, place_of

    try:
        validate_server_result("tools/list", _VERSION, {"tools": tools})
    except ValidationError as error:
        first = invalid_values(error, {"tools": tools}, words=JSON_WORDS)[0]
        return f"{place_of(first.path[2:]) or 'it'}: {first.message(json_value)}"
    except (ValueError, RecursionError) as error:
        return type(error).__name__
    return ""
