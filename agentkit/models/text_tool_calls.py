"""Tool calls that a local model writes into its text, in the format that its chat template taught it.

The formats are those of `agentkit_prompts.chat_templates.tool_calls`; text in none of them stays text.
"""

from __future__ import annotations

import re
from functools import lru_cache

from agentkit_prompts.chat_templates.tool_calls.formats import Form, bare_readers, forms_of
from agentkit_prompts.chat_templates.tool_calls.reply_text import Found, ReplyText, Schemas
from agentkit_prompts.context.messages import ToolCall

__all__ = ["TextToolCalls"]

_SKIPPED = re.compile(r"[\s;,]*+")
"""What may stand in front of what closes a call."""


class TextToolCalls:
    """Takes the tool calls out of a reply as it arrives.

    `add` takes a piece of text and returns what is surely no call; `end` returns the rest that is no call. Then
    `calls` has the calls, in order.

    Args:
        schemas: The parameters of the tools there are, by name: only these are recognised in a reply that is nothing
            but calls, and they say of which types the arguments are where a format has none.
        format: The format of the model; None recognises every one.
    """

    def __init__(self, schemas: Schemas, format: str | None = None) -> None:
        self.calls: list[ToolCall] = []
        self._schemas = schemas
        self._format = format
        self._forms = forms_of(format)
        self._opening, self._longest = _openings(format)
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
            keep, self._has_opened = self._first_possible(text)
            if not self._has_text and text.lstrip()[:1] in ("{", "["):
                keep, self._has_opened = 0, True
            elif not self._has_text and not text[:keep].strip():
                keep = 0  # white space in front of a call is no text
            self._held.clear()
        else:
            keep = 0
        self._held.append(text[keep:])
        self._has_text = self._has_text or bool(text[:keep].strip())
        return text[:keep]

    def end(self) -> str:
        """Return what was held back and is no call."""
        reply = ReplyText("".join(self._held), self._schemas)
        text = reply.text
        self._held.clear()
        if not self._has_text:
            for read in bare_readers(self._format):
                if (found := read(reply, 0)) is not None:
                    self.calls += found[0]
                    return ""
        left: list[str] = []
        start = 0
        for opening in self._opening.finditer(text):
            at = opening.start()
            if at >= start and (found := self._read(reply, at)) is not None:
                left.append(text[start:at])
                self.calls += found[0]
                start = found[1]
        rest = "".join([*left, text[start:]])
        return rest if rest.strip() or not self.calls else ""

    def _first_possible(self, text: str) -> tuple[int, bool]:
        """Return where a form opens in `text`, and True; or where one may be opening at its end, and False."""
        found = self._opening.search(text)
        if found is not None:
            return found.start(), True
        ends = range(max(0, len(text) - self._longest), len(text))
        possible = (at for at in ends if any(form.opening.startswith(text[at:]) for form in self._forms))
        return next(possible, len(text)), False

    def _read(self, reply: ReplyText, at: int) -> Found:
        """Return the calls that open at `at`, and where they end; None when they are not well formed."""
        for form in self._forms:
            if not reply.text.startswith(form.opening, at):
                continue
            found = form.read(reply, at + len(form.opening) - form.kept)
            if found is not None and (end := _closed(reply.text, form, found[1])) is not None:
                return found[0], end
        return None


def _closed(text: str, form: Form, end: int) -> int | None:
    """Return the end of calls that are read up to `end`; None where they have to be closed there, and are not."""
    after = _SKIPPED.match(text, end).end()  # type: ignore[union-attr]
    if form.closing and text.startswith(form.closing, after):
        return after + len(form.closing)
    return end if not form.closing or form.may_stay_open or after == len(text) else None


@lru_cache(maxsize=32)
def _openings(format: str | None) -> tuple[re.Pattern[str], int]:
    """Return what finds the openings of a format, and the length of the longest."""
    openings = sorted({form.opening for form in forms_of(format)}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, openings)) or r"(?!)"), max(map(len, openings), default=0)
