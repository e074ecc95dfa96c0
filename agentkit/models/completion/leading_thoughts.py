"""The thoughts that a reply begins with, taken out of it as it arrives."""

from __future__ import annotations

from agentkit.models.completion.text_tool_calls import Marks
from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from agentkit_prompts.chat_templates.tool_calls.reply_text import skip

__all__ = ["LeadingThoughts"]

_OPENINGS = Marks([opening for opening, _ in REASONING_TAGS])
_ENDS = {opening: Marks([closing]) for opening, closing in REASONING_TAGS}
_ANY_END = Marks([closing for _, closing in REASONING_TAGS])
_BETWEEN = "\n\n"


class LeadingThoughts:
    """Takes the thoughts out of the beginning of a reply: what stands between the tags of `REASONING_TAGS`.

    `add` takes a piece of text and returns what is no thought; `thoughts` has the rest. White space around a thought is
    left out in front of the text, and a blank thought is no thought. Tags behind other text are text.

    Args:
        is_open: Whether the prompt ends in what opens a thought, so that the reply begins inside it.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._is_opened = is_open
        """Whether the prompt has opened a thought that the reply has not gone on with yet."""
        self._end: Marks | None = None
        """What ends the thought that is being written."""
        self._has_ended = False
        """Whether a thought has ended, be it a blank one."""
        self._is_over = False
        """Whether text has begun that is no thought."""
        self._held: list[str] = []
        """White space, or what may be half a tag."""
        self._written: list[str] = []
        """The thought that is being written, behind its tag."""
        self._is_blank = True
        """Whether it is white space so far."""
        self.thoughts: list[str] = []
        self._before = 0
        """How many of their pieces are of the thoughts before it."""

    @property
    def is_open(self) -> bool:
        """Whether a thought has begun that has no end yet."""
        return self._end is not None or self._is_opened

    def add(self, text: str) -> str:
        """Take a piece of the reply, and return what of it is no thought."""
        if self._is_over:
            return text
        if self._end is None and not text.strip():
            self._held.append(text)
            return ""
        text = "".join([*self._held, text])
        self._held.clear()
        at = 0
        while at < len(text) and not self._is_over:
            at = self._outside(text, at) if self._end is None else self._think(text, at, self._end)
        return text[at:]

    def end(self) -> str:
        """Return what was held back; a thought that nothing ends is the text of the reply."""
        text = "".join(self._held)
        self._held.clear()
        self._is_over = True
        if self._end is not None:
            text = "".join([*self._written, text])
            del self.thoughts[self._before :]
            self._end = None
        if self._has_ended:
            return text.lstrip()
        return text

    def _outside(self, text: str, start: int) -> int:
        """Look for a thought that begins at a place, and return where the text goes on."""
        at = skip(text, start)
        tag = _OPENINGS.pattern.match(text, at)
        if tag is not None:
            return self._open(text[start : tag.end()], _ENDS[tag[0]], tag.end())
        if _OPENINGS.partial_start(text, at) == at:
            self._held.append(text[start:])
            return len(text)
        if self._is_opened:
            return self._open("", _ANY_END, start)
        self._is_over = True
        if self._has_ended:
            return at
        return start

    def _open(self, written: str, end: Marks, at: int) -> int:
        self._is_opened = False
        self._end, self._written, self._is_blank, self._before = end, [written], True, len(self.thoughts)
        return at

    def _think(self, text: str, start: int, ends: Marks) -> int:
        """Take in a thought up to its end, and return where the text goes on."""
        end = ends.pattern.search(text, start)
        stop = ends.partial_start(text, start) if end is None else end.start()
        thought = text[start:stop]
        self._written.append(thought)
        if self._is_blank and thought.strip():
            self._is_blank = False
            thought = "".join([_BETWEEN if self.thoughts else "", *self._written[1:]])
        if not self._is_blank:
            self.thoughts.append(thought)
        if end is None:
            self._held.append(text[stop:])
            return len(text)
        self._end, self._has_ended = None, True
        return end.end()
