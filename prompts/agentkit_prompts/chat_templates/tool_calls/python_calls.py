"""Calls written as Python: `[get_weather(city="Oslo"), ...]` of Llama 3.2 and 4, the code of Gemma 3 and MiniCPM.

Only names, brackets and literals are read; nothing is ever evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Found,
    NoCallError,
    ReplyText,
    end_of,
    items_until,
    made_call,
    skip,
)
from agentkit_prompts.context.messages import ToolCall

__all__ = ["WORDS", "fenced_python", "number_of", "only_python", "python_calls", "python_value"]

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
_MAX_DEPTH = 50


def python_calls(reply: ReplyText, start: int) -> Found:
    """Read a list of calls, or calls one below the other, each perhaps printed or given a name."""
    text = reply.text
    calls: list[ToolCall] = []
    try:
        at = skip(text, start)
        if text.startswith("[", at):
            calls, end = items_until(text, at + 1, "]", partial(_call, reply))
            return (calls, end) if calls else None
        end = at
        while _NAME.match(text, at):
            call, end = _statement(reply, at)
            calls.append(call)
            at = end_of(_SEPARATOR, text, end)
    except NoCallError:
        return None
    return (calls, end) if calls else None


def fenced_python(reply: ReplyText, start: int) -> Found:
    """Read the calls in a code fence."""
    fence = _FENCE.match(reply.text, start)
    found = fence and python_calls(reply, fence.end())
    end = found and _FENCE_END.match(reply.text, found[1])
    return (found[0], end.end()) if found and end else None


def only_python(reply: ReplyText, start: int) -> Found:
    """Read a list of calls of tools there are, where there is nothing else up to the end of the reply."""
    if not reply.text.startswith("[", skip(reply.text, start)):
        return None
    found = python_calls(reply, start)
    if found is None or skip(reply.text, found[1]) < len(reply.text):
        return None
    return found if all(call.name in reply.schemas for call in found[0]) else None


def python_value(text: str) -> tuple[object] | None:
    """Return the value of a literal, in a tuple of one; None where the text is not a literal."""
    try:
        value, end = _value(text, skip(text, 0), 0)
    except NoCallError:
        return None
    return (value,) if skip(text, end) == len(text) else None


def _statement(reply: ReplyText, at: int) -> tuple[ToolCall, int]:
    text = reply.text
    if assigned := _ASSIGNED.match(text, at):
        at = assigned.end()
    printed = _PRINT.match(text, at) if "print" not in reply.schemas else None
    if printed is None:
        return _call(reply, at)
    call, at = _call(reply, printed.end())
    at = skip(text, at)
    if not text.startswith(")", at):
        raise NoCallError
    return call, at + 1


def _call(reply: ReplyText, at: int) -> tuple[ToolCall, int]:
    text = reply.text
    named = _NAME.match(text, at)
    if named is None:
        raise NoCallError
    at = skip(text, named.end())
    if not text.startswith("(", at):
        raise NoCallError
    arguments: dict[str, object] = {}
    positions: Iterator[str] = iter(_parameters(reply, named[0]))  # none is left behind an argument with a name

    def argument(at: int) -> tuple[str, int]:
        nonlocal positions
        keyword = _KEYWORD.match(text, at)
        if keyword is not None:
            name: str | None = keyword[1]
            at, positions = keyword.end(), iter(())
        else:
            name = next(positions, None)
        if name is None or name in arguments:
            raise NoCallError
        arguments[name], at = _value(text, at, 0)
        return name, at

    _, end = items_until(text, at + 1, ")", argument)
    call = made_call(named[0], arguments)
    if call is None:
        raise NoCallError
    return call, end


def _parameters(reply: ReplyText, name: str) -> list[str]:
    """Return the parameters of a tool in their order, for arguments without a name."""
    schema: Mapping[str, Any] = reply.schemas.get(name, {})
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else []


def _value(text: str, at: int, depth: int) -> tuple[object, int]:
    """Return the value of the literal that begins here, and its end."""
    if depth > _MAX_DEPTH:
        raise NoCallError
    first = text[at : at + 1]
    if first in ("[", "("):
        return items_until(text, at + 1, _CLOSING[first], lambda at: _value(text, at, depth + 1))
    if first == "{":
        return _mapping(text, at, depth)
    if first in ("'", '"'):
        return _string(text, at)
    if number := _NUMBER.match(text, at):
        return number_of(number[0]), number.end()
    word = _WORD.match(text, at)
    if word is None or word[0] not in WORDS:
        raise NoCallError
    return WORDS[word[0]], word.end()


def _string(text: str, at: int) -> tuple[str, int]:
    found = _STRING.match(text, at)
    if found is None:
        raise NoCallError
    inner = next(group for group in found.groups() if group is not None)
    return _ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner, found.end()


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else found[0]
    return _ESCAPED.get(code, code)


def number_of(text: str) -> int | float:
    """Return the number that a text is.

    Raises:
        NoCallError: It has more digits than Python reads.
    """
    try:
        digits = text.replace("_", "")
        return int(digits) if digits.lstrip("+-").isdigit() else float(digits)
    except ValueError:
        raise NoCallError from None


def _mapping(text: str, at: int, depth: int) -> tuple[object, int]:
    def entry(at: int) -> tuple[tuple[str, object], int]:
        key, at = _string(text, at)
        at = skip(text, at)
        if not text.startswith(":", at):
            raise NoCallError
        value, at = _value(text, skip(text, at + 1), depth + 1)
        return (key, value), at

    entries, at = items_until(text, at + 1, "}", entry)
    return dict(entries), at
