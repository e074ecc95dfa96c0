"""Reader of tool calls of MiniMax M3: every tag follows a marker, and the tag of an argument is its name.

Objects are nested tags, and lists are tags with the name `item`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentkit_prompts.chat_templates.tool_calls.argument_types import kinds_of, schema_of, typed
from agentkit_prompts.chat_templates.tool_calls.reply_text import (
    Calls,
    NoCallError,
    ReplyText,
    Value,
    new_call,
    skip,
    some_calls,
)
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.limits import MAX_DEPTH

__all__ = ["MARKER", "minimax_m3_calls"]

MARKER = "]<]minimax[>["
_TAG = re.compile(rf'{re.escape(MARKER)}\s*+<(?P<end>/)?(?P<name>[^\s<>/"]++)(?:\s++name="(?P<value>[^"<>]++)")?\s*+>')
_BLOCKS = ("tool_call", "invoke")
_ITEM = "item"


def minimax_m3_calls(reply: ReplyText, start: int) -> Calls:
    """Read `<invoke name="NAME"><KEY>VALUE</KEY>...</invoke>`, several in a row, with a marker before every tag."""
    calls: list[ToolCall] = []
    while True:
        try:
            call, end = _invoke(reply, skip(reply.text, start))
        except NoCallError:
            return some_calls(calls, start)
        calls.append(call)
        start = end


class _Reading(NamedTuple):
    """The reply, and the schema to which references of nested schemas lead."""

    text: str
    root: Any


def _invoke(reply: ReplyText, at: int) -> Value[ToolCall]:
    tag = _tag_at(reply.text, at)
    if tag["end"] or tag["name"] != "invoke" or tag["value"] is None:
        raise NoCallError
    root = reply.schemas.get(tag["value"], {})
    fields, end = _fields(_Reading(reply.text, root), tag.end(), "invoke", root, 0)
    return Value(new_call(tag["value"], dict(fields)), end)


def _fields(reading: _Reading, at: int, parent: str, schema: object, depth: int) -> Value[list[tuple[str, object]]]:
    """Return the elements up to the closing tag of `parent`, and the end of this tag."""
    if depth > MAX_DEPTH:
        raise NoCallError
    fields: list[tuple[str, object]] = []
    while True:
        tag = _tag_at(reading.text, skip(reading.text, at))
        name = tag["name"]
        if tag["end"]:
            if name != parent:
                raise NoCallError
            return Value(fields, tag.end())
        if name in _BLOCKS:
            raise NoCallError
        child = schema_of(name, schema)
        if name == _ITEM and isinstance(schema, Mapping) and "items" in schema:
            child = schema["items"]
        value, at = _value(reading, tag.end(), name, child, depth + 1)
        fields.append((name, value))


def _value(reading: _Reading, at: int, name: str, schema: object, depth: int) -> Value[object]:
    """Return the value of an element whose opening tag ends at `at`."""
    text = reading.text
    tag = _TAG.search(text, at)
    if tag is None:
        raise NoCallError
    inner = text[at : tag.start()]
    if tag["end"] and tag["name"] == name:
        return Value(typed(inner, schema, reading.root), tag.end())
    # Some replies have no marker before the closing tag.
    closing = f"</{name}>"
    if inner.rstrip().endswith(closing):
        return Value(typed(inner.rstrip().removesuffix(closing), schema, reading.root), tag.start())
    if inner.strip() and not tag["end"] and depth == 1:
        # An argument without a closing tag ends at the next argument.
        return Value(typed(inner.removesuffix("\n"), schema, reading.root), tag.start())
    if inner.strip() or tag["end"]:
        raise NoCallError
    fields, end = _fields(reading, at, name, schema, depth)
    names = {key for key, _ in fields}
    if names == {_ITEM} and kinds_of(schema, reading.root) != {"object"}:
        return Value([value for _, value in fields], end)
    return Value(dict(fields), end)


def _tag_at(text: str, at: int) -> re.Match[str]:
    tag = _TAG.match(text, at)
    if tag is None:
        raise NoCallError
    return tag
