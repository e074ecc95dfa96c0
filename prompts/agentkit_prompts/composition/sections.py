"""The messages that prompts make: a section is one message, and each of its fragments is one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.templates.rendered import JoinedSegments, Rendered
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["EMPTY", "SEPARATOR", "Fragment", "Section", "to_parts"]

SEPARATOR = "\n\n"
"""The text between the prompts of one message."""


class Fragment(NamedTuple):
    """The rendering of one prompt in a message."""

    path: str
    """Path of the prompt, such as `system[0]`."""
    prompt: BasePrompt
    rendered: Rendered


class Section(Rendered):
    """The rendering of one message: its fragments, with blank lines between those that have text.

    Attributes:
        fragments: The renderings of its prompts, in order.
        label: Name of the message, such as `system`.
    """

    __slots__ = ("fragments", "label")

    def __init__(self, fragments: Sequence[Fragment], label: str) -> None:
        self.fragments = fragments
        self.label = label
        shown = [(fragment.path, fragment.rendered) for fragment in fragments if fragment.rendered.text]
        media = tuple([part for _, rendered in shown for part in rendered.media])
        text = SEPARATOR.join([rendered.text for _, rendered in shown])
        super().__init__(text, media, JoinedSegments(shown, SEPARATOR, label))


EMPTY = Section((), "")
"""The section of a message without prompts."""


def to_parts(rendered: Rendered) -> tuple[Part, ...]:
    """Cut a rendering at its markers into text and media parts."""
    parts: list[Part] = []
    texts: list[str] = []
    for segment in rendered.segments():
        if segment.media is None:
            texts.append(segment.text)
            continue
        if texts:
            parts.append(Text("".join(texts)))
            texts = []
        parts.append(segment.media)  # type: ignore[arg-type]  # its class is one of the four kinds
    if texts:
        parts.append(Text("".join(texts)))
    return tuple(parts)
