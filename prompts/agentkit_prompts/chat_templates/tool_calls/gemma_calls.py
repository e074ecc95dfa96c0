"""Calls as FunctionGemma and Gemma 4 write them: `call:NAME{key:value,...}`, texts between quotes of their own."""

from __future__ import annotations

import json
import re

from agentkit_prompts.chat_templates.tool_calls.python_calls import WORDS, number_of
from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Found,
    NoCallError,
    Reader,
    ReplyText,
    items_until,
    made_call,
    skip,
)

__all__ = ["gemma_call"]

_NAME = re.compile(r"\s*+call:\s*+([\w.:/-]++)\s*+(?=\{)")
_KEY = re.compile(r"\s*+([^\s{}\[\]:,<>|\"']++)\s*+:\s*+")
_NUMBER = re.compile(r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?![\w.])")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
_WORD = re.compile(r"[^\s{}\[\],<>|\"'][^{}\[\],<>|\"']*+")
_MAX_DEPTH = 50


def gemma_call(quote: str) -> Reader:
    """Return what reads one call whose texts stand between two times `quote`."""

    def read(reply: ReplyText, start: int) -> Found:
        named = _NAME.match(reply.text, start)
        if named is None:
            return None
        try:
            arguments, end = _value(reply, named.end(), quote, 0)
        except NoCallError:
            return None
        call = made_call(named[1], arguments)
        return None if call is None else ([call], end)

    return read


def _value(reply: ReplyText, at: int, quote: str, depth: int) -> tuple[object, int]:
    """Return the value that begins here, and its end."""
    text = reply.text
    if depth > _MAX_DEPTH:
        raise NoCallError
    if text.startswith("{", at):

        def entry(at: int) -> tuple[tuple[str, object], int]:
            key, at = _key(reply, at, quote)
            value, at = _value(reply, at, quote, depth + 1)
            return (key, value), at

        entries, at = items_until(text, at + 1, "}", entry)
        return dict(entries), at
    if text.startswith("[", at):
        return items_until(text, at + 1, "]", lambda at: _value(reply, at, quote, depth + 1))
    if text.startswith(quote, at):
        return _quoted(reply, at, quote)
    if string := _STRING.match(text, at):
        try:
            return json.loads(string[0], strict=False), string.end()
        except ValueError:
            return string[0][1:-1], string.end()
    if number := _NUMBER.match(text, at):
        return number_of(number[0]), number.end()
    word = _WORD.match(text, at)
    if word is None:
        raise NoCallError
    bare = word[0].strip()
    return WORDS.get(bare, bare), word.end()


def _key(reply: ReplyText, at: int, quote: str) -> tuple[str, int]:
    text = reply.text
    if text.startswith(quote, at):
        key, at = _quoted(reply, at, quote)
        at = skip(text, at)
        if not text.startswith(":", at):
            raise NoCallError
        return key, skip(text, at + 1)
    found = _KEY.match(text, at)
    if found is None:
        raise NoCallError
    return found[1], found.end()


def _quoted(reply: ReplyText, at: int, quote: str) -> tuple[str, int]:
    begin = at + len(quote)
    end = reply.find(quote, begin)
    if end < 0:
        raise NoCallError
    return reply.text[begin:end], end + len(quote)
