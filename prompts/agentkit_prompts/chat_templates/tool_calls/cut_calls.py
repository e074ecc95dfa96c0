"""Detection of a reply that ends inside a tool call because it reached its token limit."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from agentkit_prompts.chat_templates.tool_calls.formats import Form
from agentkit_prompts.chat_templates.tool_calls.json_calls import json_goes_on
from agentkit_prompts.chat_templates.tool_calls.reply_text import ReplyText, skip

_BEGUN = re.compile(r"\s*+(?:`{0,2}\Z|[{\[<]|\x22(?:\w|\Z)|\](?:\Z|<(?:\Z|\]))|```|[\w.:/-]++\s*+(?:\Z|[({<>\[=]))")
"""Pattern of the text after the opening of a call. After an opening inside a sentence, other text follows."""
_START = r"[\s\[]*+\{\s*+"
_NAME = r"""["']?name["']?\s*+:\s*+["']?(?P<name>[\w.:/-]++)"""
_NAMED_IN_JSON = re.compile(
    rf"""{_START}(?:["']?type["']?\s*+:\s*+["']?function["']?\s*+,\s*+)?(?:["']?function["']?\s*+:\s*+\{{\s*+)?{_NAME}"""
)
_ARGUMENTS_IN_JSON = re.compile(rf"""{_START}["']?(?:arguments|parameters)["']?\s*+:\s*+["{{]""")
_NAME_IN_JSON = re.compile(_NAME)
_NAMED_IN_PYTHON = re.compile(r"\s*+\[\s*+(?P<name>[^\W\d]\w*+(?:[.:/-]\w++)*+)\s*+\(")


def is_cut_call(reply: ReplyText, at: int, forms: Iterable[Form]) -> bool:
    """True if a form opens a call at `at` that the end of the reply cuts."""
    return any(reply.text.startswith(form.opening, at) and _goes_on(reply, at, form) for form in forms)


def closed_end(reply: ReplyText, at: int, forms: Iterable[Form]) -> int | None:
    """Return the end of the call that opens at `at`; None if the call has no closing text.

    A value can quote a call, so openings and closings are matched as brackets.
    """
    ends: list[int] = []
    for form in forms:
        if not form.closing or not reply.text.startswith(form.opening, at):
            continue
        key = (form.opening, form.closing)
        matches: dict[int, int] | None = reply.memory.get(key)
        if matches is None:
            matches = reply.memory[key] = _matched_ends(reply.text, form)
        if at in matches:
            ends.append(matches[at])
    return min(ends, default=None)


def _matched_ends(text: str, form: Form) -> dict[int, int]:
    """Return the ends of all closed calls of a form, by the place of their openings, in one pass over a reply."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    for mark in re.finditer(f"({re.escape(form.opening)})|{re.escape(form.closing)}", text):
        if mark[1] is not None:
            opened.append(mark.start())
        elif opened:
            ends[opened.pop()] = mark.end()
    return ends


def begins_call(text: str, at: int, forms: Iterable[Form]) -> bool:
    """True if the text after an opening at `at` begins like a call; a sentence can contain an opening."""
    starts = [at + len(form.opening) - form.call_chars for form in forms if text.startswith(form.opening, at)]
    return any(_BEGUN.match(text, start) for start in starts)


def names_tool(text: str, tools: Container[str], *, may_be_python: bool) -> bool:
    """True if a reply starts with a list of calls or a call whose name is an available tool."""
    match = _NAMED_IN_JSON.match(text) or (_NAMED_IN_PYTHON.match(text) if may_be_python else None)
    return match is not None and match["name"] in tools


def names_tool_last(text: str, tools: Container[str]) -> bool:
    """True if a reply starts with the arguments of a call, and the name of an available tool follows."""
    if _ARGUMENTS_IN_JSON.match(text) is None:
        return False
    return any(match["name"] in tools for match in _NAME_IN_JSON.finditer(text))


def is_cut_list(text: str, tools: Container[str], *, may_be_python: bool) -> bool:
    """True if a reply consists of the start of calls, and the first call names an available tool."""
    if not names_tool(text, tools, may_be_python=may_be_python):
        return False
    return _NAMED_IN_JSON.match(text) is None or json_goes_on(text, 0)


def _goes_on(reply: ReplyText, at: int, form: Form) -> bool:
    text = reply.text
    start = at + len(form.opening) - form.call_chars
    # A sentence can contain the opening of a call without a call.
    if _BEGUN.match(text, start) is None:
        return False
    body = skip(text, start)
    if not form.closing:
        first = body
        if text[body : body + 1] not in ("{", "["):
            first = text.find("{", body)
        return first < 0 or json_goes_on(text, first)
    # A string in the call can contain the end of a call.
    if text.startswith("{", body):
        return json_goes_on(text, body, form.closing)
    return closed_end(reply, at, (form,)) is None
