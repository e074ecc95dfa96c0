"""Types of text with a special meaning in templates, and `Site`. This module does not import Jinja, which is slow."""

from __future__ import annotations

from typing import NamedTuple

from agentkit_prompts.context.parts import Media
from agentkit_prompts.context.trusted import Trusted

__all__ = ["Composed", "MediaText", "RenderedText", "Site", "Trusted"]


class RenderedText(str):
    """Text of rendered prompts that is a value of another template; `rendered` is the rendering with its origins."""

    __slots__ = ("rendered",)
    rendered: object

    def __new__(cls, text: str, rendered: object = None) -> RenderedText:
        self = super().__new__(cls, text)
        self.rendered = rendered
        return self


class Composed(str):
    """Result of a macro or set block that contains rendered text. Its media markers are real; others are broken."""

    __slots__ = ()


class MediaText(str):
    """Marker of a media part in the output, with the part."""

    __slots__ = ("media",)
    media: Media

    def __new__(cls, media: Media) -> MediaText:
        self = super().__new__(cls, media.marker)
        self.media = media
        return self


class Site(NamedTuple):
    """One `{{ }}` of a template."""

    line: int
    """Line in the file, counted from 1."""
    pointer: str
    """Path of the value in the context, such as `documents[{0}].text`; `{k}` is the index of the k-th loop.
    Empty if the expression is more than a path."""
    roots: tuple[str, ...]
    """Context names on which the value can depend, sorted."""

    @property
    def nested(self) -> bool:
        """True if the value depends on rendered prompts only."""
        return self.roots == ("wrapped_str",)
