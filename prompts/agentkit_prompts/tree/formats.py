"""Prompt classes that override `format_2_str` and `format_2_multimodal`, as those of the TFRobot document do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agentkit_prompts.context.parts import Audio, File, Image, Media, Video
from agentkit_prompts.context.prompt_context import PromptContext, Trust
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import FromSegments, Plain, Rendered
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.templates.template import MediaTable, media_table

if TYPE_CHECKING:
    from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["complete"]

_WAYS = frozenset({"render", "format_2_str", "format_2_multimodal"})
_MARKER = re.compile(r"<\|media:(\w+):([^|]+)\|>")
_KINDS: dict[str, type[Media]] = {"image": Image, "audio": Audio, "video": Video, "file": File}


def complete(kind: type[BasePrompt], base: type[BasePrompt]) -> None:
    """Give a class those of `render` and `format_2_*` that it does not define, made from what it defines.

    So the most derived of the three is used everywhere. `super()` calls reach what the class above does.
    """
    definer = next(one for one in kind.__mro__ if not _WAYS.isdisjoint(vars(one)))
    if definer is not kind and issubclass(definer, base):
        return  # it has all three
    defined = _WAYS & vars(definer).keys()

    def render(self: BasePrompt, ctx: PromptContext) -> Rendered:
        if "format_2_multimodal" in defined:
            return _from_multimodal(kind, kind.format_2_multimodal(self, ctx), self.trust)
        text = kind.format_2_str(self, ctx)
        if not isinstance(text, str):
            raise PromptError(f"{kind.__name__}.format_2_str must return str, got {type(text).__name__}")
        return Plain(text, trust=self.trust)

    def format_2_str(self: BasePrompt, ctx: PromptContext) -> str:
        return self.rendered_as(kind, ctx).plain

    def format_2_multimodal(self: BasePrompt, ctx: PromptContext) -> tuple[str, MediaTable]:
        rendered = self.rendered_as(kind, ctx)
        return rendered.text, media_table(rendered.media)

    for way in (render, format_2_str, format_2_multimodal):
        if way.__name__ not in defined:
            setattr(kind, way.__name__, way)


def _from_multimodal(kind: type[BasePrompt], given: Any, trust: Trust) -> Rendered:
    """Make a rendering of what `format_2_multimodal` returned; media that no marker in the text uses come last."""
    where = f"{kind.__name__}.format_2_multimodal"
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)):
        raise PromptError(f"{where} must return text and media, got {type(given).__name__}")
    text, table = given
    left = media = dict(_media(table, where))
    segments: list[Segment] = []
    start = 0
    for found in _MARKER.finditer(text):
        key = (found[1], found[2])
        if key in media:
            segments.append(Segment(text[start : found.start()], "", None, "", trust))
            segments.append(Segment(media[key].marker, "", None, "", trust, media[key]))
            left = {name: part for name, part in left.items() if name != key}
            start = found.end()
    segments.append(Segment(text[start:], "", None, "", trust))
    return FromSegments([*segments, *(Segment(part.marker, "", None, "", trust, part) for part in left.values())])


def _media(table: Any, where: str) -> Iterator[tuple[tuple[str, str], Media]]:
    if not (isinstance(table, Mapping) and all(isinstance(found, Mapping) for found in table.values())):
        raise PromptError(f"{where} must return media as kind -> id -> payload, got {type(table).__name__}")
    for kind, found in table.items():
        if kind not in _KINDS:
            raise PromptError(f"{where}: unknown kind of media {kind!r}; there are {', '.join(_KINDS)}")
        for name, payload in found.items():
            yield (kind, str(name)), _KINDS[kind](payload)
