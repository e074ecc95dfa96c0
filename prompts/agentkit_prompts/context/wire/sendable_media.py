"""Conversion of media for providers.

A provider that rejects a part rejects the whole request. The media type of media in tool results is therefore taken
from their content, and a part that could be rejected is replaced by a text.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from pydantic_core import Url

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Audio, File, Image, Media, MediaKind, Part, Text
from agentkit_prompts.errors import MediaError

FILE_ID = "file-id"
"""Scheme of `file-id:PROVIDER/ID`, the address of a file that is stored at a provider."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
IMAGE_TYPES = frozenset(mime for _, mime in _MAGIC)
"""Image types that hosted models accept."""

_PDF = b"%PDF-"
_MAX_BYTES = {"image": 3_750_000, "audio": 20_000_000, "file": 20_000_000}
"""Maximum number of bytes at the large providers, by the kind of the part. The limit of an image is 5 MB of base64."""
_TEXT_TYPES = ("application/json", "application/xml", "application/yaml")


def image_type(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes; None for other data and other formats."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            # Other formats, such as wave audio, also start with RIFF.
            if kind == "image/webp" and data[8:12] != b"WEBP":
                return None
            return kind
    return None


class Content(NamedTuple):
    """Decoded content of a `data:` URL."""

    data: bytes
    mime: str


class SourceContent(NamedTuple):
    """Content of a media part."""

    data: bytes | None
    """The bytes; None for an address that the provider fetches."""
    mime: str


def content_of(part: Media) -> SourceContent:
    """Return the bytes and the media type of a part.

    Raises:
        MediaError: The file cannot be read, or the `data:` URL cannot be decoded.
    """
    if not isinstance(part.source, Url):
        return SourceContent(part.read(), part.mime)
    address = str(part.source)
    if not address.lower().startswith("data:"):
        return SourceContent(None, part.mime)
    try:
        content = decode_data_url(address)
    except ValueError as error:
        raise MediaError(f"{part.alt}: the data URL cannot be decoded ({error})", name="source") from error
    return SourceContent(content.data, part.media_type or content.mime)


def decode_data_url(address: str) -> Content:
    """Return the bytes and the media type of a `data:` URL.

    Raises:
        ValueError: The URL cannot be decoded.
    """
    head, comma, body = address[5:].partition(",")
    if not comma:
        raise ValueError("the comma before the data is missing")
    data = unquote_to_bytes(body)
    if head.endswith(";base64"):
        data = base64.b64decode(data, validate=True)
    return Content(data, head.partition(";")[0] or "text/plain")


def data_url(part: Media) -> str:
    """Return the address of a URL part, or the content of any other part as a `data:` URL."""
    if isinstance(part.source, Url):
        return str(part.source)
    return f"data:{part.mime};base64,{base64.b64encode(part.read()).decode('ascii')}"


def file_id_address(provider: str, file_id: str) -> Url:
    """Return the address of a file that is stored at a provider."""
    return Url(f"{FILE_ID}:{provider}/{quote(file_id, errors='surrogatepass')}")


def file_id_of(part: Media, providers: Iterable[str]) -> str | None:
    """Return the id of a file that is stored at one of the providers; None for other parts.

    Raises:
        MediaError: The file is stored at another provider.
    """
    if not isinstance(part.source, Url) or part.source.scheme != FILE_ID:
        return None
    owner, _, file_id = (part.source.path or "").partition("/")
    if owner not in providers:
        reason = f"{part.alt}: the file is stored at {owner} only; pass its address or its bytes"
        raise MediaError(reason, name="source", value=owner)
    return unquote(file_id, errors="surrogatepass")


def without_media(message: Message, has_images: Callable[[Message], bool]) -> Message:
    """Return a reply without media, which most servers refuse in a reply, and any other message unchanged.

    If `has_images` is true, the other data of the reply contain its generated images in the form of the endpoint. Any
    other endpoint receives the alt text.
    """
    if message.role != "assistant" or not any(isinstance(part, Media) for part in message.parts):
        return message
    is_own = has_images(message)
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Text):
            parts.append(part)
        elif not is_own:
            parts.append(Text(part.alt))
    return replace(message, content=tuple(parts))


def sendable_result_part(part: Part, kinds: Container[MediaKind] = ("image", "audio", "file")) -> Part:
    """Return a part of a tool result in the form that can be sent.

    A text file becomes text. Media of `kinds` get the media type of their content. Media that the provider would reject
    become a text with the reason.
    """
    if isinstance(part, Text):
        return part
    text = _text_of(part)
    if text:
        return Text(text)
    try:
        proven = _with_type_of_content(part)
    except MediaError as error:
        # The model reads the reason, and the request stays valid.
        return Text(f"{part.alt} (not shown: {error})")
    if proven.kind in kinds:
        return proven
    return Text(f"{part.alt} (not shown: this API accepts no {proven.kind})")


def _with_type_of_content(part: Media) -> Image | Audio | File:
    """Return a part with the media type of its content: an image, a PDF, wave or MP3 audio, or the address of an image.

    Raises:
        MediaError: The content has another type, is too large, or cannot be read; the message names the reason.
    """
    data, mime = content_of(part)
    if data is None:
        if part.kind == "image" and str(part.source).lower().startswith(("https://", "http://")):
            return Image(part.source, media_type=part.media_type, name=part.name)
        raise MediaError("only images are fetched from an address")
    proven = _of_content(part, data)
    if proven is None:
        raise MediaError(f"{len(data):,} bytes of {mime}, which cannot be sent")
    if len(data) > _MAX_BYTES[proven.kind]:
        raise MediaError(f"{len(data):,} bytes, more than can be sent")
    return proven


def _of_content(part: Media, data: bytes) -> Image | Audio | File | None:
    """Return a part with the media type of `data`; None if providers do not accept this type."""
    image, sound = image_type(data), audio_type(data)
    if image is not None and part.kind in ("image", "file"):
        return Image(data, media_type=image, name=part.label)
    if data.startswith(_PDF):
        return File(data, media_type="application/pdf", name=part.label)
    if sound is not None and part.kind == "audio":
        return Audio(data, media_type=sound, name=part.label)
    return None


def _text_of(part: Media) -> str | None:
    """Return the text of a text file; None for any other or unreadable file."""
    if part.kind != "file":
        return None
    try:
        data, mime = content_of(part)
        if data is None or not (mime.startswith("text/") or mime in _TEXT_TYPES):
            return None
        return data.decode("utf-8")
    except (MediaError, UnicodeDecodeError):
        return None


def audio_type(data: bytes) -> str | None:
    """Return the media type of wave or MP3 audio by its first bytes; None for other data."""
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        return "audio/wav"
    if data.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")):
        return "audio/mp3"
    return None
