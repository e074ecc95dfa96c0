"""Finds the tool calls that a user's text asks for by name, with arguments as `name=value` or as a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.names import nearest

__all__ = ["requested_calls"]

_ORDER = re.compile(
    r"(?:\b(?:call|invoke|run|try|use|using|with)\b(?:\s+(?:the|a|tool|function))*\s*[\"'`]?)$", re.IGNORECASE
)
_QUESTION = re.compile(r"\b(?:how|what|why|when|should)\b[^.!?]*$", re.IGNORECASE)
_CALLED = re.compile(r"[\"'`]?\s*(?:\(|\{|tool\b|function\b)", re.IGNORECASE)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|`([^`]*)`|“([^”]*)”")
_BARE = re.compile(r"[^\s,;]+")
_MAX_BEFORE = 300
"""Characters in front of the name of a tool that are looked through for an order or a question."""
_DECODER = json.JSONDecoder()
_YES_NO = {"true": True, "yes": True, "false": False, "no": False}
_OTHER = re.compile(r"(?i:\b(?:use|call)\s+(?:the\s+tool\s+)?)[`'\"]?([^\W\d][\w.-]*)[`'\"]?\s+with\s+\w+\s*=")
"""A tool that is ordered with arguments, whether there is one of that name or not."""


def requested_calls(text: str, tools: Sequence[ToolSpec]) -> tuple[tuple[ToolCall, ...], str]:
    """Return the calls that `text` asks for, and, without any, what is missing from one it asks for.

    A tool is asked for when its name stands alone in the text, is ordered (`use add`, `add(...)`, `the tool add`) or
    given arguments, and all its required arguments are there.
    """
    found: list[tuple[int, int, ToolSpec]] = []
    for tool in tools:
        name = re.compile(rf"(?<![\w.-]){re.escape(tool.name)}(?![\w-])")
        found += [(match.start(), match.end(), tool) for match in name.finditer(text)]
    found.sort(key=lambda item: item[:2])
    calls: list[ToolCall] = []
    missing = ""
    for position, (start, end, tool) in enumerate(found):
        stop = found[position + 1][0] if position + 1 < len(found) else len(text)
        arguments = _arguments(text[end:stop], tool.parameters)
        before = text[max(0, start - _MAX_BEFORE) : start]
        ordered = bool(_ORDER.search(before) or _CALLED.match(text, end)) and not _QUESTION.search(before)
        lacking = [name for name in _names(tool.parameters.get("required")) if name not in arguments]
        if not lacking and (ordered or arguments):
            calls.append(ToolCall(f"offline_{len(calls) + 1}", tool.name, json.dumps(arguments, ensure_ascii=False)))
        elif ordered:
            example = ", ".join(f"{name}=..." for name in lacking)
            missing = missing or f"The tool {tool.name} also needs {', '.join(lacking)}: use {tool.name} with {example}"
    if not found and tools and (asked := _OTHER.search(text)) is not None:
        missing = f"There is no tool {asked[1]!r}{nearest(asked[1], [tool.name for tool in tools])}"
    return tuple(calls), missing if not calls else ""


def _arguments(text: str, schema: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments that `text` gives: a JSON object, or pairs whose names the schema knows."""
    brace = text.find("{")
    if brace >= 0:
        try:
            value, _ = _DECODER.raw_decode(text, brace)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
    properties = schema.get("properties")
    found: dict[str, object] = {}
    for name, property_ in properties.items() if isinstance(properties, Mapping) else ():
        match = re.search(rf"(?<![\w.-])[\"'`]?{re.escape(name)}[\"'`]?\s*(?:=|:|\bis\b)\s*", text)
        if match and (raw := _value(text, match.end(), property_)) is not None:
            found[name] = raw
    return found


def _value(text: str, start: int, property_: object) -> object:
    """Return the value at `start`, as the type that the schema names; text that is no such value stays text."""
    kind = property_.get("type") if isinstance(property_, Mapping) else None
    quoted = _QUOTED.match(text, start)
    if quoted and kind in ("string", None):
        return next(group for group in quoted.groups() if group is not None)
    if kind != "string":
        try:
            value, end = _DECODER.raw_decode(text, start)
            if end == len(text) or not (text[end].isalnum() or text[end] in "_-:/"):
                return value
        except (ValueError, RecursionError):
            pass
    bare = _BARE.match(text, start)
    if bare is None:
        return None
    word = bare[0].rstrip(".!?)}]\"'`")
    return _YES_NO.get(word.lower(), word) if kind == "boolean" else word


def _names(required: object) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, Sequence) else []
