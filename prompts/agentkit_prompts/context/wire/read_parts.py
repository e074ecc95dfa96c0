"""Content parts and tool calls of every wire form, read into ours; what is wrong is noted with its place."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.parts import Audio, File, Image, Media, Part, Text, Url, Video
from agentkit_prompts.context.wire.sendable_media import FILE_ID, content_of, file_id_address
from agentkit_prompts.errors import MediaError, Problem, Problems
from agentkit_prompts.names import nearest
from agentkit_prompts.public_addresses import is_public

__all__ = ["PartReader", "plain_text_of"]

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Type of a part -> the key of its text."""
_MEDIA: dict[str, type[Image | Audio | Video | File]] = {
    **dict.fromkeys(("image", "image_url", "input_image"), Image),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), Audio),
    **dict.fromkeys(("video", "video_url", "input_video"), Video),
    **dict.fromkeys(("file", "file_url", "input_file", "document"), File),
}
_ADDRESS = ("url", "file_url", "image_url", "path")
_DATA = ("data", "file_data", "base64")
_INNER_NAMES = (
    *(".localhost", ".local", ".localdomain", ".internal", ".intranet", ".private", ".lan", ".home", ".home.arpa"),
    *(".corp", ".svc", ".test", ".example", ".invalid", ".onion"),
)
"""Endings of names that no public server has: reserved ones, and those that networks use inside."""
_READ = frozenset((*_ADDRESS, *_DATA, "type", "format", "media_type", "filename", "title", "file_id"))
"""Keys of a part, or of what it holds, that are read."""


