"""Reader of tool calls of FunctionGemma and Gemma 4: `call:NAME{key:value,...}`, with special quotes around texts."""

from __future__ import annotations

import json
import re

from agentkit_prompts.chat_templates.tool_calls.python_calls import WORDS, number_of
from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Calls,
    NoCallError,
    Reader,
    ReplyText,
    Value,
    expect,
    items_until,
    match_at,
    new_call,
    skip,
    some_calls,
)
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.limits import MAX_DEPTH

_NAME = re.compile(r"[\s,;]*+call:\s*+([\w.:/-]++)\s*+(?=\{)")
_KEY = re.compile(r"\s*+([^\s{}\[\]:,<>|\"']++)\s*+:\s*+")
_NUMBER = re.compile(r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?![\w.])")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_WORD = re.compile(r"[^\s{}\[\],<>|\"'][^{}\[\],<>|\"']*+")


def gemma_calls(quote: str) -> Reader:
    """Return a reader of calls that follow each other, whose strings are between two `quote` texts."""

    def read(reply: ReplyText, start: int) -> Calls:
        calls: list[ToolCall] = []
        while (name := _NAME.match(reply.text, start)) is not None:
            arguments, start = _value(reply, name.end(), quote, 0)
            calls.append(new_call(name[1], arguments))
        return some_calls(calls, start)

    return read


def _value(reply: ReplyText, at: int, quote: str, depth: int) -> Value[object]:
    text = reply.text
    if depth > MAX_DEPTH:
        raise NoCallError
    if text.startswith("{", at):
        return _mapping(reply, at, quote, depth)
    if text.startswith("[", at):
        items, end = items_until(text, at + 1, "]", lambda at: _value(reply, at, quote, depth + 1))
        return Value(items, end)
    if text.startswith(quote, at):
        quoted, end = _quoted(reply, at, quote)
        return Value(quoted, end)
    if string := _STRING.match(text, at):
        return Value(_unescaped(string[0]), string.end())
    if number := _NUMBER.match(text, at):
        return Value(number_of(number[0]), number.end())
    word = match_at(_WORD, text, at)
    bare = word[0].strip()
    return Value(WORDS.get(bare, bare), word.end())


def _mapping(reply: ReplyText, at: int, quote: str, depth: int) -> Value[object]:
    def entry(at: int) -> Value[tuple[str, object]]:
        key, at = _key(reply, at, quote)
        value, at = _value(reply, at, quote, depth + 1)
        return Value((key, value), at)

    entries, end = items_until(reply.text, at + 1, "}", entry)
    return Value(dict(entries), end)


def _unescaped(string: str) -> object:
    try:
        return json.loads(string, strict=False)
    except ValueError:
        return string[1:-1]


def _key(reply: ReplyText, at: int, quote: str) -> Value[str]:
    text = reply.text
    if text.startswith(quote, at):
        key, at = _quoted(reply, at, quote)
        return Value(key, skip(text, expect(":", text, at)))
    match = match_at(_KEY, text, at)
    return Value(match[1], match.end())


def _quoted(reply: ReplyText, at: int, quote: str) -> Value[str]:
    begin = at + len(quote)
    end = reply.find(quote, begin)
    if end < 0:
        raise NoCallError
    return Value(reply.text[begin:end], end + len(quote))
