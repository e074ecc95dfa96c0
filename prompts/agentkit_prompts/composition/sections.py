"""The messages that prompts make: a section is the rendering of one message, its fragments those of its prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.templates.origins import Join
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["NOTHING", "SEPARATOR", "AtOnce", "Fragment", "Section", "to_parts"]

NOTHING = Rendered.from_text("")
"""A rendering of nothing."""

SEPARATOR = "\n\n"
"""What stands between the prompts of one message."""


class Fragment(NamedTuple):
    """The rendering of one prompt, and the inputs it was rendered from."""

    path: str
    prompt: BasePrompt
    rendered: Rendered
    inputs: tuple[Any, ...] | None


class AtOnce(Rendered):
    """Text that a prompt knew without rendering; rendered when somebody asks where it is from."""

    __slots__ = ("_ctx", "_prompt")

    def __init__(self, text: str, prompt: BasePrompt, ctx: PromptContext) -> None:
        self.text = text
        self.media = ()
        self._prompt = prompt
        self._ctx = ctx
        self._count = self.wire = self.roleless = self._derived = None

    @property
    def is_vouched_for(self) -> bool:
        """Nobody vouches for what a user says."""
        return False

    def segments(self, prompt: str = "") -> Iterator[Segment]:
        """Yield the text in order, cut where its origin changes."""
        return self._prompt.rendered(self._ctx).segments(prompt)


class Section(Rendered):
    """The rendering of one message: its fragments, with blank lines between those that say something."""

    __slots__ = ("fragments", "label")

    def __init__(self, fragments: Sequence[Fragment], label: str) -> None:
        self.fragments = fragments
        self.label = label
        texts: list[str] = []
        media: tuple[Media, ...] = ()
        for _, _, rendered, _ in fragments:
            if rendered.text:
                texts.append(rendered.text)
                if rendered.media:
                    media += rendered.media
        self.text = SEPARATOR.join(texts)
        self.media = media
        self._count = self.wire = self.roleless = self._derived = None

    def segments(self, prompt: str = "") -> Iterator[Segment]:
        """Yield the text in order, cut where its origin changes."""
        shown = [(fragment.path, fragment.rendered) for fragment in self.fragments if fragment.rendered.text]
        return Join(SEPARATOR, shown, self.label).segments(prompt)

    @property
    def is_vouched_for(self) -> bool:
        """Whether all of its fragments are."""
        return all(fragment.rendered.is_vouched_for for fragment in self.fragments)


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
