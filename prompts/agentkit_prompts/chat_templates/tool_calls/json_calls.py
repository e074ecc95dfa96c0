"""Calls written as JSON: objects and lists, or a name in front of an object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from agentkit_prompts.chat_templates.tool_calls.reply_text import Found, Reader, ReplyText, end_of, made_call, skip
from agentkit_prompts.context.messages import ToolCall

__all__ = ["decoded", "deepseek_calls", "json_calls", "json_goes_on", "kimi_calls", "named_call", "only_json"]

_JSON = json.JSONDecoder()
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+")
_SKIPPED = re.compile(r"[\s;,]*+")
"""What may stand between two calls."""
_FENCE = re.compile(r"\s*+```(?:json)?\s*+")
_FENCE_END = re.compile(r"\s*+```")
_CALL_ID = re.compile(r"\[CALL_ID\]([\w-]++)\s*+")
_KIMI_ID = re.compile(r"\s*+((?:functions\.)?([\w.:/-]*[\w./-]):\d++)\s*+")
_BEGINNING = re.compile(r"\{\s*+[\"}]|\[\s*+[\[{]")
"""How an object begins, and a list of objects."""
_WINDOW = 1_024
_MAX_TOKEN = 32
"""Characters of the longest thing of JSON, apart from strings and numbers, that the end of a window may cut."""
_DEEPSEEK = ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
_KIMI = ("<|tool_call_begin|>", "<|tool_call_end|>")


def json_calls(reply: ReplyText, start: int) -> Found:
    """Read objects and lists of calls that follow each other: `{"name": ..., "arguments": {...}}`."""
    calls: list[ToolCall] = []
    end = start
    for value, stop in _values(reply.text, start):
        read = _calls(value)
        if not read:
            break
        calls += read
        end = stop
    return (calls, end) if calls else None


def only_json(reply: ReplyText, start: int) -> Found:
    """Read calls of tools there are, where there is nothing else up to the end of the reply."""
    calls: list[ToolCall] = []
    end = start
    for value, stop in _values(reply.text, start):
        calls += _calls(value)
        end = stop
    if not calls or skip(reply.text, end) < len(reply.text):
        return None
    return (calls, end) if all(call.name in reply.schemas for call in calls) else None


def named_call(behind_name: str) -> Reader:
    """Return what reads a name, `behind_name`, and the arguments."""

    def read(reply: ReplyText, start: int) -> Found:
        named = _NAME.match(reply.text, start)
        if named is None:
            return None
        start, id_ = named.end(), ""
        if given := _CALL_ID.match(reply.text, start):
            start, id_ = given.end(), given[1]
        if not reply.text.startswith(behind_name, start):
            return None
        return _one(named[1], _arguments(reply.text, start + len(behind_name)), id_)

    return read


def deepseek_calls(reply: ReplyText, start: int) -> Found:
    """Read calls as V3 and R1 write them (a type, a name, arguments in a code fence), or V3.1 (name, arguments)."""
    return _tokened(reply.text, start, _DEEPSEEK, _deepseek_call)


def kimi_calls(reply: ReplyText, start: int) -> Found:
    """Read calls as Kimi K2 writes them: `functions.NAME:NUMBER`, which is also the id, then the arguments."""
    return _tokened(reply.text, start, _KIMI, _kimi_call)


def _tokened(text: str, start: int, tokens: tuple[str, str], read: Callable[[str, int], Found]) -> Found:
    """Read calls between tokens, up to one that is not well formed; the last token may be missing at the end."""
    opening, closing = tokens
    calls: list[ToolCall] = []
    end = start
    while (at := _behind(text, opening, end)) is not None and (one := read(text, at)) is not None:
        stop = _behind(text, closing, one[1])
        if stop is None and skip(text, one[1]) < len(text):
            break
        calls += one[0]
        end = len(text) if stop is None else stop
    return (calls, end) if calls else None


def _deepseek_call(text: str, at: int) -> Found:
    named = _NAME.match(text, at)
    behind = None if named is None else _behind(text, "<｜tool▁sep｜>", named.end())
    if named is None or behind is None:
        return None
    name, at = named[1], behind
    if typed := _NAME.match(text, at):
        name, at = typed[1], typed.end()
    fence = _FENCE.match(text, at)
    one = _one(name, _arguments(text, fence.end() if fence else at))
    if one is None or fence is None or (closed := _FENCE_END.match(text, one[1])) is None:
        return one
    return one[0], closed.end()


def _kimi_call(text: str, at: int) -> Found:
    named = _KIMI_ID.match(text, at)
    behind = None if named is None else _behind(text, "<|tool_call_argument_begin|>", named.end())
    if named is None or behind is None:
        return None
    return _one(named[2], _arguments(text, behind), named[1])


def decoded(text: str, start: int) -> tuple[object, int] | None:
    """Return the JSON object or list that begins at `start`, and its end.

    Only as much of the text is looked at as that takes: a reply may open a call at any place, and close none.
    """
    if text[start : start + 1] not in ("{", "["):
        return None
    size = _WINDOW
    while True:
        piece = text[start : start + size]
        try:
            value, end = _JSON.raw_decode(piece)
        except json.JSONDecodeError as error:
            if start + size >= len(text) or not _is_cut(error, len(piece)):
                return None
            size *= 4
        except (ValueError, RecursionError):
            return None
        else:
            return value, start + end


def json_goes_on(text: str, start: int, closing: str = "") -> bool:
    """Return whether the end of a text cuts objects and lists that follow each other, or what closes them."""
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


def _is_cut(error: json.JSONDecodeError, size: int) -> bool:
    """Return whether a text of this size is no JSON because it ends too early."""
    return error.msg.startswith("Unterminated string") or error.pos >= size - _MAX_TOKEN


def _values(text: str, start: int) -> Iterator[tuple[object, int]]:
    """Yield objects and lists in JSON that follow each other, each with its end."""
    while True:
        start = end_of(_SKIPPED, text, start)
        found = decoded(text, start) if _BEGINNING.match(text, start) else None
        if found is None:
            return
        value, start = found
        yield value, start


def _arguments(text: str, start: int) -> tuple[str, int] | None:
    """Return arguments as they are written, and their end."""
    start = skip(text, start)
    found = decoded(text, start) if _BEGINNING.match(text, start) else None
    return None if found is None else (text[start : found[1]], found[1])


def _one(name: str, found: tuple[str, int] | None, id_: str = "") -> Found:
    call = None if found is None else made_call(name, found[0], id_)
    return None if found is None or call is None else ([call], found[1])


def _behind(text: str, token: str, start: int) -> int | None:
    """Return where the text goes on behind a token, white space before it skipped; None where it is another."""
    at = skip(text, start)
    return at + len(token) if text.startswith(token, at) else None


def _calls(value: object) -> list[ToolCall]:
    """Return the calls in a JSON value; a list must hold nothing else."""
    items = value if isinstance(value, list) else [value]
    read = [_call(item) for item in items]
    found = [call for call in read if call is not None]
    return found if len(found) == len(read) else []


def _call(value: object) -> ToolCall | None:
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    value = inner if isinstance(inner, Mapping) else value
    return made_call(value.get("name"), value.get("arguments", value.get("parameters", {})))
