"""Checks of images. An image is stored as a document with one item, the alt text."""

from __future__ import annotations

from pydantic_core import Url

from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import CHUNK_BYTES, Chunk
from agentkit_memory.store.image_rows import image_hash
from agentkit_prompts.context.parts import Image
from agentkit_prompts.errors import MediaError, brief

MAX_IMAGE = 10_000_000
"""Maximum bytes of an image. No model accepts larger images."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF8", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
)
"""Bytes that identify a type of images, their offset, and the media type."""


def checked_image(source: str, image: Image) -> Image:
    """Return an image that can be stored: its bytes with their detected type, or its address.

    Raises:
        IngestError: The image cannot be read, is too large, or is not of a type that models accept.
    """
    if isinstance(image.source, Url):
        return image
    try:
        content = image.read()
    except MediaError as error:
        raise IngestError(source, str(error), name="path") from error
    if len(content) > MAX_IMAGE:
        raise IngestError(
            source, f"has {len(content):,} bytes, at most {MAX_IMAGE:,} are stored: scale the image down", name="size"
        )
    # The type is detected from the bytes, because a provider rejects an image whose declared type is wrong.
    kind = next((kind for mark, at, kind in _SIGNATURES if content[at : at + len(mark)] == mark), None)
    if kind is None:
        raise IngestError(
            source, "is not a PNG, JPEG, GIF or WebP image, which models accept; convert it first", name="format"
        )
    return Image(content, kind, image.name or image.label)


def checked_alt(source: str, alt: object) -> str:
    """Return the alt text of an image.

    Raises:
        IngestError: The alt text is not text, is empty, or is too long.
    """
    if not isinstance(alt, str) or not alt.strip():
        raise IngestError(
            source,
            f"is an image, recalled by its alt text: expected text that describes it, got {brief(alt)}",
            name="alt_text",
        )
    if len(alt.encode("utf-8", "surrogatepass")) > CHUNK_BYTES:
        raise IngestError(
            source,
            f"its alt text has {len(alt):,} characters, at most {CHUNK_BYTES:,} bytes are stored",
            name="alt_text",
            value=len(alt),
        )
    return alt


def image_chunk(image: Image, alt: str, title: str = "", meta: str = "{}") -> Chunk:
    """Return the chunk of an image: its alt text."""
    return Chunk(0, 0, len(alt), 1, title, alt, meta, image_hash(image))
