"""The messages that prompts make: a section is the rendering of one message, its fragments those of its prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.templates.rendered import Join, Rendered
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["NOTHING", "SEPARATOR", "Fragment", "Section", "to_parts"]

NOTHING = Rendered.from_text("")
"""A rendering of nothing."""

SEPARATOR = "\n\n"
"""What stands between the prompts of one message."""


Fragment: TypeAlias = tuple[str, BasePrompt, Rendered, tuple[Any, ...] | None]
"""Path, prompt, its rendering, and the inputs it was rendered from where they can be recognised."""


class Section(Rendered):
    """The rendering of one message: its fragments, with blank lines between those that are not empty."""

    __slots__ = ("fragments", "label")

    def __init__(self, fragments: Sequence[Fragment], label: str) -> None:
        self.fragments = fragments
        self.label = label
        texts: list[str] = []
        self.media = ()
        for _, _, rendered, _ in fragments:
            if text := rendered.text:
                texts.append(text)
                if rendered.media:
                    self.media += rendered.media
        self.text = SEPARATOR.join(texts)
        self._is_defused = False  # no media marker can form across a blank line
        self._derived = {}  # filled at once: its tokens are counted, and its message is written

    @property
    def is_trusted(self) -> bool:
        """Whether all fragments are."""
        return all(rendered.is_trusted for _, _, rendered, _ in self.fragments)

    def _pieces(self, prompt: str) -> Iterator[Segment]:
        shown = [(path, rendered) for path, _, rendered, _ in self.fragments if rendered.text]
        return Join(SEPARATOR, shown, self.label).segments(prompt)


def to_parts(rendered: Rendered) -> tuple[Part, ...]:
    """Cut a rendering at its markers into text and media parts."""
    parts: list[Any] = []
    buffer: list[str] = []
    for segment in rendered.segments():
        if segment.media is None:
            buffer.append(segment.text)
            continue
        if text := "".join(buffer):
            parts.append(Text(text))
        buffer.clear()
        parts.append(segment.media)
    if text := "".join(buffer):
        parts.append(Text(text))
    return tuple(parts)
