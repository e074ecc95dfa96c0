"""Reader of content parts and tool calls of every wire form; it records problems with their places."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast

from agentkit_prompts.context.json_problems import fits_json, text_of_json
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.parts import Audio, File, Image, Media, Part, Text, Url, Video
from agentkit_prompts.context.wire.allowed_media import MediaFolder, allowed_media
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.sendable_media import decode_data_url, file_id_address
from agentkit_prompts.errors import MediaError, Problem, Problems, brief
from agentkit_prompts.limits import MAX_NAME_CHARS
from agentkit_prompts.names import nearest

_TEXT_KINDS: dict[str, Literal["text", "refusal"]] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""Kinds of text parts by the type in the wire form. The kind is also the key of the text."""
_MEDIA_CLASSES: dict[str, type[Image | Audio | Video | File]] = {
    **dict.fromkeys(("image", "image_url", "input_image"), Image),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), Audio),
    **dict.fromkeys(("video", "video_url", "input_video"), Video),
    **dict.fromkeys(("file", "file_url", "input_file", "document"), File),
}
_ADDRESS = ("url", "file_url", "image_url", "path")
_DATA = ("data", "file_data", "base64")
_ARGUMENTS = ("arguments", "input", "args", "parameters")
"""Keys under which servers send the arguments of a call."""
PART_TYPES = frozenset((*_TEXT_KINDS, *_MEDIA_CLASSES))
"""Types of parts of a content."""
_MEDIA_KEYS = frozenset((*_ADDRESS, *_DATA, "type", "format", "media_type", "filename", "title", "file_id"))
"""Keys of a media part, and of the mapping inside it."""
_EMPTY: tuple[object, ...] = (None, "", [], {})
"""Values for which an unknown key is ignored."""

_NO_OWNER = Owner("")


