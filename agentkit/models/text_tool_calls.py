"""Tool calls that a local model writes into its text, in the form that its chat template taught it.

A form is a row: what opens it, what closes it, and whether the name of the tool stands in front of the arguments. All
of them hold JSON; anything else stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from uuid import uuid4

from agentkit_prompts.context.messages import ToolCall

__all__ = ["FORMS", "Form", "TextToolCalls"]


class Form(NamedTuple):
    """How a family of models writes tool calls."""

    opening: str
    closing: str = ""
    """May be missing at the end of the reply: it is a stop word of some templates."""
    behind_name: str = ""
    """What stands between the name of the tool and its arguments; empty where the name is part of the JSON."""


FORMS = (
    Form("<tool_call>", "</tool_call>"),  # Hermes, Qwen 2.5 and 3
    Form("<|tool_call|>", "<|/tool_call|>"),  # Granite 3, Phi 4 mini
    Form("<|python_tag|>", "<|eom_id|>"),  # Llama 3.1
    Form("<function=", "</function>", ">"),  # Llama 3.1, tools of one's own
    Form("<|action_start|><|plugin|>", "<|action_end|>"),  # InternLM 2
    Form("[TOOL_CALLS]"),  # Mistral: a list
    Form("[TOOL_CALLS]", "", "[ARGS]"),  # Mistral, newer
)
"""The forms that are recognised anywhere in a reply."""

_OPENING = re.compile("|".join(re.escape(form.opening) for form in FORMS))
_MAX_OPENING = max(len(form.opening) for form in FORMS)
_JSON = json.JSONDecoder()
_NAME = re.compile(r"\s*+([\w.:/-]++)\s*+")
_SKIPPED = re.compile(r"[\s;,]*+")
"""What may stand between two calls."""
_WINDOW = 1_024
_MAX_TOKEN = 32
"""Characters of the longest thing of JSON, apart from strings and numbers, that the end of a window may cut."""


class TextToolCalls:
    """Takes the tool calls out of a reply as it arrives.

    `add` takes a piece of text and returns what is surely no call; `end` returns the rest that is no call. Then
    `calls` has the calls, in order.

    Args:
        names: The tools there are: only they are recognised in a reply that is nothing but JSON, as Llama 3.1 and
            others write calls of no form.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.calls: list[ToolCall] = []
        self._names = names
        self._held: list[str] = []
        self._has_opened = False
        self._has_text = False
        self._is_blank = True

    def add(self, text: str) -> str:
        """Take a piece of the reply, and return what of it can be shown."""
        if self._is_blank and not text.strip():
            self._held.append(text)
            return ""
        self._is_blank = False
        if not self._has_opened:
            text = "".join([*self._held, text])
            keep, self._has_opened = _first_possible(text)
            if not self._has_text and text.lstrip()[:1] in ("{", "["):
                keep, self._has_opened = 0, True
            self._held.clear()
        else:
            keep = 0
        self._held.append(text[keep:])
        self._has_text = self._has_text or bool(text[:keep].strip())
        return text[:keep]

    def end(self) -> str:
        """Return what was held back and is no call."""
        text = "".join(self._held)
        self._held.clear()
        if not self._has_text and (calls := list(_bare(text, self._names))):
            self.calls += calls
            return ""
        left: list[str] = []
        start = 0
        for opening in _OPENING.finditer(text):
            at = opening.start()
            if at >= start and (found := _read(text, at)) is not None:
                left.append(text[start:at])
                self.calls += found[0]
                start = found[1]
        rest = "".join([*left, text[start:]])
        return rest if rest.strip() or not self.calls else ""


def _first_possible(text: str) -> tuple[int, bool]:
    """Return where a form opens in `text`, and True; or where one may be opening at its end, and False."""
    found = _OPENING.search(text)
    if found is not None:
        return found.start(), True
    ends = range(max(0, len(text) - _MAX_OPENING), len(text))
    return next((at for at in ends if any(form.opening.startswith(text[at:]) for form in FORMS)), len(text)), False


def _read(text: str, at: int) -> tuple[list[ToolCall], int] | None:
    """Return the calls that open at `at`, and where they end; None when they are not well formed."""
    for form in FORMS:
        if not text.startswith(form.opening, at):
            continue
        start = at + len(form.opening)
        name = ""
        if form.behind_name:
            named = _NAME.match(text, start)
            if named is None or not text.startswith(form.behind_name, named.end()):
                continue
            name, start = named[1], named.end() + len(form.behind_name)
        calls: list[ToolCall] = []
        end = start
        for value, stop in _values(text, start):
            read = list(_calls({"name": name, "arguments": value} if name else value))
            if not read:
                break
            calls += read
            end = stop
            if name:
                break
        after = _SKIPPED.match(text, end).end()  # type: ignore[union-attr]
        if calls and form.closing and text.startswith(form.closing, after):
            return calls, after + len(form.closing)
        if calls and (not form.closing or after == len(text)):
            return calls, end
    return None


def _bare(text: str, names: Collection[str]) -> Iterator[ToolCall]:
    """Yield the calls of a reply that is JSON from its beginning to its end, all of them of tools there are."""
    end = 0
    calls: list[ToolCall] = []
    for value, stop in _values(text, 0):
        calls += _calls(value)
        end = stop
    if not text[end:].strip() and all(call.name in names for call in calls):
        yield from calls


def _values(text: str, start: int) -> Iterator[tuple[object, int]]:
    """Yield objects and lists in JSON that follow each other, each with its end."""
    while True:
        start = _SKIPPED.match(text, start).end()  # type: ignore[union-attr]
        found = _decoded(text, start)
        if found is None:
            return
        value, start = found
        yield value, start


def _decoded(text: str, start: int) -> tuple[object, int] | None:
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
            is_cut = error.msg.startswith("Unterminated string") or error.pos >= len(piece) - _MAX_TOKEN
            if start + size >= len(text) or not is_cut:
                return None
            size *= 4
        except (ValueError, RecursionError):
            return None
        else:
            return value, start + end


def _calls(value: object) -> Iterator[ToolCall]:
    """Yield the calls in a JSON value; a list must hold nothing else."""
    items = value if isinstance(value, list) else [value]
    read = [_call(item) for item in items]
    yield from (call for call in read if call is not None and None not in read)


def _call(value: object) -> ToolCall | None:
    if not isinstance(value, Mapping):
        return None
    inner = value.get("function")
    value = inner if isinstance(inner, Mapping) else value
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        return None
    # Nine letters and digits: the form that Mistral's templates insist on.
    return ToolCall(uuid4().hex[:9], name, json.dumps(arguments, ensure_ascii=False))
