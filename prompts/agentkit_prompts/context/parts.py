"""Content parts: text, and media from a path, a URL or bytes.

Rendered text contains a marker for each media part, `<|media:KIND:ID|>`; the id is the hash of the content.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard

from pydantic import Field, ValidationError
from pydantic_core import CoreSchema, Url, core_schema

from agentkit_prompts.context.frozen import FrozenDict, set_plain_text
from agentkit_prompts.context.opaque import Opaque, no_opaque, opaque_data
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.context.trusted import NEVER_TRUSTED, Trusted
from agentkit_prompts.errors import MediaError, PromptError, brief, check_types
from agentkit_prompts.hints import Hinted
from agentkit_prompts.names import reject_unknown_fields
from agentkit_prompts.system.regular_files import open_regular

__all__ = [
    "MARKER",
    "MEDIA_OPENING",
    "Audio",
    "File",
    "Image",
    "Media",
    "MediaKind",
    "Part",
    "Source",
    "Text",
    "Url",
    "Video",
    "is_plain",
    "neutralise_markers",
    "replace_markers",
]

Source: TypeAlias = Path | Url | bytes
MediaKind = Literal["image", "audio", "video", "file"]

MARKER = re.compile(r"<\|media:(image|audio|video|file):([0-9a-f]{32})\|>")
MEDIA_OPENING = "<|media:"
"""Start of every media marker."""
_BROKEN_OPENING = "<\u200b|media:"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//|[^\\/])")
_DIGEST_BYTES = 16
_SAFE_NAME = re.compile(r"[^\w .@+-]+")


def neutralise_markers(text: str) -> str:
    """Return `text` with a zero-width space in every `<|media:`, so that untrusted text cannot imitate a marker."""
    return text.replace(MEDIA_OPENING, _BROKEN_OPENING) if MEDIA_OPENING in text else text


def replace_markers(text: str, mapping: Mapping[str, str]) -> str:
    """Return `text` with each media marker replaced by `mapping[id]`; markers of unknown ids stay."""
    check_types(
        PromptError, "replace_markers", text=(text, str, "text"), mapping=(mapping, Mapping, "a mapping of ids to text")
    )
    return MARKER.sub(lambda match: mapping.get(match[2], match[0]), text)


def _source_as_json(source: Source) -> dict[str, str]:
    """Return a source as JSON data, with its type as key, so that bytes that look like a path stay bytes."""
    if isinstance(source, bytes):
        return {"bytes": base64.b64encode(source).decode("ascii")}
    if isinstance(source, Path):
        return {"path": str(source)}
    return {"url": str(source)}


def _source_from_json(value: Any) -> Source:
    if isinstance(value, Path | Url | bytes):
        return value
    match value:
        case {"bytes": str(text), **others} if not others:
            return base64.b64decode(text, validate=True)
        case {"path": str(text), **others} if not others:
            return Path(text)
        case {"url": str(text), **others} if not others:
            return Url(text)
    raise ValueError("expected a media source: an object with one of bytes (base64), path or url")


class _SourceSchema:
    """Pydantic schema of a source. `PlainSerializer` would be shorter, but takes 6 ms to import."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        shape = core_schema.dict_schema(core_schema.literal_schema(["bytes", "path", "url"]), core_schema.str_schema())
        written = core_schema.plain_serializer_function_ser_schema(_source_as_json, return_schema=shape)
        return core_schema.no_info_plain_validator_function(
            _source_from_json, serialization=written, json_schema_input_schema=shape
        )


@dataclass(frozen=True, slots=True, repr=False)
class Text:
    """Text part of a message. The kind `refusal` is for text in which a model refuses to answer."""

    __repr__ = short_repr

    text: str
    kind: Literal["text", "refusal"] = field(default="text", kw_only=True)
    opaque: Opaque = field(default_factory=no_opaque, hash=False, kw_only=True)

    def __post_init__(self) -> None:
        if type(self.text) is Trusted:
            raise MediaError(f"Text: {NEVER_TRUSTED}", name="text")
        set_plain_text(self, "text", "kind")
        if not isinstance(self.text, str):
            raise MediaError(f"Text: expected str, got {type(self.text).__name__}", name="text")
        if not isinstance(self.kind, str) or self.kind not in ("text", "refusal"):
            raise MediaError(f"Text: kind: expected 'text' or 'refusal', got {brief(self.kind)}", name="kind")
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))

    def __prompt__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, repr=False)
