"""Readers of Python tool calls: `[get_weather(city="Oslo"), ...]` of Llama 3.2 and 4, and code of Gemma 3 and MiniCPM.

Only names, brackets and literals are read; no code is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Calls,
    NoCallError,
    ReplyText,
    Value,
    end_of,
    expect,
    items_until,
    match_at,
    new_call,
    skip,
    some_calls,
)
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.limits import MAX_DEPTH

_FENCE = re.compile(r"\s*+```(?:python)?+\s*+")
_FENCE_END = re.compile(r"\s*+```")
_SEPARATOR = re.compile(r"[\s;]*+")
_NAME = re.compile(r"[^\W\d]\w*+(?:[.:/-]\w++)*+")
_ASSIGNED = re.compile(r"[^\W\d]\w*+\s*+=(?!=)\s*+")
_KEYWORD = re.compile(r"([^\W\d]\w*+)\s*+=(?!=)\s*+")
_PRINT = re.compile(r"print\s*+\(\s*+")
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*+(?:\.[\d_]*+)?|\.\d[\d_]*+)(?:[eE][+-]?\d++)?(?![\w.])")
_STRING = re.compile(
    r'"""([^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+)"""'
    r"|'''([^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+)'''"
    r'|"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
    r"|'([^'\\]*+(?:\\.[^'\\]*+)*+)'",
    re.S,
)
_ESCAPE = re.compile(r"\\(\n|[\\'\"abfnrtv]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")
_ESCAPED = {"\n": "", "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORD = re.compile(r"\w++")
WORDS: Mapping[str, object] = {
    **{"True": True, "False": False, "None": None},
    **{"true": True, "false": False, "null": None},
}
_CLOSING = {"[": "]", "(": ")"}


def python_calls(reply: ReplyText, start: int) -> Calls:
    """Read a list of calls, or calls on separate lines, each optionally printed or assigned to a name."""
    text = reply.text
    at = skip(text, start)
    if text.startswith("[", at):
        calls, end = items_until(text, at + 1, "]", partial(_call, reply))
        return some_calls(calls, end)
    calls, end = [], at
    while _NAME.match(text, at):
        call, end = _statement(reply, at)
        calls.append(call)
        at = end_of(_SEPARATOR, text, end)
    return some_calls(calls, end)


def fenced_python(reply: ReplyText, start: int) -> Calls:
    """Read the calls in a code fence."""
    fence = match_at(_FENCE, reply.text, start)
    calls, end = python_calls(reply, fence.end())
    return Calls(calls, match_at(_FENCE_END, reply.text, end).end())


def only_python(reply: ReplyText, start: int) -> Calls:
    """Read a list of calls of available tools, if the reply ends after them."""
    expect("[", reply.text, start)
    calls, end = python_calls(reply, start)
    is_all = skip(reply.text, end) == len(reply.text)
    if not is_all or not all(call.name in reply.schemas for call in calls):
        raise NoCallError
    return Calls(calls, end)


def python_value(text: str) -> object:
    """Return the value of a literal.

    Raises:
        NoCallError: The text is not a literal.
    """
    value, end = _value(text, skip(text, 0), 0)
    if skip(text, end) < len(text):
        raise NoCallError
    return value


def _statement(reply: ReplyText, at: int) -> Value[ToolCall]:
    text = reply.text
    at = end_of(_ASSIGNED, text, at)
    # A tool can have the name `print`.
    printed = None if "print" in reply.schemas else _PRINT.match(text, at)
    if printed is None:
        return _call(reply, at)
    call, at = _call(reply, printed.end())
    return Value(call, expect(")", text, at))


def _call(reply: ReplyText, at: int) -> Value[ToolCall]:
    text = reply.text
    name = match_at(_NAME, text, at)
    arguments: dict[str, object] = {}
    # Parameters of positional arguments, which cannot follow a keyword argument.
    positions: Iterator[str] = iter(_parameters(reply, name[0]))

    def argument(at: int) -> Value[str]:
        nonlocal positions
        keyword = _KEYWORD.match(text, at)
        if keyword is None:
            parameter = next(positions, "")
        else:
            parameter, at, positions = keyword[1], keyword.end(), iter(())
        if not parameter or parameter in arguments:
            raise NoCallError
        arguments[parameter], at = _value(text, at, 0)
        return Value(parameter, at)

    _, end = items_until(text, expect("(", text, name.end()), ")", argument)
    return Value(new_call(name[0], arguments), end)


def _parameters(reply: ReplyText, name: str) -> list[str]:
    """Return the parameters of a tool in their order."""
    schema: Mapping[str, Any] = reply.schemas.get(name, {})
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else []


def _value(text: str, at: int, depth: int) -> Value[object]:
    if depth > MAX_DEPTH:
        raise NoCallError
    first = text[at : at + 1]
    if first in ("[", "("):
        items, end = items_until(text, at + 1, _CLOSING[first], lambda at: _value(text, at, depth + 1))
        return Value(items, end)
    if first == "{":
        return _mapping(text, at, depth)
    if first in ("'", '"'):
        string, end = _string(text, at)
        return Value(string, end)
    if number := _NUMBER.match(text, at):
        return Value(number_of(number[0]), number.end())
    word = match_at(_WORD, text, at)
    if word[0] not in WORDS:
        raise NoCallError
    return Value(WORDS[word[0]], word.end())


def _string(text: str, at: int) -> Value[str]:
    match = match_at(_STRING, text, at)
    inner = next(group for group in match.groups() if group is not None)
    return Value(_ESCAPE.sub(_unescaped, inner), match.end())


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    number = int(code[1:], 16)
    return chr(number) if number <= 0x10FFFF else match[0]


def number_of(text: str) -> int | float:
    """Return the number in a text.

    Raises:
        NoCallError: The number has more digits than Python reads.
    """
    digits = text.replace("_", "")
    try:
        if digits.lstrip("+-").isdigit():
            return int(digits)
        return float(digits)
    except ValueError:
        raise NoCallError from None


def _mapping(text: str, at: int, depth: int) -> Value[object]:
    def entry(at: int) -> Value[tuple[str, object]]:
        key, at = _string(text, at)
        value, at = _value(text, skip(text, expect(":", text, at)), depth + 1)
        return Value((key, value), at)

    entries, end = items_until(text, at + 1, "}", entry)
    return Value(dict(entries), end)
