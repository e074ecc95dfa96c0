"""`Documents`: texts and bytes that are given; with ingested files, listed and forgotten by their source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from sqlalchemy import bindparam, select

from agentkit_memory.checks import MAX_BYTES, is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import corrupt_row, is_name, raw_rows, sound_rows
from agentkit_memory.database.tables import document_chunks, documents, items
from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import CHUNKER, Chunk, chunk_blocks
from agentkit_memory.ingest.document_removal import finish_removals, forget_document
from agentkit_memory.ingest.document_writer import DocumentWriter, NewDocument, Version
from agentkit_memory.ingest.find_files import FORMATS, Format, SourceFile
from agentkit_memory.ingest.images import checked_alt, checked_image, image_chunk
from agentkit_memory.ingest.ingest_options import IngestOptions
from agentkit_memory.ingest.pipeline import READERS
from agentkit_memory.ingest.readers.blocks import Part
from agentkit_memory.ingest.readers.file_stream import GivenStream
from agentkit_memory.scope import Scope
from agentkit_memory.store.image_rows import read_images
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.metadata import read_metadata, written_metadata
from agentkit_memory.store.records import StoredDocument
from agentkit_memory.store.scope_rows import known_ids, scope_id
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.prompt_context import Document

__all__ = ["Documents"]

Content: TypeAlias = str | bytes | Document

_GIVEN = "given:"
"""Start of the addresses of documents that are no files."""

_SHOWN = (documents.c.scope_id.in_(bindparam("scopes", expanding=True)), documents.c.content_hash != "")
_ROW = select(*documents.c["id", "source", "chunks", "ingested_at", "uri", "meta"]).where(*_SHOWN)
_PAGE = _ROW.where(documents.c.source > bindparam("after")).order_by(documents.c.source, documents.c.id)
_FIND = _ROW.where(documents.c.source == bindparam("named")).order_by(documents.c.uri)
_FIND_ONE = _ROW.where(documents.c.id == bindparam("document"))
_IDS = _FIND.with_only_columns(documents.c.id)
_CHUNKS = (
    select(*items.c["id", "text", "title"], *document_chunks.c["position", "start", "end", "line", "meta"])
    .join(document_chunks, document_chunks.c.item_id == items.c.id)
    .join(documents, documents.c.id == document_chunks.c.document_id)
    .where(
        documents.c.id == bindparam("document"),
        document_chunks.c.generation == documents.c.generation,
        document_chunks.c.position > bindparam("after"),
    )
    .order_by(document_chunks.c.position)
    .limit(bindparam("most"))
)


def _content_source(content: str | bytes) -> str:
    """Return the source of a document without a name."""
    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return f"text-{hashlib.blake2b(data, digest_size=8).hexdigest()}"


class Documents:
    """The documents of one scope. `changed` is called after a change, to have it indexed."""

    def __init__(self, database: Database, scope: Scope, changed: Callable[[], None]) -> None:
        self._database = database
        self._scope = scope
        self._changed = changed

    def add(
        self, content: Content, *, source: str = "", metadata: Mapping[str, object] | None = None
    ) -> StoredDocument:
        """Store a document under its source, in the place of what was added under that before.

        The same content again changes nothing. It is recalled by its words at once, and indexed by a thread.

        Args:
            content: Text; bytes, which are read as a file with the ending of the source is (`.pdf`, `.html`, `.md`,
                ...; text with any other); or a `Document`, whose source, title and metadata count where none are given.
                A document with an `image` is that image, by its alt text, which is the text of the document.
            source: Name of the document, such as an address or a path; shown with each chunk. Without a name, the
                source is a hash of the content: the same content again is the same document.
            metadata: Kept with each chunk, to filter by; anything JSON can hold.

        Raises:
            IngestError: The arguments are invalid, or the content cannot be read; names every problem.
            StoreError: The database cannot be written.
        """
        title, image = "", None
        if isinstance(content, Document):
            metadata, image = {**content.metadata, **(metadata or {})}, content.image
            source, title, content = source or content.source or content.id, content.title, content.text
        if not source and isinstance(content, str | bytes):
            source = _content_source(content)
        meta = self._check(content, source, metadata)
        alt = ""
        if image is not None:
            alt, image = storable(checked_alt(source, content)), checked_image(source, image)
        data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else bytes(content)
        kind = _format(source)
        if kind == "image" and not isinstance(content, str):
            raise IngestError(
                source, "an image needs an alt text: add Document(ALT_TEXT, image=Image(...))", name="alt_text"
            )
        if isinstance(content, str) and kind in ("pdf", "image"):
            kind = "text"
        writer = DocumentWriter(self._database, scope_id(self._database, self._scope), self._scope.key)
        document = NewDocument(_GIVEN + quote(source, safe="/:"), source, self._database.clock(), meta, image)
        cut = [CHUNKER, kind, title, meta, hashlib.blake2b(data, digest_size=24).hexdigest()]
        cut += [image.id] if image is not None else []
        digest = hashlib.blake2b("\0".join(cut).encode(), digest_size=24).hexdigest()
        stored = writer.find(document.uri)
        if stored.content_hash != digest or writer.id_of(document.uri) not in self._ids(source):
            with GivenStream(SourceFile(Path(source), source), data, IngestOptions()) as reading:

                def seal() -> Version:
                    reading.finish()
                    return Version(digest)

                chunks: Iterable[Chunk]
                if image is not None:
                    chunks = [image_chunk(image, alt, title, meta)]
                else:
                    blocks = chain([Part(title=title)] if title else [], READERS[kind](reading))
                    chunks = _with_metadata(source, chunk_blocks(blocks), meta)
                writer.write(document, chunks, seal)
            self._changed()
        finish_removals(self._database, writer.scope_id)
        (found,) = self._rows(_FIND_ONE, document=writer.id_of(document.uri))
        return found

    def list(self, *, after: str = "", limit: int = 100) -> tuple[StoredDocument, ...]:
        """Return documents of exactly this scope, in order of their sources.

        Args:
            after: Source of the last document of the page before.
            limit: Most documents to return.

        Raises:
            IngestError: An argument is invalid.
        """
        _check_page("documents.list", after, limit, str)
        return tuple(self._rows(_PAGE.limit(limit), after=storable(after)))

    def get(self, source: str) -> StoredDocument | None:
        """Return the document with this source, rather one that was given than a file; None for an unknown one."""
        found = self._rows(_FIND, named=_name(source))
        return min(found, key=lambda each: each.is_file) if found else None

    def chunks(self, source: str, *, after: int = -1, limit: int = 100) -> tuple[Document, ...]:
        """Return chunks of a document in order; none of an unknown one.

        Args:
            source: Of the document.
            after: Position of the last chunk of the page before.
            limit: Most chunks to return.

        Raises:
            IngestError: An argument is invalid.
        """
        _check_page("documents.chunks", after, limit, int)
        known = self.get(source)
        if known is None:
            return ()
        with self._database.read() as connection:
            bound = {"document": known.id, "after": after, "most": limit}
            rows = sound_rows(connection, _CHUNKS, bound, items.c.id)
            image = read_images(connection, [known.id] if len(rows) == 1 else []).get(known.id)
        return tuple(
            Document(
                row.text,
                id=row.id,
                title=row.title,
                source=known.source,
                position=row.position,
                image=image,
                metadata={**_metadata("items", row), "start": row.start, "end": row.end, "line": row.line},
            )
            for row in rows
        )

    def forget(self, source: str) -> bool:
        """Delete every document with this source, given or ingested; return whether there was one.

        A file that is still there is stored again when its folder is ingested again.
        """
        found = self._ids(_name(source))
        for each in found:
            forget_document(self._database, each)
        if found:
            self._changed()
        return bool(found)

    def _ids(self, source: str) -> Sequence[str]:
        """Return the ids of the documents with this source, damaged ones too: these are replaced or forgotten."""
        bound = {"scopes": known_ids(self._database, self._scope), "named": source}
        with self._database.read() as connection:
            return [row.id for row in raw_rows(connection, _IDS, bound) if is_name(row.id)]

    def _rows(self, query: Any, **bound: object) -> Sequence[StoredDocument]:
        scopes = known_ids(self._database, self._scope)
        with self._database.read() as connection:
            rows = sound_rows(connection, query, {"scopes": scopes, **bound}, documents.c.id)
        return [_stored(row) for row in rows]

    @staticmethod
    def _check(content: object, source: object, metadata: object) -> str:
        problems = []
        if not isinstance(content, str | bytes | bytearray):
            wanted = "Document(ALT_TEXT, image=...)" if isinstance(content, Image) else "text, bytes or a Document"
            problems.append(f"expected {wanted} as the content, got {type(content).__name__}")
        if not isinstance(source, str) or not source.strip():
            problems.append(f"name the document: expected text as `source`, got {source!r:.80}")
        elif storable(source) != source:
            problems.append("the source holds NUL or an unpaired surrogate")
        elif len(quote(source, safe="/:")) + len(_GIVEN) > MAX_BYTES:
            most = f"at most {MAX_BYTES - len(_GIVEN):,} bytes, six or more for a character that is not ASCII"
            problems.append(f"the source is too long: expected {most}")
        meta = "{}"
        if metadata is not None and not (
            isinstance(metadata, Mapping) and all(isinstance(key, str) for key in metadata)
        ):
            problems.append(f"expected a mapping of names to values as the metadata, got {metadata!r:.80}")
        elif isinstance(metadata, Mapping) and metadata:
            try:
                meta = written_metadata(metadata, sort_keys=True)
            except ValueError as error:
                problems.append(f"its metadata {error}")
        if problems:
            raise IngestError(f"documents.add, {source!r:.80}", "; ".join(problems))
        return meta


def _stored(row: Any) -> StoredDocument:
    is_file = row.uri.startswith("file:")
    return StoredDocument(row.id, row.source, row.chunks, row.ingested_at, is_file, _metadata("documents", row))


def _metadata(table: str, row: Any) -> dict[str, object]:
    """Return the metadata of a row.

    Raises:
        StoreCorrupt: It is damaged.
    """
    try:
        return read_metadata(row.meta)
    except ValueError as error:
        raise corrupt_row(table, row.id, "meta", str(error)) from None


def _format(source: str) -> Format:
    try:
        path = urlsplit(source).path or source
    except ValueError:
        path = source
    return FORMATS.get(PurePosixPath(path).suffix.lower(), "text")


def _name(source: object) -> str:
    if not isinstance(source, str):
        raise IngestError("documents", f"expected the source of a document, which is text, got {source!r:.80}")
    return storable(source)


def _check_page(where: str, after: object, limit: object, kind: type) -> None:
    problems = []
    if not isinstance(after, kind) or isinstance(after, bool):
        problems.append(f"expected {'a source' if kind is str else 'a position'} as 'after', got {after!r:.80}")
    if not is_whole(limit, 1):
        problems.append(f"expected a limit of 1 or more, got {limit!r:.80}")
    if problems:
        raise IngestError(where, "; ".join(problems))


def _with_metadata(source: str, chunks: Iterator[Chunk], meta: str) -> Iterator[Chunk]:
    """Yield chunks with the metadata of their document beside their own."""
    if meta == "{}":
        yield from chunks
        return
    common = read_metadata(meta)
    for chunk in chunks:
        try:
            both = written_metadata({**read_metadata(chunk.meta), **common}, sort_keys=True)
        except ValueError as error:
            raise IngestError(source, f"metadata of chunk {chunk.position} {error}") from None
        yield replace(chunk, meta=both)
