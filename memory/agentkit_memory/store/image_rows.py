"""The images of documents, as bytes or addresses, and the names of their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic_core import Url
from sqlalchemy import Connection, bindparam, select

from agentkit_memory.database.rows import decode_rows
from agentkit_memory.database.tables import images, items
from agentkit_memory.store.item_rows import content_hash
from agentkit_prompts.context.parts import Image

_READ = select(images).where(images.c.document_id.in_(bindparam("ids", expanding=True)))
_HASHES = select(items.c.id, items.c.content_hash).where(items.c.id.in_(bindparam("ids", expanding=True)))


def image_hash(image: Image) -> str:
    """Return the name of the stored vector of an image, which differs from the name of every text."""
    return content_hash(f"image\0{image.id}")


def image_row(document: str, image: Image) -> dict[str, object]:
    """Return the row of the image of a document."""
    row: dict[str, object] = {"document_id": document, "media_type": image.media_type or "", "name": image.name or ""}
    if isinstance(image.source, Url):
        return row | {"url": str(image.source), "content": b""}
    return row | {"url": "", "content": image.source}


def read_images(connection: Connection, documents: Sequence[str]) -> dict[str, Image]:
    """Return the images of documents, by the ids of the documents; other documents are left out."""
    if not documents:
        return {}
    images_by_document: dict[str, Image] = {}
    for row in decode_rows(connection, _READ, {"ids": list(documents)}, images.c.document_id).sound:
        # A document with a corrupt image can still be found by its alt text.
        with suppress(ValueError):
            images_by_document[row.document_id] = _image(row)
    return images_by_document


def _image(row: Any) -> Image:
    """Return the image of a row.

    Raises:
        ValueError: The row is corrupt.
    """
    source = row.content
    if row.url:
        source = Url(row.url)
    return Image(source, row.media_type or None, row.name or None)


def read_hashes(connection: Connection, ids: Sequence[str]) -> Mapping[str, str]:
    """Return the hashes of the images of items: items with equal hashes are copies of one image."""
    if not ids:
        return {}
    rows = decode_rows(connection, _HASHES, {"ids": list(ids)}, items.c.id).sound
    return {row.id: row.content_hash for row in rows}
