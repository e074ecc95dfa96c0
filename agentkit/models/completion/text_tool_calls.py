"""Parser of tool calls that a local model writes into its text, in the format of its chat template.

The formats are defined in `agentkit_prompts.chat_templates.tool_calls`. Other text stays text, and so does a call in
a thinking block.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import lru_cache

from agentkit.models.completion.broken_calls import broken_call, named_tool
from agentkit.models.http.json_end import is_json
from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from agentkit_prompts.chat_templates.tool_calls.calls_at import calls_at
from agentkit_prompts.chat_templates.tool_calls.cut_calls import (
    begins_call,
    closed_end,
    is_cut_call,
    is_cut_list,
    names_tool,
    names_tool_last,
)
from agentkit_prompts.chat_templates.tool_calls.formats import TAGGED_FORMATS, bare_readers, forms_of
from agentkit_prompts.chat_templates.tool_calls.json_calls import json_goes_on, leading_json_end
from agentkit_prompts.chat_templates.tool_calls.python_calls import only_python
from agentkit_prompts.chat_templates.tool_calls.reply_text import Calls, ReplyText, Schemas, skip, try_read
from agentkit_prompts.context.messages import ToolCall

_LINE_END = re.compile(r"[^\S\n]*+(?:\n|\Z)")
_CLOSING = dict(REASONING_TAGS)
_CLOSINGS = frozenset(_CLOSING.values())
_THOUGHT_TAGS = _CLOSINGS | _CLOSING.keys()
_MIN_OPENING = 5
"""Minimum characters of an incomplete opening tag that is recognised at the end of a reply."""
_MAX_OPENINGS = 20
"""Maximum number of unreadable calls that are checked, because each check may walk the whole reply."""


class Marks:
    """Texts that divide a reply: `pattern` matches the longest mark, `partial_start` finds an incomplete mark."""

    __slots__ = ("_firsts", "_longest", "_ordered", "pattern")

    def __init__(self, marks: Collection[str]) -> None:
        self._ordered = sorted(marks)
        self._firsts = frozenset(mark[0] for mark in marks)
        self._longest = max(map(len, marks))
        self.pattern = re.compile("|".join(map(re.escape, sorted(marks, key=lambda mark: (-len(mark), mark)))))

    def partial_start(self, text: str, start: int) -> int:
        """Return the position, at least `start`, of an incomplete mark at the end of a text; else the text length."""
        for at in range(max(start, len(text) - self._longest + 1), len(text)):
            if text[at] not in self._firsts:
                continue
            tail = text[at:]
            position = bisect_left(self._ordered, tail)
            if position < len(self._ordered) and self._ordered[position].startswith(tail):
                return at
        return len(text)


_ENDS = {opening: Marks((closing,)) for opening, closing in REASONING_TAGS}


class TextToolCalls:
    """Extracts the tool calls from a reply as it arrives.

    `add` reads a piece of text and returns the text that cannot be part of a call; `end` returns the rest of the text.
    Then `calls` contains the calls, in order, `unreadable` the texts of calls that cannot be read, and `is_cut` is true
    if the token limit has cut a call. Arguments that are nearly JSON are unchanged: their tool refuses or repairs them.
    Thinking contains no calls: the text between thinking tags, after an opening tag that is not closed, and before a
    closing tag that is not opened, because the prompt of many models ends in the opening tag.

    Args:
        schemas: Parameters of the known tools, by name. A reply that consists only of calls may call only known tools;
            in formats without types the parameters determine the types of the arguments.
        format: The format of the model; None recognises every format.
    """

    def __init__(self, schemas: Schemas, format: str | None = None) -> None:
        self.calls: list[ToolCall] = []
        self.is_cut = False
        self.unreadable: list[str] = []
        """Texts of the calls that cannot be read; the visible text contains them."""
        self._schemas = schemas
        self._format = format
        self._forms = forms_of(format)
        self._marks = _marks(format)
        self._held: list[str] = []
        self._has_opened = False
        self._has_text = False
        """True if the reply contains text besides thinking."""
        self._is_blank = True
        """True if the held-back text is white space."""
        self._before = "\n"
        """Last character of the visible text before the held-back text; a line end at the start."""
        self._thought_end: Marks | None = None
        """Closing tag of the current thinking block."""

    def add(self, text: str) -> str:
        """Read a piece of the reply, and return its visible text."""
        if self._has_opened or (self._is_blank and not text.strip()):
            self._held.append(text)
            return ""
        self._is_blank = False
        text = "".join([*self._held, text])
        end = self._visible_end(text)
        self._before = text[end - 1 : end] or self._before
        self._held = [text[end:]]
        self._is_blank = end < len(text) and not self._has_opened and text[end:].isspace()
        return text[:end]

    def _visible_end(self, text: str) -> int:
        """Return the position up to which a text cannot be part of a call."""
        start = 0
        while True:
            if self._thought_end is not None:
                if (closing := self._thought_end.pattern.search(text, start)) is None:
                    return self._thought_end.partial_start(text, start)
                start = closing.end()
                self._thought_end = None
            if not self._has_text and _may_be_bare(text, start):
                self._has_opened = True
                return start
            mark = self._marks.pattern.search(text, start)
            if mark is None or mark[0] not in _THOUGHT_TAGS:
                return self._end_before(mark, text, start)
            self._has_text = self._has_text or bool(text[start : mark.start()].strip())
            start = mark.end()
            self._thought_end = _ENDS.get(mark[0])
            # A closing tag without an opening tag ends the thinking that the prompt has opened.
            if mark[0] in _CLOSINGS:
                self._has_text = False

    def _end_before(self, mark: re.Match[str] | None, text: str, start: int) -> int:
        """Return the end of the visible text before the opening tag of a call, or before an incomplete mark."""
        self._has_opened = mark is not None
        end = self._marks.partial_start(text, start) if mark is None else mark.start()
        self._has_text = self._has_text or bool(text[start:end].strip())
        if self._has_text:
            return end
        # White space before a call is not text.
        return start

    @property
    def held(self) -> str:
        """Held-back text, in which a call may start."""
        return "".join(self._held)

    def end(self, *, at_limit: bool = False) -> str:
        """Return the rest of the visible text; with `at_limit` without the tool call that the token limit has cut."""
        reply = ReplyText(self.held, self._schemas)
        self._held.clear()
        if self._thought_end is not None:
            return reply.text
        if self._has_text:
            return self._read_marked(reply, 0, at_limit=at_limit)
        text = self._read_bare(reply, at_limit=at_limit)
        if text is not None:
            return text
        # The texts of JSON at the start of a reply can quote calls.
        return self._read_marked(reply, leading_json_end(reply.text), at_limit=at_limit)

    def _read_marked(self, reply: ReplyText, at: int, *, at_limit: bool) -> str:
        """Read the calls between tags from a place on, and return the text outside the calls."""
        text = reply.text
        texts: list[str] = []
        calls: list[ToolCall] = []
        unread: list[int] = []
        damaged: list[tuple[int, int]] = []
        starts: list[int] = []
        cut: int | None = None
        start = 0
        while (mark := self._marks.pattern.search(text, at)) is not None:
            at = mark.end()
            if mark[0] in _CLOSING:
                at = _thought_end(reply, _CLOSING[mark[0]], at)
            elif mark[0] in _CLOSINGS:
                # The text before was thinking, which the prompt has opened.
                texts, calls, unread, damaged, start = [], [], [], [], 0
            elif (block := self._calls_at(reply, mark.start())) is not None:
                texts.append(text[start : self._opening_before(text, unread, mark.start())])
                calls += block[0]
                starts.append(mark.start())
                unread, start = [], block[1]
                at = start
            elif at_limit and reply.has_open_value:
                # The limit has cut a value, which may quote the calls after its start.
                cut = mark.start()
                break
            else:
                unread.append(mark.start())
                at = self._quotes_end(reply, mark, len(damaged))
                damaged.append((mark.start(), at))
        self.calls += calls
        if cut is None and at_limit:
            cut = self._cut_at(reply, unread, at)
        if cut is not None:
            self.is_cut = True
            text = text[: max(cut, start)]
        else:
            self.unreadable += self._unreadable_calls(reply, damaged, starts)
        rest = "".join([*texts, text[start:]])
        if rest.strip() or not calls:
            return rest
        return ""

    def _read_bare(self, reply: ReplyText, *, at_limit: bool) -> str | None:
        """Read a reply that consists only of calls, and return its visible text; None for another reply."""
        readers = bare_readers(self._format)
        for read in readers:
            if (block := try_read(read, reply, 0)) is not None:
                self.calls += block[0]
                return ""
        may_be_python = only_python in readers
        is_call = names_tool(reply.text, self._schemas, may_be_python=may_be_python)
        if not is_call and names_tool_last(reply.text, self._schemas):
            # JSON that is not a call is an answer.
            is_call = not is_json(reply.text)
        if not is_call:
            return None
        call = None
        if not at_limit:
            call = self._broken_call(reply.text)
        elif is_cut_list(reply.text, self._schemas, may_be_python=may_be_python):
            self.is_cut = True
            return ""
        if call is not None:
            self.calls.append(call)
            return ""
        self.unreadable.append(reply.text)
        # Other calls can follow a complete value; in a call without an end they are quotes.
        return None if leading_json_end(reply.text) else reply.text

    def _opening_before(self, text: str, unread: Sequence[int], at: int) -> int:
        """Return the start of an opening around a call that starts at `at`; `at` if the call has no such opening."""
        if unread and self._marks.pattern.fullmatch(text[unread[-1] : at].rstrip()):
            return unread[-1]
        return at

    def _calls_at(self, reply: ReplyText, at: int) -> Calls | None:
        """Return the calls that start at a place, and their end; None if they cannot be read."""
        calls = calls_at(reply, at, self._forms)
        if calls is not None:
            return calls
        end = self._call_end(reply, at)
        # The text up to the next opening is searched only once.
        following = self._marks.pattern.search(reply.text, at + 1)
        if end is None or (following is not None and following.start() < end):
            return None
        call = self._broken_call(reply.text[at:end])
        return None if call is None else Calls([call], end)

    def _broken_call(self, text: str) -> ToolCall | None:
        """Return a call with arguments that are nearly JSON."""
        if self._format in TAGGED_FORMATS:
            return None
        return broken_call(text, self._schemas)

    def _call_end(self, reply: ReplyText, at: int) -> int | None:
        """Return the end of the call that opens at a place; None if the call is not closed."""
        end = closed_end(reply, at, self._forms)
        if end is None and any(not form.closing and reply.text.startswith(form.opening, at) for form in self._forms):
            return len(reply.text)
        return end

    def _quotes_end(self, reply: ReplyText, opening: re.Match[str], number: int) -> int:
        """Return the end of the text in which calls are values of the unreadable call that opens here.

        A sentence can contain an opening, and a model can write an opening twice: calls after them are calls. `number`
        is the number of unreadable calls before this call.
        """
        text, start = reply.text, opening.end()
        following = self._marks.pattern.search(text, start)
        if following is None or not begins_call(text, opening.start(), self._forms):
            return start
        head = text[start : following.start()].strip()
        if not head:
            return start
        if number < _MAX_OPENINGS and head.startswith(("{", "[")) and json_goes_on(text, skip(text, start)):
            return len(text)
        end = closed_end(reply, opening.start(), self._forms)
        if end is not None:
            return end
        # The readers of calls between tags recognise a value without an end.
        is_open = reply.has_open_value or (not head.startswith("<") and named_tool(head, self._schemas) is not None)
        return len(text) if is_open else start

    def _unreadable_calls(
        self, reply: ReplyText, places: Sequence[tuple[int, int]], starts: Sequence[int]
    ) -> list[str]:
        """Return the texts of calls that cannot be read, and open at `places`, each with the end of its quotes.

        A sentence can name the opening of a call, and an opening can be around a call that starts at one of `starts`.
        """
        text = reply.text
        calls: list[str] = []
        end = 0
        for at, quotes_end in places:
            if at < end or not begins_call(text, at, self._forms):
                continue
            end = max(quotes_end, self._call_end(reply, at) or len(text))
            following = bisect_left(starts, at)
            if following < len(starts) and starts[following] < end:
                continue
            # A sentence continues after a call that it only mentions; a block of lines is no mention.
            if _LINE_END.match(text, end) is None and not self._is_block(text, at, end):
                continue
            is_first = at == places[0][0] and not self._has_text
            if (is_first and not text[end:].strip()) or named_tool(text[at:end], self._schemas) is not None:
                calls.append(text[at:end])
        return calls

    def _is_block(self, text: str, start: int, end: int) -> bool:
        """True if a part of the held-back text consists of several lines and starts a line."""
        before = text[start - 1] if start else self._before
        return before == "\n" and text.find("\n", start, end) >= 0

    def _cut_at(self, reply: ReplyText, unread: list[int], start: int) -> int | None:
        """Return the start of the call that the end of the text cuts; None if no call is cut."""
        text = reply.text
        for at in unread[:_MAX_OPENINGS]:
            if is_cut_call(reply, at, self._forms):
                return at
        tail_start = self._marks.partial_start(text, start)
        is_opening = any(form.opening.startswith(text[tail_start:]) for form in self._forms)
        if len(text) - tail_start >= _MIN_OPENING and is_opening:
            return tail_start
        return None


def _thought_end(reply: ReplyText, closing: str, start: int) -> int:
    """Return the end of a thinking block; the end of the reply if the block is not closed."""
    end = reply.find(closing, start)
    if end < 0:
        return len(reply.text)
    return end + len(closing)


def _may_be_bare(text: str, at: int) -> bool:
    """True if JSON or a list of calls may start here, which may be the whole reply."""
    at = skip(text, at)
    is_thought = any(opening.startswith(text[at : at + len(opening)]) for opening in _CLOSING)
    return text[at : at + 1] in ("{", "[") and not is_thought


@lru_cache(maxsize=32)
def _marks(format: str | None) -> Marks:
    """Return the opening tags of calls in a format, and the tags of thinking blocks."""
    return Marks({form.opening for form in forms_of(format)} | _THOUGHT_TAGS)
