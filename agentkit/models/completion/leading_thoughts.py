"""Extraction of the thinking blocks at the start of a reply as it arrives."""

from __future__ import annotations

from agentkit.models.completion.text_tool_calls import Marks
from agentkit_prompts.chat_templates.reasoning_tags import REASONING_TAGS
from agentkit_prompts.chat_templates.tool_calls.reply_text import skip

_OPENINGS = Marks([opening for opening, _ in REASONING_TAGS])
_ENDS = {opening: Marks([closing]) for opening, closing in REASONING_TAGS}
_ANY_END = Marks([closing for _, closing in REASONING_TAGS])
_BETWEEN = "\n\n"


class LeadingThoughts:
    """Extracts the thinking blocks at the start of a reply: texts between the tags of `REASONING_TAGS`.

    `add` reads a piece of text and returns the text outside the thinking blocks; `thoughts` contains the pieces of the
    thinking. White space around a block is removed before the text, and a blank block is ignored. Tags after other text
    are text.

    Args:
        is_open: True if the prompt ends in an opening tag, so that the reply starts inside a block.
    """

    def __init__(self, *, is_open: bool) -> None:
        self._is_opened = is_open
        """True if the prompt has opened a block that the reply has not continued yet."""
        self._end: Marks | None = None
        """Closing tags of the current block; None outside of a block."""
        self._has_ended = False
        """True after the end of a block, also of a blank block."""
        self._is_over = False
        """True after the start of the text outside the blocks."""
        self._held: list[str] = []
        """White space, or the start of a tag."""
        self._written: list[str] = []
        """The current block, with its opening tag."""
        self._is_blank = True
        """True if the current block is white space so far."""
        self.thoughts: list[str] = []
        self._before = 0
        """Number of pieces of the blocks before the current block."""

    @property
    def is_open(self) -> bool:
        """True inside a block."""
        return self._end is not None or self._is_opened

    def add(self, text: str) -> str:
        """Read a piece of the reply, and return the text outside the thinking blocks."""
        if self._is_over:
            return text
        if self._end is None and not text.strip():
            self._held.append(text)
            return ""
        text = "".join([*self._held, text])
        self._held.clear()
        at = 0
        while at < len(text) and not self._is_over:
            at = self._read_outside(text, at) if self._end is None else self._read_block(text, at, self._end)
        return text[at:]

    def end(self) -> str:
        """Return the rest of the text; a block without a closing tag is text."""
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

    def _read_outside(self, text: str, start: int) -> int:
        """Read an opening tag at a position if it is complete, and return the position of the next text."""
        at = skip(text, start)
        tag = _OPENINGS.pattern.match(text, at)
        if tag is not None:
            self._open(text[start : tag.end()], _ENDS[tag[0]])
            return tag.end()
        if _OPENINGS.partial_start(text, at) == at:
            self._held.append(text[start:])
            return len(text)
        if self._is_opened:
            self._open("", _ANY_END)
            return start
        self._is_over = True
        if self._has_ended:
            return at
        return start

    def _open(self, tag: str, end: Marks) -> None:
        """Start a block."""
        self._is_opened = False
        self._end, self._written, self._is_blank, self._before = end, [tag], True, len(self.thoughts)

    def _read_block(self, text: str, start: int, ends: Marks) -> int:
        """Read the current block up to its end, and return the position of the next text."""
        end = ends.pattern.search(text, start)
        if end is None:
            stop = ends.partial_start(text, start)
            self._add_thinking(text[start:stop])
            self._held.append(text[stop:])
            return len(text)
        self._add_thinking(text[start : end.start()])
        self._end, self._has_ended = None, True
        return end.end()

    def _add_thinking(self, thought: str) -> None:
        self._written.append(thought)
        if self._is_blank and thought.strip():
            self._is_blank = False
            thought = "".join(self._written[1:])
            if self.thoughts:
                thought = _BETWEEN + thought
        if not self._is_blank:
            self.thoughts.append(thought)
