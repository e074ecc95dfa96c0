"""Reader of the tool calls at a place of a reply, in the forms of a format."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentkit_prompts.chat_templates.tool_calls.formats import Form
from agentkit_prompts.chat_templates.tool_calls.reply_text import Calls, ReplyText, end_of, skip, try_read

__all__ = ["calls_at"]

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
