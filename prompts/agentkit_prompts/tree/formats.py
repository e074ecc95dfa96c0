"""The text and media that a prompt class of the TFRobot document returns, as a rendering."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentkit_prompts.context.parts import Audio, File, Image, Media, Video
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import FromSegments, Rendered
from agentkit_prompts.templates.spans import Segment

__all__ = ["from_multimodal"]

_MARKER = re.compile(r"<\|media:(\w+):([^|]+)\|>")
_KINDS: dict[str, type[Media]] = {"image": Image, "audio": Audio, "video": Video, "file": File}


def from_multimodal(kind: str, given: Any, trust: Trust) -> Rendered:
    """Make a rendering of what `format_2_multimodal` returned; media that no marker in the text uses come last."""
    where = f"{kind}.format_2_multimodal"
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