class PartReader:
    """Reader of content parts and tool calls of every wire form.

    Args:
        problems: List to which problems are added.
        owner: Owner to which unknown keys and file ids are sent back.
        allow_media: True to accept media in local files, at private hosts, and at addresses with schemes other than
            http, https and data. Never pass True for external data: a message could send a local file to the provider,
            or cause a request to an internal address.
        folder: Folder whose files are accepted as media without `allow_media`.
    """

    def __init__(
        self,
        problems: Problems,
        owner: Owner = _NO_OWNER,
        *,
        allow_media: bool = False,
        folder: MediaFolder | None = None,
    ) -> None:
        self.problems = problems
        self.owner = owner
        self.allow_media = allow_media
        self.folder = folder
        self.refused_calls = set[str]()
        """Ids of invalid calls; a result of such a call is not a second problem."""

    def note(self, where: str, text: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(where, text))

    # --- content

    def content(self, content: object, where: str) -> str | tuple[Part, ...]:
        """Return content as text or parts; None and invalid content become empty text."""
        if content is None:
            return ""
        if isinstance(content, str):
            return content
        if not isinstance(content, list | tuple):
            self.note(where, f"expected text or a list of parts, got {type(content).__name__}")
            return ""
        parts = [self.part(part, f"{where}[{index}]") for index, part in enumerate(content)]
        return tuple([part for part in parts if part is not None])

    def part(self, part: object, where: str) -> Part | None:
        """Return a content part, or None if it is invalid."""
        if isinstance(part, str):
            return Text(part)
        if isinstance(part, Text | Media):
            return cast("Part", part)
        if isinstance(part, Mapping):
            return self._part(part, where)
        self.note(where, f"expected text or a part, got {type(part).__name__}")
        return None

    def _part(self, part: Mapping[str, Any], where: str) -> Part | None:
        kind = part.get("type")
        if not isinstance(kind, str):
            self.note(f"{where}.type", _instead(kind, "text"))
        elif kind in _TEXT_KINDS:
            return self._text_part(part, _TEXT_KINDS[kind], where)
        elif kind in _MEDIA_CLASSES:
            return self._media(part, kind, where)
        else:
            self.note(where, f"unknown type {brief(kind)}{nearest(kind, [*_TEXT_KINDS, *_MEDIA_CLASSES])}")
        return None

    def _text_part(self, part: Mapping[str, Any], kind: Literal["text", "refusal"], where: str) -> Text | None:
        text = part.get(kind)
        if not isinstance(text, str):
            self.note(f"{where}.{kind}", _instead(text, "text"))
            return None
        unknown = self.extras(part, {"type", kind}, where)
        return Text(text, kind=kind, opaque=self._opaque(unknown))

    def extras(self, data: Mapping[str, Any], known_keys: Collection[str], where: str) -> dict[str, Any]:
        """Return the entries of `data` whose keys are not in `known_keys`, without empty values.

        Entries that are not JSON become problems. Cache marks of Anthropic are ignored: the composition sets its own
        cache marks.
        """
        unknown: dict[str, Any] = {}
        if self.owner.form == "anthropic":
            known_keys = {*known_keys, "cache_control"}
        for key, value in data.items():
            if key in known_keys or value in _EMPTY:
                continue
            if not isinstance(key, str):
                self.note(where, f"keys must be text, got {brief(key)}")
            elif fits_json(value, f"{where}.{key[:MAX_NAME_CHARS]}", self.problems):
                unknown[key] = value
        return unknown

    def _opaque(self, unknown: Mapping[str, Any]) -> dict[str, Any]:
        """Return unknown keys as opaque data of their owner."""
        if not unknown:
            return {}
        return {self.owner.key(unknown): unknown}

    # --- tool calls

    def calls(self, calls: object, where: str) -> tuple[ToolCall, ...]:
        """Return the tool calls in a list of `ToolCall` objects, calls of the chat form, or mappings with a name and
        arguments. Invalid calls become problems and are left out.
        """
        if calls is None:
            return ()
        if not isinstance(calls, list | tuple):
            self.note(where, f"expected a list, got {type(calls).__name__}")
            return ()
        items = [self.call(call, f"{where}[{index}]") for index, call in enumerate(calls)]
        return tuple([call for call in items if call is not None])

    def call(self, call: object, where: str) -> ToolCall | None:
        """Return a tool call; or None, with a problem, if it is invalid."""
        if isinstance(call, ToolCall):
            return call
        if not isinstance(call, Mapping):
            self.note(where, f"expected a tool call, got {type(call).__name__}")
            return None
        function, place = call, where
        if "function" in call:
            function, place = call["function"], f"{where}.function"
        if not isinstance(function, Mapping):
            self.note(place, _instead(function, "a mapping"))
            return None
        return self._call(call, where, function, place)

    def _call(self, call: Mapping[str, Any], where: str, function: Mapping[str, Any], place: str) -> ToolCall | None:
        """Read a call whose name and arguments are in the mapping `function` at `place`; it can be the call itself."""
        before = len(self.problems)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            self.note(f"{place}.name", _instead(name, "text"))
        call_id = self._call_id(call, where)
        key = _first_key(function, _ARGUMENTS) or "arguments"
        arguments = _arguments(function.get(key), f"{place}.{key}", self.problems)
        keys = {"id", "call_id", "type", "function", "name", "index", key}
        if "call_id" in call:
            # An item of the Responses form also has an `id` of the item, which is sent back to the provider.
            keys.remove("id")
        unknown = self.extras(call, keys, where)
        if function is not call:
            unknown |= self._extras_inside("function", function, ("name", key), place)
        if len(self.problems) == before:
            return ToolCall(call_id or "", str(name), arguments, opaque=self._opaque(unknown))
        if isinstance(call_id, str):
            self.refused_calls.add(call_id)
        return None

    def _call_id(self, call: Mapping[str, Any], where: str) -> Any:
        call_id = call.get("call_id", call.get("id"))
        if not isinstance(call_id, str | None):
            self.note(f"{where}.id", _instead(call_id, "text"))
        return call_id

    def _extras_inside(
        self, key: str, data: Mapping[str, Any], known_keys: Collection[str], where: str
    ) -> dict[str, Any]:
        """Return `{key: unknown entries of data}`; empty without unknown entries."""
        unknown = self.extras(data, known_keys, where)
        if not unknown:
            return {}
        return {key: unknown}

    # --- media

    def _media(self, part: Mapping[str, Any], kind: str, where: str) -> Part | None:
        """Read media. The source is in the part itself, or in a mapping or an address under one of its keys."""
        before = len(self.problems)
        media_class = _MEDIA_CLASSES[kind]
        word = media_class.__name__.lower()
        key = _first_key(part, (kind, "source", f"{word}_url", word))
        opaque = self._opaque(self._unknown_of_media(part, key, where))
        fields, place = part, where
        if key is not None:
            fields, place = part[key], f"{where}.{key}"
        if not isinstance(fields, Mapping):
            fields = {"url": fields}
        name = self._name_of_media(fields, part, place)
        source = self._source(fields, place, self._media_type(fields, place, word))
        if source is None or len(self.problems) > before:
            return None
        try:
            media = media_class(cast("Any", source.value), source.media_type, name, opaque=opaque)
            if not self.allow_media:
                return allowed_media(media, source.value, self.folder)
        except MediaError as error:
            self.note(place, str(error))
            return None
        return media

    def _unknown_of_media(self, part: Mapping[str, Any], key: str | None, where: str) -> dict[str, Any]:
        if key is None:
            return self.extras(part, _MEDIA_KEYS, where)
        unknown = self.extras(part, {*_MEDIA_KEYS, key}, where)
        if isinstance(part[key], Mapping):
            unknown |= self._extras_inside(key, part[key], _MEDIA_KEYS, f"{where}.{key}")
        return unknown

    def _name_of_media(self, fields: Mapping[str, Any], part: Mapping[str, Any], place: str) -> Any:
        name = fields.get("filename") or part.get("title") or part.get("filename")
        if not isinstance(name, str | None):
            self.note(place, f"name: {_instead(name, 'text')}")
        return name

    def _media_type(self, fields: Mapping[str, Any], where: str, word: str) -> str | None:
        media_type, extension = fields.get("media_type"), fields.get("format")
        if media_type is None and isinstance(extension, str):
            return f"{word}/{extension}"
        if not isinstance(media_type, str | None):
            self.note(where, f"media_type: {_instead(media_type, 'text')}")
            return None
        return media_type

    def _source(self, fields: Mapping[str, Any], where: str, media_type: str | None) -> _Source | None:
        """Return the source of media; or None, with a problem, if it is invalid.

        Args:
            fields: The mapping that contains the source.
            where: The place of that mapping.
            media_type: Media type that the mapping names, if any.
        """
        file_id = fields.get("file_id")
        if isinstance(file_id, str) and file_id:
            return _Source(file_id_address(self.owner.form, file_id), None)
        key = _first_key(fields, (*_DATA, *_ADDRESS))
        if key is None:
            self.note(where, "names no address and no data")
            return None
        text, place = fields[key], f"{where}.{key}"
        if not isinstance(text, str) or not text:
            self.note(place, _instead(text, "text"))
            return None
        if key in _DATA and fields.get("type") == "text":
            return _Source(text.encode("utf-8", "surrogatepass"), media_type)
        try:
            return _source_in(text, media_type, is_data=key in _DATA)
        except ValueError as error:
            self.note(place, f"cannot be decoded ({error}): {text[:40]!r}")
        except MediaError as error:
            self.note(place, str(error))
        return None


