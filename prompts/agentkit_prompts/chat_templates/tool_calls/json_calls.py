"""Readers of JSON tool calls: objects and lists, or a name before an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Calls,
    NoCallError,
    Reader,
    ReplyText,
    Value,
    end_of,
    expect,
    match_at,
    new_call,
    skip,
    some_calls,
)
from agentkit_prompts.context.messages import ToolCall

_JSON = json.JSONDecoder()
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+")
_SKIPPED = re.compile(r"[\s;,]*+")
"""Separators between two calls."""
_FENCE = re.compile(r"\s*+```(?:json)?\s*+")
_FENCE_END = re.compile(r"\s*+```")
_CALL_ID = re.compile(r"\[CALL_ID\]([\w-]++)\s*+")
_KIMI_ID = re.compile(r"\s*+((?:functions\.)?([\w.:/-]*[\w./-]):\d++)\s*+")
_BEGINNING = re.compile(r"\{\s*+[\"}]|\[\s*+[\[{]")
"""Start of an object, or of a list of objects."""
_WINDOW = 1_024
_MAX_TOKEN = 32
"""Maximum characters of a JSON token, except strings and numbers, that the end of a window can cut."""
_SOLAR_ID = re.compile(r"\s*+(?P<id>[\w-]*+)\s*+<\|tool_call:name\|>\s*+(?P<name>[\w.:/-]++)\s*+<\|tool_call:args\|>")


def json_calls(reply: ReplyText, start: int) -> Calls:
    """Read objects and lists of calls that follow each other: `{"name": ..., "arguments": {...}}`."""
    calls: list[ToolCall] = []
    end = start
    for value, stop in _values(reply.text, start):
        listed = _calls_in(value)
        if not listed:
            break
        calls += listed
        end = stop
    return some_calls(calls, end)


def only_json(reply: ReplyText, start: int) -> Calls:
    """Read calls of available tools, if the reply ends after them."""
    calls: list[ToolCall] = []
    end = start
    for value, stop in _values(reply.text, start):
        calls += _calls_in(value)
        end = stop
    is_all = skip(reply.text, end) == len(reply.text)
    if not is_all or not all(call.name in reply.schemas for call in calls):
        raise NoCallError
    return some_calls(calls, end)


def named_call(after_name: str) -> Reader:
    """Return a reader of a name, `after_name`, and the arguments."""

    def read(reply: ReplyText, start: int) -> Calls:
        name = match_at(_NAME, reply.text, start)
        start, call_id = name.end(), ""
        if id_match := _CALL_ID.match(reply.text, start):
            start, call_id = id_match.end(), id_match[1]
        if not reply.text.startswith(after_name, start):
            raise NoCallError
        return _call_with_arguments(name[1], reply.text, start + len(after_name), call_id)

    return read


def deepseek_call(reply: ReplyText, start: int) -> Calls:
    """Read a call of V3 and R1 (a type, a name, arguments in a code fence), or of V3.1 (name, arguments)."""
    text, at = reply.text, start
    name = match_at(_NAME, text, at)
    at = expect("<｜tool▁sep｜>", text, name.end())
    # V3 and R1 write the type of the call first, then the name and a fence.
    if after_type := _NAME.match(text, at):
        name, at = after_type, after_type.end()
    fence = _FENCE.match(text, at)
    if fence is None:
        return _call_with_arguments(name[1], text, at)
    call, end = _call_with_arguments(name[1], text, fence.end())
    return Calls(call, end_of(_FENCE_END, text, end))


def kimi_call(reply: ReplyText, start: int) -> Calls:
    """Read a call of Kimi K2: `functions.NAME:NUMBER`, which is also the id, then the arguments."""
    text = reply.text
    match = match_at(_KIMI_ID, text, start)
    call_id, name = match.groups()
    return _call_with_arguments(name, text, expect("<|tool_call_argument_begin|>", text, match.end()), call_id)


def solar_json_call(reply: ReplyText, start: int) -> Calls:
    """Read a call of Solar Open: the id, the name, and the arguments as JSON."""
    text = reply.text
    match = match_at(_SOLAR_ID, text, start)
    return _call_with_arguments(match["name"], text, match.end(), match["id"])


def keyed_calls(reply: ReplyText, start: int) -> Calls:
    """Read a list of calls in which the name of the tool is the key of its arguments: `[{NAME: {...}}, ...]`."""
    value, end = decoded(reply.text, skip(reply.text, start))
    calls: list[ToolCall] = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, Mapping) or len(item) != 1:
            raise NoCallError
        ((name, arguments),) = item.items()
        calls.append(new_call(name, arguments))
    return some_calls(calls, end)


def _call_with_arguments(name: str, text: str, start: int, call_id: str = "") -> Calls:
    """Return a call with the unchanged text of the arguments at `start`."""
    start = skip(text, start)
    match_at(_BEGINNING, text, start)
    end = decoded(text, start).end
    return Calls([new_call(name, text[start:end], call_id)], end)


def decoded(text: str, start: int) -> Value[object]:
    """Return the JSON object or list that starts at `start`.

    Raises:
        NoCallError: No object or list starts there, or it is incomplete.
    """
    if text[start : start + 1] not in ("{", "["):
        raise NoCallError
    # A reply can open a call at every place without closing it, so a short part of the text is copied and read first.
    size = _WINDOW
    while True:
        piece = text[start : start + size]
        try:
            value, end = _JSON.raw_decode(piece)
        except json.JSONDecodeError as error:
            if start + size >= len(text) or not _is_cut(error, len(piece)):
                raise NoCallError from None
            size *= 4
        except (ValueError, RecursionError):
            raise NoCallError from None
        else:
            return Value(value, start + end)


def json_goes_on(text: str, start: int, closing: str = "") -> bool:
    """True if the end of a text cuts a sequence of objects and lists, or the text that closes it."""
    while True:
        start = end_of(_SKIPPED, text, start)
        if text[start : start + 1] not in ("{", "["):
            return bool(closing) and len(text) - start < len(closing) and closing.startswith(text[start:])
        try:
            start = _JSON.raw_decode(text, start)[1]
        except json.JSONDecodeError as error:
            return _is_cut(error, len(text))
        except (ValueError, RecursionError):
            return False


def leading_json_end(text: str) -> int:
    """Return the end of the JSON object or list at the start of a text; 0 if the text starts with other text.

    A value that ends inside a string ends with the text.
    """
    start = skip(text, 0)
    if _BEGINNING.match(text, start) is None:
        return 0
    try:
        return _JSON.raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        return len(text) if error.msg.startswith("Unterminated string") else 0
    except (ValueError, RecursionError):
        return 0


def _is_cut(error: json.JSONDecodeError, size: int) -> bool:
    """True if a text of this size is invalid JSON because it ends too early."""
    return error.msg.startswith("Unterminated string") or error.pos >= size - _MAX_TOKEN


def _values(text: str, start: int) -> Iterator[Value[object]]:
    """Yield consecutive JSON objects and lists."""
    while True:
        start = end_of(_SKIPPED, text, start)
        if _BEGINNING.match(text, start) is None:
            return
        try:
            value = decoded(text, start)
        except NoCallError:
            return
        yield value
        start = value.end


def _calls_in(value: object) -> list[ToolCall]:
    """Return the calls in a JSON value: none if it contains any other value."""
    items = value if isinstance(value, list) else [value]
    try:
        return [_call(item) for item in items]
    except NoCallError:
        return []


def _call(value: object) -> ToolCall:
    if not isinstance(value, Mapping):
        raise NoCallError
    function = value.get("function")
    if isinstance(function, Mapping):
        value = function
    # Command R writes `tool_name`.
    name = value.get("name", value.get("tool_name"))
    return new_call(name, value.get("arguments", value.get("parameters", {})))