class Media(metaclass=Hinted):
    """Base of image, audio, video and file parts.

    `source` is a path, a URL or bytes; a str is a URL if it starts with a scheme (`https://`, `data:`), else a path.
    `media_type` is guessed from the name if it is None; see `mime`.

    Raises:
        MediaError: A field has the wrong type, or the text is not a URL.
    """

    __repr__ = short_repr

    source: Annotated[Source, _SourceSchema]
    media_type: str | None = None
    name: str | None = None
    kind: MediaKind = field(default="file", kw_only=True)
    opaque: Opaque = field(default_factory=no_opaque, hash=False, kw_only=True)
    _id: Annotated[str | None, Field(exclude=True)] = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_plain_text(self, "source", "media_type", "name", "kind")
        kind = type(self).__name__
        if not isinstance(self.source, Path | Url | bytes):
            object.__setattr__(self, "source", _read_source(self.source, kind))
        if not (isinstance(self.name, str | None) and isinstance(self.media_type, str | None)):
            check_types(
                MediaError,
                kind,
                media_type=(self.media_type, (str, NoneType), "text or None"),
                name=(self.name, (str, NoneType), "text or None"),
            )
        if not isinstance(self.kind, str) or self.kind not in _DEFAULT_MIME:
            expected = ", ".join(_DEFAULT_MIME)
            raise MediaError(f"{kind}: kind: expected one of {expected}, got {brief(self.kind)}", name="kind")
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))

    @property
    def id(self) -> str:
        """The BLAKE2b hash of the content, or of the address of a URL: 32 hex digits.

        Raises:
            MediaError: The file cannot be read.
        """
        if isinstance(self.source, Path):
            return _digest_of_file(self.source)
        if self._id is not None:
            return self._id
        content, form = str(self.source).encode(), b"url"
        if isinstance(self.source, bytes):
            content, form = self.source, b""
        digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES, person=form).hexdigest()
        object.__setattr__(self, "_id", digest)
        return digest

    @property
    def label(self) -> str:
        """Short name without characters that could close a marker or an alt text."""
        name = self.name
        if name is None:
            name = self._name_of_source()
        if not name:
            return self.id[:12]
        return _SAFE_NAME.sub("_", name)[:80]

    def _name_of_source(self) -> str | None:
        if isinstance(self.source, Path):
            return self.source.name
        if isinstance(self.source, Url) and self.source.scheme != "data":
            return (self.source.path or "").rsplit("/", 1)[-1] or self.source.host
        return None

    @property
    def marker(self) -> str:
        """The marker of this part in multimodal text."""
        return f"<|media:{self.kind}:{self.id}|>"

    @property
    def alt(self) -> str:
        """The replacement of this part in plain text."""
        return f"[{self.kind}: {self.label}]"

    @property
    def mime(self) -> str:
        """The media type: `media_type`, else guessed from the name, the path or the address, else the default of the
        kind.
        """
        if self.media_type:
            return self.media_type
        guesses = [mimetypes.guess_type(name)[0] for name in (self.name or "", self._address())]
        return guesses[0] or guesses[1] or _DEFAULT_MIME[self.kind]

    def _address(self) -> str:
        """Return the path or address, which can have a file extension; empty for bytes."""
        if isinstance(self.source, bytes):
            return ""
        if isinstance(self.source, Url) and self.source.scheme != "data":
            # Remove the query, which can look like a file extension.
            return self.source.path or ""
        return str(self.source)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        if isinstance(self.source, Url):
            # Old pickle protocols cannot write a `Url`.
            values["source"] = str(self.source)
        return partial(type(self), **values), ()

    def read(self) -> bytes:
        """Return the bytes of a path or bytes source.

        Raises:
            MediaError: The source is a URL, or the file cannot be read.
        """
        if isinstance(self.source, bytes):
            return self.source
        if isinstance(self.source, Path):
            try:
                with open_regular(self.source) as file:
                    return file.read()
            except (OSError, ValueError) as error:
                raise _unreadable(self.source, error) from error
        address = str(self.source)
        raise MediaError(
            f"{self.kind} {address}: a URL is sent to the provider, not downloaded", name="source", value=address
        )


@reject_unknown_fields(MediaError)
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Image(Media):
    """An image part."""

    kind: Literal["image"] = field(default="image", kw_only=True)


@reject_unknown_fields(MediaError)
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Audio(Media):
    """An audio part."""

    kind: Literal["audio"] = field(default="audio", kw_only=True)


@reject_unknown_fields(MediaError)
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Video(Media):
    """A video part."""

    kind: Literal["video"] = field(default="video", kw_only=True)


@reject_unknown_fields(MediaError)
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class File(Media):
    """Any other file part, such as a PDF."""

    kind: Literal["file"] = field(default="file", kw_only=True)


Part: TypeAlias = Text | Image | Audio | Video | File


def is_plain(part: Part) -> TypeGuard[Text]:
    """True for a text part, except a refusal or a part with opaque data."""
    return isinstance(part, Text) and part.kind == "text" and not part.opaque


_DEFAULT_MIME: dict[str, str] = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "file": "application/octet-stream",
}
_FILE_DIGESTS: dict[tuple[str, int, int], str] = {}


def _read_source(source: Any, kind: str) -> Source:
    """Return the source for a value of another type: text, a path, a buffer of bytes or a URL of pydantic.

    Raises:
        MediaError: The source has another type, or the text is not a URL.
    """
    if isinstance(source, str):
        # On Windows, the drive of a path looks like the scheme of a URL.
        is_url = _URL.match(source) is not None and not Path(source).drive
        return _url(source) if is_url else Path(source)
    if isinstance(source, PathLike):
        return Path(source)
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    # Some URL types of pydantic are not subclasses of `Url`.
    if hasattr(source, "unicode_string"):
        return Url(str(source))
    reason = f"{kind}: expected a Path, a Url or bytes, got {type(source).__name__}"
    raise MediaError(reason, name="source")


def _url(text: str) -> Url:
    try:
        return Url(text)
    except ValidationError as error:
        # Import late: valid parts need no texts of errors.
        from agentkit_prompts.invalid_values import invalid_values

        reason = f"{text[:200]!r}: {invalid_values(error)[0].text}; pass a complete URL, a Path or bytes"
        raise MediaError(reason, name="source", value=text[:200]) from error


def _digest_of_file(path: Path) -> str:
    """Return the hash of the content of a file; cached while path, size and modification time stay the same."""
    try:
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        digest = _FILE_DIGESTS.get(key)
        if digest is None:
            with open_regular(path) as stream:
                digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
            # A limit, because a server that runs for a long time reads many files.
            if len(_FILE_DIGESTS) >= 4096:
                _FILE_DIGESTS.clear()
            _FILE_DIGESTS[key] = digest
        return digest
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> MediaError:
    reason = f"{path}: cannot be read ({error}); pass a readable file, a URL or bytes"
    return MediaError(reason, path=str(path), name="source")
