"""Messages rendered from prompts: a section is one message, and each of its fragments is one prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tree.prompt import BasePrompt

SEPARATOR = "\n\n"
"""The text between the prompts of one message."""


class Fragment(NamedTuple):
    """The rendering of one prompt in a message."""

    path: str
    """Path of the prompt, such as `system[0]`."""
    prompt: BasePrompt
    rendered: Rendered


class Section(Rendered):
    """The rendering of one message: its fragments, joined with blank lines; fragments without text are left out.

    Attributes:
        fragments: The rendered prompts of the message, in order.
        label: Name of the message, such as `system`.
        role: Role of the message.
    """

    __slots__ = ("fragments", "label", "role")

    def __init__(self, fragments: Sequence[Fragment], label: str) -> None:
        self.fragments = fragments
        self.label = label
        self.role: Literal["system", "user"] = "system" if label == "system" else "user"
        media: tuple[Media, ...] = ()
        for fragment in fragments:
            if fragment.rendered.media:
                media += fragment.rendered.media
        # No media marker can form across fragments, because blank lines are between them.
        self.text = SEPARATOR.join([text for _, _, rendered in fragments if (text := rendered.text)])
        self.media = media
        self._segments = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Section, (self.fragments, self.label)

    def _make_segments(self) -> Iterator[Segment]:
        separator = Segment("", prompt=self.label)
        for path, _, rendered in self.fragments:
            if rendered.text:
                yield separator
                separator = Segment(SEPARATOR, prompt=self.label)
                yield from rendered.segments(path)


EMPTY = Section((), "")
"""The section of a message without prompts."""


def to_parts(rendered: Rendered) -> tuple[Part, ...]:
    """Split a rendering at its media markers into text and media parts."""
    parts: list[Part] = []
    texts: list[str] = []
    for segment in rendered.segments():
        if segment.media is None:
            texts.append(segment.text)
            continue
        # Neighbouring texts become one part, because some servers reject a message with two text parts.
        if texts:
            parts.append(Text("".join(texts)))
            texts = []
        parts.append(segment.media)  # type: ignore[arg-type]  # its class is one of the four kinds
    if texts:
        parts.append(Text("".join(texts)))
    return tuple(parts)
