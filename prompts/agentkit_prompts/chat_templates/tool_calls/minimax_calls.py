"""Reader of tool calls of MiniMax M3: every tag follows a marker, and the tag of an argument is its name.

Objects are nested tags, and lists are tags with the name `item`. A value can quote a call: the quoted call is text.
"""

from __future__ import annotations

import re
from collections import Counter
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

MARKER = "]<]minimax[>["
_TAG = re.compile(rf'{re.escape(MARKER)}\s*+<(?P<end>/)?(?P<name>[^\s<>/"]++)(?:\s++name="(?P<value>[^"<>]++)")?\s*+>')
_BLOCKS = ("tool_call", "invoke")
_AFTER_ELEMENT = re.compile(rf"\s*+(?:\Z|{re.escape(MARKER)}\s*+<(?!(?:tool_call|invoke)[\s>]))")
"""Pattern of the text after the closing tag of an element; a closing tag before other text is part of a value."""
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


class _Tags(NamedTuple):
    """Tags of a reply, matched as brackets; an element is named by the start of its opening tag."""

    closings: Mapping[int, re.Match[str]]
    """Closing tags of the elements that have a closing tag."""
    quotes: frozenset[int]
    """Elements inside a call. A call that is one of these elements is quoted, also if the outer call is invalid."""


class _Reading(NamedTuple):
    """A reply, its tags, and the schema to which references of nested schemas lead."""

    reply: ReplyText
    tags: _Tags
    root: Any

    @property
    def text(self) -> str:
        return self.reply.text


def _invoke(reply: ReplyText, at: int) -> Value[ToolCall]:
    tag = _tag_at(reply.text, at)
    if tag["end"] or tag["name"] != "invoke" or tag["value"] is None:
        raise NoCallError
    tags = _tags(reply)
    if at in tags.quotes:
        raise NoCallError
    root = reply.schemas.get(tag["value"], {})
    fields, end = _fields(_Reading(reply, tags, root), tag.end(), "invoke", root, 0)
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
        value, at = _value(reading, tag, child, depth + 1)
        fields.append((name, value))


def _value(reading: _Reading, opening: re.Match[str], schema: object, depth: int) -> Value[object]:
    """Return the value of the element with this opening tag."""
    text, at, name = reading.text, opening.end(), opening["name"]
    tag = _tag_after_quotes(reading, at)
    closing = reading.tags.closings.get(opening.start())
    reading.reply.charge(tag.start() - at)
    inner = text[at : tag.start()]
    is_text = bool(inner.strip()) or kinds_of(schema, reading.root) == {"string"}
    if closing is not None and (is_text or tag["end"]):
        reading.reply.charge(closing.start() - at)
        return Value(typed(text[at : closing.start()], schema, reading.root), closing.end())
    # Some replies have no marker before the closing tag.
    unmarked = f"</{name}>"
    if inner.rstrip().endswith(unmarked):
        return Value(typed(inner.rstrip().removesuffix(unmarked), schema, reading.root), tag.start())
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


def _tag_after_quotes(reading: _Reading, at: int) -> re.Match[str]:
    """Return the first tag from `at` on that is not part of a quoted call.

    Raises:
        NoCallError: No such tag follows.
    """
    while True:
        tag = _TAG.search(reading.text, at)
        if tag is None:
            reading.reply.has_open_value = True
            raise NoCallError
        if tag["end"] or tag["name"] not in _BLOCKS:
            return tag
        # A sentence can contain the opening tag of a call without its closing tag.
        at = reading.tags.closings.get(tag.start(), tag).end()


def _tags(reply: ReplyText) -> _Tags:
    tags: _Tags | None = reply.memory.get(_Tags)
    if tags is None:
        tags = reply.memory[_Tags] = _matched_tags(reply.text)
    return tags


def _matched_tags(text: str) -> _Tags:
    """Match the tags of a reply as brackets, in one pass. An element can end without its closing tag."""
    closings: dict[int, re.Match[str]] = {}
    opened: list[re.Match[str]] = []
    names: Counter[str] = Counter()
    for tag in _TAG.finditer(text):
        name = tag["name"]
        if not tag["end"]:
            opened.append(tag)
            names[name] += 1
        elif names[name] and (name in _BLOCKS or _AFTER_ELEMENT.match(text, tag.end())):
            opening = opened.pop()
            names[opening["name"]] -= 1
            while opening["name"] != name:
                opening = opened.pop()
                names[opening["name"]] -= 1
            closings[opening.start()] = tag
    quotes: set[int] = set()
    call_end = 0
    for start in sorted(closings):
        if start < call_end:
            quotes.add(start)
        elif closings[start]["name"] == "invoke":
            call_end = closings[start].end()
    return _Tags(closings, frozenset(quotes))


def _tag_at(text: str, at: int) -> re.Match[str]:
    tag = _TAG.match(text, at)
    if tag is None:
        raise NoCallError
    return tag