class PartReader:
    """Reads content parts and tool calls of every wire form.

    Args:
        problems: Takes what is wrong.
        provider: Who wants unknown keys and file ids back.
        allow_media: Whether media may lie in a file of this machine, or at an address of another scheme than http,
            https and data, or of a host that is not public. Never for what comes from outside: a message that names
            a file would send it, and one that names an inner address would have a server of yours read it.
    """

    def __init__(self, problems: Problems, provider: str = "", *, allow_media: bool = False) -> None:
        self.problems = problems
        self.provider = provider
        self.allow_media = allow_media
        self.refused_calls = set[str]()
        """Ids of calls with which something is wrong."""

    def content(self, content: object, where: str) -> str | tuple[Part, ...]:
        """Return content as text or parts; nothing is no text."""
        if content is None:
            return ""
        if isinstance(content, str):
            return str.__str__(content)
        if not isinstance(content, list | tuple):
            self.problems.append(Problem(where, f"expected text or a list of parts, got {type(content).__name__}"))
            return ""
        found = [self.part(part, f"{where}[{index}]") for index, part in enumerate(content)]
        return tuple(part for part in found if part is not None)

    def part(self, part: object, where: str) -> Part | None:
        """Return a content part, or None when something is wrong with it."""
        if isinstance(part, str):
            return Text(str.__str__(part))
        if isinstance(part, Text | Media):
            return cast("Part", part)
        if not isinstance(part, Mapping):
            self.problems.append(Problem(where, f"expected text or a part, got {type(part).__name__}"))
            return None
        kind = part.get("type")
        if isinstance(kind, str) and kind in _TEXTS:
            key = _TEXTS[kind]
            if not isinstance(part.get(key), str):
                self.problems.append(Problem(f"{where}.{key}", _instead(part.get(key), "text")))
                return None
            left = self.extras(part, {"type", key}, where)
            made = str.__str__(part[key])
            return Text(
                made, kind="refusal" if kind == "refusal" else "text", opaque={self.provider: left} if left else {}
            )
        if not isinstance(kind, str) or kind not in _MEDIA:
            if isinstance(kind, str):
                hint = nearest(kind, [*_TEXTS, *_MEDIA])
                self.problems.append(Problem(where, f"unknown type {kind!r:.80}{hint}"))
            else:
                self.problems.append(Problem(f"{where}.type", _instead(kind, "text")))
            return None
        return self._media(part, kind, where)

    def calls(self, calls: object, where: str) -> tuple[ToolCall, ...]:
        """Return tool calls: ours, those of the chat form, or flat ones of a name and its arguments."""
        if calls is None:
            return ()
        if not isinstance(calls, list | tuple):
            self.problems.append(Problem(where, f"expected a list, got {type(calls).__name__}"))
            return ()
        found = [self.call(call, f"{where}[{index}]") for index, call in enumerate(calls)]
        return tuple(call for call in found if call is not None)

    def call(self, call: object, where: str) -> ToolCall | None:
        """Return a tool call, or None when something is wrong with it."""
        if isinstance(call, ToolCall):
            return call
        if not isinstance(call, Mapping):
            self.problems.append(Problem(where, f"expected a tool call, got {type(call).__name__}"))
            return None
        if "function" in call and not isinstance(call["function"], Mapping):
            self.problems.append(Problem(f"{where}.function", _instead(call["function"], "a mapping")))
            return None
        is_nested = "function" in call
        function: Mapping[str, Any] = call["function"] if is_nested else call
        place = f"{where}.function" if is_nested else where
        before = len(self.problems)
        name, identity = function.get("name"), call.get("call_id", call.get("id"))
        if not isinstance(name, str) or not name:
            self.problems.append(Problem(f"{place}.name", _instead(name, "text")))
        if not isinstance(identity, str | None):
            self.problems.append(Problem(f"{where}.id", _instead(identity, "text")))
        key = next((key for key in ("arguments", "input", "args", "parameters") if function.get(key) is not None), None)
        arguments = "{}" if key is None else _arguments(function[key], f"{place}.{key}", self.problems)
        known = {"id", "call_id", "type", "function", "name", "index", key or "arguments"}
        left = self.extras(call, known - {"id"} if "call_id" in call else known, where)
        if is_nested and (inside := self.extras(function, {"name", key or "arguments"}, place)):
            left["function"] = inside
        if len(self.problems) > before:
            self.refused_calls.add(identity if isinstance(identity, str) else "")
            return None
        return ToolCall(identity or "", str(name), arguments, opaque={self.provider: left} if left else {})

    def extras(self, data: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
        """Return what `data` holds under other keys than the `known` ones, empty values aside; it must be JSON.

        Anthropic's cache marks are left out: the composition places its own, and there may be few of them.
        """
        left: dict[str, Any] = {}
        for key, value in data.items():
            is_mark = key == "cache_control" and self.provider == "anthropic"
            if is_mark or key in known or value is None or value in ("", [], {}):
                continue
            if not isinstance(key, str):
                self.problems.append(Problem(where, f"keys must be text, got {key!r:.80}"))
            elif fits_json(value, f"{where}.{key}", self.problems):
                left[key] = value
        return left

    def _media(self, part: Mapping[str, Any], kind: str, where: str) -> Part | None:
        form = _MEDIA[kind]
        word = form.__name__.lower()
        key = next((key for key in (kind, "source", f"{word}_url", word) if part.get(key) is not None), "")
        held = part[key] if key else part
        place = f"{where}.{key}" if key else where
        fields: Mapping[str, Any] = held if isinstance(held, Mapping) else {"url": held}
        before = len(self.problems)
        source, media_type = self._source(fields, place, word)
        name = fields.get("filename") or part.get("title") or part.get("filename")
        for what, value in (("media_type", media_type), ("name", name)):
            if not isinstance(value, str | None):
                self.problems.append(Problem(place, f"{what}: {_instead(value, 'text')}"))
        left = self.extras(part, {*_READ, key}, where)
        if key and isinstance(held, Mapping) and (inside := self.extras(held, _READ, place)):
            left[key] = inside
        if len(self.problems) > before:
            return None
        try:
            made = form(cast("Any", source), media_type, name, opaque={self.provider: left} if left else {})
        except MediaError as error:
            self.problems.append(Problem(place, str(error)))
            return None
        if not self.allow_media and (why := _not_allowed(made.source)):
            self.problems.append(Problem(place, f"{why}: {source!r:.80}"))
        return made

    def _source(self, fields: Mapping[str, Any], where: str, word: str) -> tuple[object, str | None]:
        """Return the source of media, and its type where that is known."""
        media_type = fields.get("media_type")
        if media_type is None and isinstance(fields.get("format"), str):
            media_type = f"{word}/{fields['format']}"
        if isinstance(file_id := fields.get("file_id"), str) and file_id:
            return file_id_address(self.provider, file_id), None
        key = next((key for key in (*_DATA, *_ADDRESS) if fields.get(key) is not None), None)
        value = None if key is None else fields[key]
        if not isinstance(value, str) or not value:
            if key is None:
                self.problems.append(Problem(where, "names no address and no data"))
            else:
                self.problems.append(Problem(f"{where}.{key}", _instead(value, "text")))
            return None, None
        if key in _DATA and fields.get("type") == "text":
            return value.encode("utf-8", "surrogatepass"), media_type
        try:
            if value[:5].lower() == "data:":
                return content_of(File(cast("Any", value)))
            is_address = key in _ADDRESS or "://" in value[:16]
            return (value if is_address else base64.b64decode(value, validate=True)), media_type
        except (MediaError, ValueError) as error:
            why = str(error).rpartition(": ")[2] if isinstance(error, MediaError) else f"not base64 ({error})"
            self.problems.append(Problem(f"{where}.{key}", f"{why}: {value[:40]!r}"))
            return None, None


_ALLOW = "or allow_media=True for messages that you trust"


def _not_allowed(source: Path | Url | bytes) -> str:
    """Return why media from outside are not opened there; an empty text if they may be."""
    if isinstance(source, Path):
        return f"a path is not read from a message: give an address or data, {_ALLOW}"
    if isinstance(source, bytes) or source.scheme in ("data", FILE_ID):
        return ""
    if source.scheme not in ("http", "https"):
        return f"an address of this scheme is not opened from a message: give one of http or https, or data, {_ALLOW}"
    host = (source.host or "").strip("[]").rstrip(".").lower()
    try:
        allowed = is_public(ip_address(host))
    except ValueError:
        allowed = "." in host and not host.endswith(_INNER_NAMES)
    if allowed:
        return ""
    return f"an address of a host that is not public is not opened from a message: give data, {_ALLOW}"


def plain_text_of(part: object, where: str, problems: Problems) -> tuple[str, bool]:
    """Return a part as plain text, media as their alt text, and whether it is text. No file is read for it."""
    if isinstance(part, Mapping):
        text = next((part[key] for key in ("text", "alt") if isinstance(part.get(key), str)), None)
        if text is not None:
            return str(text), "text" in part
    unreadable: Problems = []
    found = PartReader(unreadable, allow_media=True).part(part, where)
    if isinstance(found, Text):
        return found.text, True
    if found is not None:
        return found.alt, False
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in _MEDIA:
        return f"[{_MEDIA[kind].__name__.lower()}]", False
    problems += unreadable
    return "", False


def _arguments(arguments: Any, where: str, problems: Problems) -> str:
    """Return arguments as JSON text. Text stays as the model wrote it, also where it is no JSON."""
    if isinstance(arguments, str):
        return str.__str__(arguments)
    if isinstance(arguments, Mapping) and [*arguments] == ["invalid_arguments"]:  # see `anthropic_message`
        written = arguments["invalid_arguments"]
        if isinstance(written, str):
            return str.__str__(written)
    return json.dumps(freeze(arguments), ensure_ascii=False) if fits_json(arguments, where, problems) else "{}"


def _instead(value: object, wanted: str) -> str:
    if value is None or value == "":
        return "missing"
    return f"expected {wanted}, got {type(value).__name__}"
