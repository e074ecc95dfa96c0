"""Conversion of the results of the `format_2_*` methods of custom prompt classes to renderings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentkit_prompts.context.parts import Audio, File, Image, Media, Video
from agentkit_prompts.context.prompt_context import Trust
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import Segment

_MARKER = re.compile(r"<\|media:(\w+):([^|]+)\|>")
_KINDS: dict[str, type[Media]] = {"image": Image, "audio": Audio, "video": Video, "file": File}


def from_text(method: str, result: Any, trust: Trust) -> Rendered:
    """Return the rendering of a result of `format_2_str`; `method` is the name of the method in errors.

    Raises:
        PromptError: The result is not text.
    """
    if not isinstance(result, str):
        returned = type(result).__name__
        raise PromptError(f"{method} must return str, got {returned}", name=method, value=returned)
    return Rendered.from_text(result, trust=trust)


def from_multimodal(method: str, result: Any, trust: Trust) -> Rendered:
    """Return the rendering of a result of `format_2_multimodal`. Media without a marker in the text follow the text.

    Raises:
        PromptError: The result is not a tuple of text and media.
    """
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str)):
        returned = type(result).__name__
        raise PromptError(f"{method} must return text and media, got {returned}", name=method, value=returned)
    text, table = result
    media = dict(_media_of(table, method))
    used: set[tuple[str, str]] = set()
    segments: list[Segment] = []
    start = 0
    for marker in _MARKER.finditer(text):
        key = (marker[1], marker[2])
        if key in media:
            segments.append(Segment(text[start : marker.start()], trust=trust))
            segments.append(Segment(media[key].marker, trust=trust, media=media[key]))
            used.add(key)
            start = marker.end()
    segments.append(Segment(text[start:], trust=trust))
    for key, part in media.items():
        if key not in used:
            segments.append(Segment(part.marker, trust=trust, media=part))
    return Rendered.from_segments(segments)


def _media_of(table: Any, method: str) -> Iterator[tuple[tuple[str, str], Media]]:
    """Yield the media parts of a table of payloads, each after its kind and id."""
    if not (isinstance(table, Mapping) and all(isinstance(payloads, Mapping) for payloads in table.values())):
        returned = type(table).__name__
        raise PromptError(
            f"{method} must return media as kind -> id -> payload, got {returned}", name=method, value=returned
        )
    for kind, payloads in table.items():
        if kind not in _KINDS:
            raise PromptError(
                f"{method}: unknown media kind {kind!r}; valid kinds: {', '.join(_KINDS)}",
                name=method,
                value=str(kind),
            )
        for name, payload in payloads.items():
            yield (kind, str(name)), _KINDS[kind](payload)
