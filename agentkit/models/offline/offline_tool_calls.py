"""Parser of tool calls in the text of a user: names of tools with arguments as `name=value` or as a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_prompts.names import nearest

_ORDER = re.compile(
    r"(?:\b(?:call|invoke|run|try|use|using|with)\b(?:\s+(?:the|a|tool|function))*\s*[\"'`]?)$", re.IGNORECASE
)
_QUESTION = re.compile(r"\b(?:how|what|why|when|should)\b[^.!?]*$", re.IGNORECASE)
_CALLED = re.compile(r"(?<!\s)[\"'`]?+\s*+(?:\(|\{|tool\b|function\b)", re.IGNORECASE)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*+)\"|'([^']*+)'|`([^`]*+)`|“([^”]*+)”")
_BARE = re.compile(r"[^\s,;]+")
_NEXT_OF_WORD = re.compile(r"[\w:/-]")
_MAX_BEFORE = 300
"""Maximum characters before the name of a tool that are searched for an order or a question."""
_DECODER = json.JSONDecoder()
_YES_NO = {"true": True, "yes": True, "false": False, "no": False}
_OTHER = re.compile(r"(?i:\b(?:use|call)\s++(?:the\s++tool\s++)?)[`'\"]?([^\W\d][\w.-]*)[`'\"]?\s++with\s++\w++\s*+=")
"""Order to use a tool with arguments; the tool may be unknown."""


def requested_calls(text: str, tools: Sequence[ToolSpec]) -> tuple[tuple[ToolCall, ...], str]:
    """Return the tool calls that `text` requests, or, without calls, a message about an incomplete request.

    A call is requested if the text contains the name of the tool as a separate word and all required arguments, and
    either orders the call (`use add`, `add(...)`, `the tool add`) or contains arguments.
    """
    mentions = _mentions(text, tools)
    if not mentions:
        return (), _unknown_tool(text, tools)
    calls: list[ToolCall] = []
    problem = ""
    for mention in mentions:
        tool, arguments = mention.tool, _arguments(mention.after, mention.tool.parameters)
        missing = [name for name in _names(tool.parameters.get("required")) if name not in arguments]
        if not missing and (mention.is_ordered or arguments):
            calls.append(ToolCall(f"offline_{len(calls) + 1}", tool.name, json.dumps(arguments, ensure_ascii=False)))
        elif mention.is_ordered and not problem:
            example = ", ".join(f"{name}=..." for name in missing)
            problem = f"The tool {tool.name} also needs {', '.join(missing)}: use {tool.name} with {example}"
    if calls:
        return tuple(calls), ""
    return (), problem


def _unknown_tool(text: str, tools: Sequence[ToolSpec]) -> str:
    """Return a message if the text orders a call of an unknown tool; empty otherwise."""
    order = _OTHER.search(text)
    if order is None or not tools:
        return ""
    return f"Unknown tool {order[1]!r}{nearest(order[1], [tool.name for tool in tools])}"


class _Mention(NamedTuple):
    """A name of a tool in the text."""

    tool: ToolSpec
    is_ordered: bool
    after: str
    """The text between this name and the next one, which may contain the arguments."""


def _mentions(text: str, tools: Sequence[ToolSpec]) -> list[_Mention]:
    """Return the names of tools in a text, in order."""
    matches: list[tuple[int, int, ToolSpec]] = []
    for tool in tools:
        name = re.compile(rf"(?<![\w.-]){re.escape(tool.name)}(?![\w-])")
        matches += [(match.start(), match.end(), tool) for match in name.finditer(text)]
    matches.sort(key=lambda match: match[:2])
    stops = [start for start, _, _ in matches[1:]] + [len(text)]
    mentions = []
    for (start, end, tool), stop in zip(matches, stops, strict=False):
        before = text[max(0, start - _MAX_BEFORE) : start]
        is_ordered = bool(_ORDER.search(before) or _CALLED.match(text, end)) and not _QUESTION.search(before)
        mentions.append(_Mention(tool, is_ordered, text[end:stop]))
    return mentions


def _arguments(text: str, schema: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments in `text`: a JSON object, or pairs whose names are properties of the schema."""
    brace = text.find("{")
    if brace >= 0:
        decoded = _json_at(text, brace)
        if decoded is not None and isinstance(decoded[0], dict):
            return decoded[0]
    properties = schema.get("properties")
    arguments: dict[str, object] = {}
    if not isinstance(properties, Mapping):
        return arguments
    for name, property_ in properties.items():
        match = re.search(rf"(?<![\w.-])[\"'`]?{re.escape(name)}[\"'`]?\s*+(?:=|:|\bis\b)\s*+", text)
        if match and (value := _value(text, match.end(), property_)) is not None:
            arguments[name] = value
    return arguments


def _json_at(text: str, start: int) -> tuple[Any, int] | None:
    """Return the JSON value at `start` and its end; None if the text is not JSON there."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _value(text: str, start: int, property_: object) -> object:
    """Return the value at `start`, in the type of the schema; a text that does not match the type stays text."""
    kind = None
    if isinstance(property_, Mapping):
        kind = property_.get("type")
    quoted = _QUOTED.match(text, start)
    if quoted and kind in ("string", None):
        return next(group for group in quoted.groups() if group is not None)
    if kind != "string" and (decoded := _json_at(text, start)) is not None:
        value, end = decoded
        # `2nd` and `3-4` start with a number and are words.
        if not _NEXT_OF_WORD.match(text, end):
            return value
    bare = _BARE.match(text, start)
    if bare is None:
        return None
    word = bare[0].rstrip(".!?)}]\"'`")
    if kind == "boolean":
        return _YES_NO.get(word.lower(), word)
    return word


def _names(required: object) -> list[str]:
    if not isinstance(required, Sequence):
        return []
    return [name for name in required if isinstance(name, str)]
