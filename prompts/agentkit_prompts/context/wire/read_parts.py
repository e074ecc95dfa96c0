"""Content parts and tool calls of every wire form, read into ours; what is wrong is noted with its place."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, cast

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
"""Endings of host names that no public server has: reserved ones, and names of internal networks."""
_ARGUMENTS = ("arguments", "input", "args", "parameters")
"""Keys of the arguments of a call; senders use any of them."""
_READ = frozenset((*_ADDRESS, *_DATA, "type", "format", "media_type", "filename", "title", "file_id"))
"""Keys that are read, of a part and of the mapping in it."""


class PartReader:
    """Reads content parts and tool calls of every wire form.

    Args:
        problems: List to which problems are added.
        provider: Provider that gets unknown keys and file ids back.
        allow_media: True if media can be in a file of this machine, or at an address of another scheme than http,
            https and data, or of a host that is not public. Never for data from outside: a message that names
            a file would send it, and a message that names an internal address would make your server read it.
    """

    def __init__(self, problems: Problems, provider: str = "", *, allow_media: bool = False) -> None:
        self.problems = problems
        self.provider = provider
        self.allow_media = allow_media
        self.refused_calls = set[str]()
        """Ids of invalid calls."""

    def content(self, content: object, where: str) -> str | tuple[Part, ...]:
        """Return content as text or parts; nothing is no text."""
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if not isinstance(content, list | tuple):
            self.problems.append(Problem(where, f"expected text or a list of parts, got {type(content).__name__}"))
            return ""
        parts = [self.part(part, f"{where}[{index}]") for index, part in enumerate(content)]
        return tuple([part for part in parts if part is not None])

    def part(self, part: object, where: str) -> Part | None:
        """Return a content part, or None if it is invalid."""
        if isinstance(part, str):
            return Text(part)
        if isinstance(part, Text | Media):
            return cast("Part", part)
        if not isinstance(part, Mapping):
            self.problems.append(Problem(where, f"expected text or a part, got {type(part).__name__}"))
            return None
        kind = part.get("type")
        if not isinstance(kind, str):
            self.problems.append(Problem(f"{where}.type", _instead(kind, "text")))
            return None
        if kind in _TEXTS:
            return self._text_part(part, kind, where)
        if kind in _MEDIA:
            return self._media(part, kind, where)
        hint = nearest(kind, [*_TEXTS, *_MEDIA])
        self.problems.append(Problem(where, f"unknown type {kind!r:.80}{hint}"))
        return None

    def _text_part(self, part: Mapping[str, Any], kind: str, where: str) -> Text | None:
        key = _TEXTS[kind]
        text = part.get(key)
        if not isinstance(text, str):
            self.problems.append(Problem(f"{where}.{key}", _instead(text, "text")))
            return None
        unknown = self.extras(part, {"type", key}, where)
        return Text(text, kind="refusal" if kind == "refusal" else "text", opaque=self._opaque(unknown))

    def _opaque(self, unknown: Mapping[str, Any]) -> dict[str, Any]:
        """Return unknown keys as opaque data of the provider."""
        return {self.provider: unknown} if unknown else {}

    def calls(self, calls: object, where: str) -> tuple[ToolCall, ...]:
        """Return tool calls: objects of this library, calls of the chat form, or flat ones of a name and arguments."""
        if calls is None:
            return ()
        if not isinstance(calls, list | tuple):
            self.problems.append(Problem(where, f"expected a list, got {type(calls).__name__}"))
            return ()
        read = [self.call(call, f"{where}[{index}]") for index, call in enumerate(calls)]
        return tuple([call for call in read if call is not None])

    def call(self, call: object, where: str) -> ToolCall | None:
        """Return a tool call, or None if it is invalid."""
        if isinstance(call, ToolCall):
            return call
        if not isinstance(call, Mapping):
            self.problems.append(Problem(where, f"expected a tool call, got {type(call).__name__}"))
            return None
        if "function" not in call:
            return self._flat_call(call, call, where, where)
        if not isinstance(call["function"], Mapping):
            self.problems.append(Problem(f"{where}.function", _instead(call["function"], "a mapping")))
            return None
        return self._flat_call(call, call["function"], where, f"{where}.function")

    def _flat_call(
        self, call: Mapping[str, Any], function: Mapping[str, Any], where: str, place: str
    ) -> ToolCall | None:
        """Read a call whose name and arguments are in `function`, at `place`, which can be the call itself."""
        before = len(self.problems)
        name = function.get("name")
        call_id = call.get("call_id", call.get("id"))
        if not isinstance(name, str) or not name:
            self.problems.append(Problem(f"{place}.name", _instead(name, "text")))
        if not isinstance(call_id, str | None):
            self.problems.append(Problem(f"{where}.id", _instead(call_id, "text")))
        key = _first_key(function, _ARGUMENTS)
        arguments = "{}"
        if key is not None:
            arguments = _arguments(function[key], f"{place}.{key}", self.problems)
        known = {"id", "call_id", "type", "function", "name", "index", key or "arguments"}
        if "call_id" in call:
            # The id of the item itself is a second one, which its provider wants back.
            known -= {"id"}
        unknown = self.extras(call, known, where)
        if function is not call:
            inside = self.extras(function, {"name", key or "arguments"}, place)
            if inside:
                unknown["function"] = inside
        if len(self.problems) > before:
            self.refused_calls.add(call_id if isinstance(call_id, str) else "")
            return None
        return ToolCall(call_id or "", str(name), arguments, opaque=self._opaque(unknown))

    def extras(self, data: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
        """Return the entries of `data` with other keys than `known`; empty values are left out. They must be JSON."""
        left: dict[str, Any] = {}
        for key, value in data.items():
            if key in known or value is None or value in ("", [], {}):
                continue
            if key == "cache_control" and self.provider == "anthropic":
                # The API takes few cache marks, and the composition places its own.
                continue
            if not isinstance(key, str):
                self.problems.append(Problem(where, f"keys must be text, got {key!r:.80}"))
            elif fits_json(value, f"{where}.{key}", self.problems):
                left[key] = value
        return left

    def _media(self, part: Mapping[str, Any], kind: str, where: str) -> Part | None:
        form = _MEDIA[kind]
        word = form.__name__.lower()
        key = _first_key(part, (kind, "source", f"{word}_url", word))
        holder, place = part, where
        fields: Mapping[str, Any] = part
        if key is not None:
            holder, place = part[key], f"{where}.{key}"
            fields = holder if isinstance(holder, Mapping) else {"url": holder}
        before = len(self.problems)
        source = self._source(fields, place, word)
        name = fields.get("filename") or part.get("title") or part.get("filename")
        for field, value in (("media_type", source.media_type), ("name", name)):
            if not isinstance(value, str | None):
                self.problems.append(Problem(place, f"{field}: {_instead(value, 'text')}"))
        unknown = self.extras(part, {*_READ, key or ""}, where)
        if key is not None and isinstance(holder, Mapping):
            inside = self.extras(holder, _READ, place)
            if inside:
                unknown[key] = inside
        if len(self.problems) > before:
            return None
        try:
            media = form(cast("Any", source.value), source.media_type, name, opaque=self._opaque(unknown))
        except MediaError as error:
            self.problems.append(Problem(place, str(error)))
            return None
        if not self.allow_media:
            refusal = _not_allowed(media.source)
            if refusal:
                self.problems.append(Problem(place, f"{refusal}: {source.value!r:.80}"))
        return media

    def _source(self, fields: Mapping[str, Any], where: str, word: str) -> _Source:
        """Return the source of media, and its type if that is given."""
        media_type = fields.get("media_type")
        if media_type is None and isinstance(fields.get("format"), str):
            media_type = f"{word}/{fields['format']}"
        file_id = fields.get("file_id")
        if isinstance(file_id, str) and file_id:
            return _Source(file_id_address(self.provider, file_id), None)
        key = _first_key(fields, (*_DATA, *_ADDRESS))
        if key is None:
            self.problems.append(Problem(where, "names no address and no data"))
            return _Source(None, None)
        value = fields[key]
        if not isinstance(value, str) or not value:
            self.problems.append(Problem(f"{where}.{key}", _instead(value, "text")))
            return _Source(None, None)
        if key in _DATA and fields.get("type") == "text":
            return _Source(value.encode("utf-8", "surrogatepass"), media_type)
        try:
            # Also as data: some senders write a whole address there.
            if value[:5].lower() == "data:":
                return _Source(*content_of(File(cast("Any", value))))
            if key in _ADDRESS or "://" in value[:16]:
                return _Source(value, media_type)
            return _Source(base64.b64decode(value, validate=True), media_type)
        except MediaError as error:
            reason = str(error).rpartition(": ")[2]
        except ValueError as error:
            reason = f"not base64 ({error})"
        self.problems.append(Problem(f"{where}.{key}", f"{reason}: {value[:40]!r}"))
        return _Source(None, None)


class _Source(NamedTuple):
    value: object
    media_type: Any


def _first_key(data: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    """Return the first of the keys that has a value."""
    for key in keys:
        if data.get(key) is not None:
            return key
    return None


_ALLOW = "or allow_media=True for messages that you trust"


def _not_allowed(source: Path | Url | bytes) -> str:
    """Return the reason to refuse the source of media from outside; an empty text if it is allowed."""
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
        # A name without a dot is looked up in the local network.
        allowed = "." in host and not host.endswith(_INNER_NAMES)
    if allowed:
        return ""
    return f"an address of a host that is not public is not opened from a message: give data, {_ALLOW}"


def plain_text_of(part: object, where: str, problems: Problems) -> tuple[str, bool]:
    """Return a part as plain text, media as their alt text, and True if it is text. No file is read for it."""
    if isinstance(part, Mapping):
        for key in ("text", "alt"):
            if isinstance(part.get(key), str):
                return str(part[key]), "text" in part
    unreadable: Problems = []
    content = PartReader(unreadable, allow_media=True).part(part, where)
    if isinstance(content, Text):
        return content.text, True
    if content is not None:
        return content.alt, False
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in _MEDIA:
        return f"[{_MEDIA[kind].__name__.lower()}]", False
    problems += unreadable
    return "", False


def _arguments(arguments: Any, where: str, problems: Problems) -> str:
    """Return arguments as JSON text. Text stays as the model wrote it, even if it is not JSON."""
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, Mapping) and [*arguments] == ["invalid_arguments"]:
        # `anthropic_message` writes arguments in this form that are not JSON.
        written = arguments["invalid_arguments"]
        if isinstance(written, str):
            return written
    if not fits_json(arguments, where, problems):
        return "{}"
    return json.dumps(freeze(arguments), ensure_ascii=False)


def _instead(value: object, wanted: str) -> str:
    if value is None or value == "":
        return "missing"
    return f"expected {wanted}, got {type(value).__name__}"
