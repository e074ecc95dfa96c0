"""Tool calls that a local model writes into its text, in the format that its chat template taught it.

The formats are those of `agentkit_prompts.chat_templates.tool_calls`; text in none of them stays text, and so does what
a model only thinks of calling.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection
from functools import lru_cache

from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from agentkit_prompts.chat_templates.tool_calls.cut_calls import is_cut_call, is_cut_list
from agentkit_prompts.chat_templates.tool_calls.formats import Form, bare_readers, forms_of
from agentkit_prompts.chat_templates.tool_calls.python_calls import only_python
from agentkit_prompts.chat_templates.tool_calls.reply_text import Calls, ReplyText, Schemas, end_of, skip, try_read
from agentkit_prompts.context.messages import ToolCall

__all__ = ["Marks", "TextToolCalls"]

_SKIPPED = re.compile(r"[\s;,]*+")
"""What may stand in front of what closes a call."""
_CLOSING = dict(REASONING_TAGS)
_CLOSINGS = frozenset(_CLOSING.values())
_THOUGHT_TAGS = _CLOSINGS | _CLOSING.keys()
_MIN_OPENING = 5
"""Characters of what opens a call by which its beginning differs from other text at the end of a reply."""
_MAX_OPENINGS = 20
"""Places where a call is opened and not read of which each is looked at, as each may take the whole reply."""


class Marks:
    """Texts that divide a reply: `pattern` finds the longest of them, `begun` one that is still arriving."""

    __slots__ = ("_firsts", "_longest", "_ordered", "pattern")

    def __init__(self, marks: Collection[str]) -> None:
        self._ordered = sorted(marks)
        self._firsts = frozenset(mark[0] for mark in marks)
        self._longest = max(map(len, marks))
        self.pattern = re.compile("|".join(map(re.escape, sorted(marks, key=lambda mark: (-len(mark), mark)))))

    def partial_start(self, text: str, start: int) -> int:
        """Return where one of them may be beginning at the end of a text, from `start` on; its end where none is."""
        for at in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[at] in self._firsts:
                tail = text[at:]
                next_one = bisect_left(self._ordered, tail)
                if next_one < len(self._ordered) and self._ordered[next_one].startswith(tail):
                    return at
        return len(text)


_ENDS = {opening: Marks((closing,)) for opening, closing in REASONING_TAGS}


class TextToolCalls:
    """Takes the tool calls out of a reply as it arrives.

    `add` takes a piece of text and returns what is surely no call; `end` returns the rest that is no call. Then
    `calls` has the calls, in order, and `is_cut` says whether the reply ended inside one, at its limit of tokens. What
    stands in a thought is no call: between the tags of one, behind a tag that nothing closes, and in front of one that
    nothing opens, as the prompt of many models ends in the opening tag.

    Args:
        schemas: The parameters of the tools there are, by name: only these are recognised in a reply that is nothing
            but calls, and they say of which types the arguments are where a format has none.
        format: The format of the model; None recognises every one.
    """

    def __init__(self, schemas: Schemas, format: str | None = None) -> None:
        self.calls: list[ToolCall] = []
        self.is_cut = False
        self._schemas = schemas
        self._format = format
        self._forms = forms_of(format)
        self._marks = _marks(format)
        self._held: list[str] = []
        self._has_opened = False
        self._has_text = False
        """Whether there is any text but thoughts."""
        self._is_blank = True
        """Whether all that is held back is white space."""
        self._thought_end: Marks | None = None
        """What ends the thought that is being written."""

    def add(self, text: str) -> str:
        """Take a piece of the reply, and return what of it can be shown."""
        if self._has_opened or (self._is_blank and not text.strip()):
            self._held.append(text)
            return ""
        self._is_blank = False
        text = "".join([*self._held, text])
        keep = self._shown(text)
        self._held = [text[keep:]]
        self._is_blank = keep < len(text) and not self._has_opened and text[keep:].isspace()
        return text[:keep]

    def _shown(self, text: str) -> int:
        """Return up to where a text is surely no call."""
        at = 0
        while True:
            if self._thought_end is not None:
                if (end := self._thought_end.pattern.search(text, at)) is None:
                    return self._thought_end.partial_start(text, at)
                at = end.end()
                self._thought_end = None
            if not self._has_text and _is_bare(text, at):
                self._has_opened = True
                return at
            mark = self._marks.pattern.search(text, at)
            keep = self._marks.partial_start(text, at) if mark is None else mark.start()
            self._has_text = self._has_text or bool(text[at:keep].strip())
            if mark is None or mark[0] not in _THOUGHT_TAGS:
                self._has_opened = mark is not None
                # White space before a call is not text.
                return keep if self._has_text else at
            at = mark.end()
            self._thought_end = _ENDS.get(mark[0])
            # A tag that only closes: all before it was a thought, which the prompt opened.
            if mark[0] in _CLOSINGS:
                self._has_text = False

    @property
    def held(self) -> str:
        """What is held back: a call may begin there."""
        return "".join(self._held)

    def end(self, *, at_limit: bool = False) -> str:
        """Return what was held back and is no call; without half a call where the reply is `at_limit` of its tokens."""
        reply = ReplyText(self.held, self._schemas)
        text = reply.text
        self._held.clear()
        if self._thought_end is not None:
            return text
        if not self._has_text and self._take_bare(reply, at_limit=at_limit):
            return ""
        left: list[str] = []
        calls: list[ToolCall] = []
        unread: list[int] = []
        start = at = 0
        while (mark := self._marks.pattern.search(text, at)) is not None:
            at = mark.end()
            if mark[0] in _CLOSING:
                end = reply.find(_CLOSING[mark[0]], at)
                at = len(text) if end < 0 else end + len(_CLOSING[mark[0]])
            elif mark[0] in _CLOSINGS:
                # All before it was a thought, which the prompt opened.
                left, calls, unread, start = [], [], [], 0
            elif (found := self._read(reply, mark.start())) is not None:
                left.append(text[start : mark.start()])
                calls += found[0]
                unread, start = [], found[1]
                at = start
            else:
                unread.append(mark.start())
        self.calls += calls
        if at_limit and (cut := self._cut_at(text, unread, at)) is not None:
            self.is_cut = True
            text = text[: max(cut, start)]
        rest = "".join([*left, text[start:]])
        if rest.strip() or not calls:
            return rest
        return ""

    def _take_bare(self, reply: ReplyText, *, at_limit: bool) -> bool:
        """Take a reply that is nothing but calls, or a list of them that was cut; return False for any other."""
        readers = bare_readers(self._format)
        for read in readers:
            if (found := try_read(read, reply, 0)) is not None:
                self.calls += found[0]
                return True
        self.is_cut = at_limit and is_cut_list(reply.text, self._schemas, may_be_python=only_python in readers)
        return self.is_cut

    def _cut_at(self, text: str, unread: list[int], start: int) -> int | None:
        """Return where a call begins that the end of the text cuts; None if it cuts no call."""
        for at in unread[:_MAX_OPENINGS]:
            if is_cut_call(text, at, self._forms):
                return at
        begun = self._marks.partial_start(text, start)
        is_opening = any(form.opening.startswith(text[begun:]) for form in self._forms)
        if len(text) - begun >= _MIN_OPENING and is_opening:
            return begun
        return None

    def _read(self, reply: ReplyText, at: int) -> Calls | None:
        """Return the calls that open at `at`, and where they end; None when they are not well formed."""
        for form in self._forms:
            if not reply.text.startswith(form.opening, at):
                continue
            reply.opening = form.opening
            reply.passed.clear()
            found = try_read(form.read, reply, at + len(form.opening) - form.kept)
            if found is not None and (end := _closed(reply.text, form, found[1])) is not None:
                return Calls(found.calls, end)
            reply.bury_passed()
        return None


def _is_bare(text: str, at: int) -> bool:
    """Return whether JSON or a list of calls may begin here, which may be all of a reply."""
    at = skip(text, at)
    is_thought = any(opening.startswith(text[at : at + len(opening)]) for opening in _CLOSING)
    return text[at : at + 1] in ("{", "[") and not is_thought


def _closed(text: str, form: Form, end: int) -> int | None:
    """Return the end of calls that are read up to `end`; None where they have to be closed there, and are not."""
    after = end_of(_SKIPPED, text, end)
    if form.closing and text.startswith(form.closing, after):
        return after + len(form.closing)
    if not form.closing or form.may_stay_open or after == len(text):
        return end
    return None


@lru_cache(maxsize=32)
def _marks(format: str | None) -> Marks:
    """Return what opens calls in a format, and what stands around thoughts."""
    return Marks({form.opening for form in forms_of(format)} | _THOUGHT_TAGS)
