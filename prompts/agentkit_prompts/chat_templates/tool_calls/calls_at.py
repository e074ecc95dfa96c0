"""Readers of the tool calls at a place of a reply, and of a reply that consists of calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from agentkit_prompts.chat_templates.tool_calls.formats import Form, bare_readers, forms_of
from agentkit_prompts.chat_templates.tool_calls.reply_text import Calls, ReplyText, Schemas, end_of, skip, try_read

_SKIPPED = re.compile(r"[\s;,]*+")
"""Text between the arguments of a call and its closing tag."""


def calls_at(reply: ReplyText, at: int, forms: Iterable[Form]) -> Calls | None:
    """Return the calls whose opening text starts at `at`, and their end; None if they are invalid."""
    reply.has_open_value = False
    for form in forms:
        if not reply.text.startswith(form.opening, at):
            continue
        reply.opening = form.opening
        reply.passed.clear()
        block = try_read(form.read, reply, at + len(form.opening) - form.call_chars)
        if block is not None and (end := _calls_end(reply.text, form, block[1])) is not None:
            return Calls(block.calls, _orphan_end(reply.text, form, end))
        reply.bury_passed()
    return None


def _calls_end(text: str, form: Form, end: int) -> int | None:
    """Return the end of calls with their closing tag; None if a required closing tag is missing."""
    after = end_of(_SKIPPED, text, end)
    if form.closing and text.startswith(form.closing, after):
        return after + len(form.closing)
    # A stop word or the token limit can cut the closing text.
    if form.closing and form.closing.startswith(text[after : after + len(form.closing)]):
        return len(text)
    if not form.closing or form.may_stay_open:
        return end
    return None


def _orphan_end(text: str, form: Form, end: int) -> int:
    """Return the end of the closing text of an opening that the model left out; `end` without such a text."""
    after = skip(text, end)
    if form.orphan and text.startswith(form.orphan, after):
        return after + len(form.orphan)
    return end


class WrittenCall(NamedTuple):
    """The first call of a text that consists of calls."""

    tool: str
    format: str
    """Format of the call; empty for a call without a text around it."""


def written_call(text: str, schemas: Schemas) -> WrittenCall | None:
    """Return the first call of a text that consists of calls of known tools, after thinking, in any format; else None.

    The formats `harmony` and `functionary` are not read.
    """
    for _, closing in REASONING_TAGS:
        text = text.rpartition(closing)[2]
    text = text.strip()
    reply = ReplyText(text, schemas)
    for read in bare_readers(None):
        block = try_read(read, reply, 0)
        if block is not None:
            return WrittenCall(block.calls[0].name, "")
    for form in forms_of(None):
        block = calls_at(reply, 0, (form,))
        if block is not None and _has_only_calls(reply, form, block):
            return WrittenCall(block.calls[0].name, form.format)
    return None


def _has_only_calls(reply: ReplyText, form: Form, block: Calls | None) -> bool:
    """True if all calls from a block on are calls of known tools, and no other text follows."""
    while block is not None:
        if any(call.name not in reply.schemas for call in block.calls):
            return False
        end = skip(reply.text, block.end)
        if end == len(reply.text):
            return True
        block = calls_at(reply, end, (form,))
    return False