class _Source(NamedTuple):
    """Source of media and its media type, if known."""

    value: str | bytes | Url
    media_type: str | None


def _source_in(text: str, media_type: str | None, *, is_data: bool) -> _Source:
    """Return the address or the decoded data in a text.

    Raises:
        ValueError: The text cannot be decoded.
        MediaError: The text starts like a data URL, but is not a URL.
    """
    # Some servers send a `data:` URL as data.
    if text[:5].lower() == "data:":
        content = decode_data_url(str(File(cast("Any", text)).source))
        return _Source(content.data, content.mime)
    if not is_data or "://" in text[:16]:
        return _Source(text, media_type)
    return _Source(base64.b64decode(text, validate=True), media_type)


def _first_key(data: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    """Return the first of `keys` whose value in `data` is not None; None if all values are None or missing."""
    return next((key for key in keys if data.get(key) is not None), None)


class PlainPart(NamedTuple):
    """A part as plain text."""

    text: str
    """The text of a text part, or the alt text of media."""
    is_text: bool


def plain_text_of(part: object, where: str, problems: Problems) -> PlainPart:
    """Return a part as plain text, media as their alt text; no file is read. An invalid part is empty, with a
    problem.
    """
    kind = None
    if isinstance(part, Mapping):
        kind = part.get("type")
        for key in ("text", "alt"):
            if isinstance(part.get(key), str):
                return PlainPart(part[key], "text" in part)
    unreadable: Problems = []
    content = PartReader(unreadable, allow_media=True).part(part, where)
    if isinstance(content, Text):
        return PlainPart(content.text, True)
    if content is not None:
        return PlainPart(content.alt, False)
    if isinstance(kind, str) and kind in _MEDIA_CLASSES:
        return PlainPart(f"[{_MEDIA_CLASSES[kind].__name__.lower()}]", False)
    problems += unreadable
    return PlainPart("", False)


def _arguments(arguments: Any, where: str, problems: Problems) -> str:
    """Return the arguments of a call as JSON text. Text stays as the model wrote it, even if it is not JSON."""
    if arguments is None:
        return "{}"
    if isinstance(arguments, str):
        return arguments
    # `anthropic_message` writes arguments that are not JSON in this form.
    if isinstance(arguments, Mapping) and [*arguments] == ["invalid_arguments"]:
        text = arguments["invalid_arguments"]
        if isinstance(text, str):
            return text
    return text_of_json(arguments, where, problems) or "{}"


def _instead(value: object, wanted: str) -> str:
    if value is None or value == "":
        return "missing"
    return f"expected {wanted}, got {type(value).__name__}"
