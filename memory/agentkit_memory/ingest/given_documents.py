"""`Documents`: adds documents, and lists and removes documents and ingested files by their source."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, cast, get_args
from urllib.parse import quote, urlsplit

from sqlalchemy import bindparam, select

from agentkit_memory.checks import MAX_BYTES, is_whole
from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import corrupt_row, is_decoded_text, raw_rows, sound_rows
from agentkit_memory.database.tables import document_chunks, documents, items
from agentkit_memory.errors import IngestError
from agentkit_memory.ingest.chunks import CHUNKER, Chunk, chunk_blocks
from agentkit_memory.ingest.document_removal import finish_removals, forget_document
from agentkit_memory.ingest.document_writer import DocumentWriter, NewDocument, Version
from agentkit_memory.ingest.file_formats import FORMATS, READERS, Format
from agentkit_memory.ingest.images import checked_alt, checked_image, image_chunk
from agentkit_memory.ingest.ingest_options import IngestOptions
from agentkit_memory.ingest.pipeline import text_chunks
from agentkit_memory.ingest.readers.file_stream import BytesStream
from agentkit_memory.ingest.readers.section_start import SectionStart
from agentkit_memory.ingest.source_file import SourceFile
from agentkit_memory.scope import Scope, SharedScope
from agentkit_memory.store.image_rows import read_images
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.metadata import read_metadata, written_metadata
from agentkit_memory.store.records import StoredDocument
from agentkit_memory.store.scope_rows import known_ids, scope_id
from agentkit_prompts.context.foreign_documents import ForeignDocument, foreign_document
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.prompt_context import Document
from agentkit_prompts.errors import MediaError, brief
from agentkit_prompts.hints import Hinted, with_option_hints
from agentkit_prompts.names import nearest

Content: TypeAlias = str | bytes | Document | ForeignDocument

_PAGE_SIZE = 500
"""Maximum number of documents that an iteration reads at once."""
_BINARY: tuple[Format, ...] = ("pdf", "docx", "xlsx", "pptx", "epub")
"""Formats that text cannot have."""
_PREFIX = "given:"
"""Start of the address of a document that is not a file."""

# A document that is not completely written, or is being removed, has an empty hash.
_COMPLETE = (documents.c.scope_id.in_(bindparam("scopes", expanding=True)), documents.c.content_hash != "")
_ROW = select(*documents.c["id", "source", "chunks", "ingested_at", "uri", "meta"]).where(*_COMPLETE)
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


def _as_bytes(content: str | bytes) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    return bytes(content)


def _marked_page(content: str | bytes) -> bytes:
    """Return a page as bytes; text starts with a byte order mark, because the page may declare another encoding."""
    data = _as_bytes(content)
    if isinstance(content, str):
        return codecs.BOM_UTF8 + data
    return data


def _content_source(content: str | bytes, image: Image | None) -> str:
    """Return the source of a document without a name.

    Raises:
        IngestError: The image cannot be read.
    """
    if image is None:
        return f"text-{hashlib.blake2b(_as_bytes(content), digest_size=8).hexdigest()}"
    # Many images have the same alt text.
    try:
        return f"image-{image.id}"
    except MediaError as error:
        raise IngestError("documents.add", str(error), name="path") from error


class Documents(metaclass=Hinted):
    """The documents of one scope. `on_change` is called after each change, to start indexing."""

    def __init__(self, database: Database, scope: Scope | SharedScope, on_change: Callable[[], None]) -> None:
        self._database = database
        self._scope = scope
        self._on_change = on_change

    @with_option_hints
    def add(
        self,
        content: Content,
        *,
        source: str = "",
        metadata: Mapping[str, object] | None = None,
        format: Format | None = None,
    ) -> StoredDocument:
        """Store a document under its source, replacing a document that was added under it before.

        The same content again changes nothing. Recall finds the document by its words at once; a thread adds
        the document to the index.

        Args:
            content: Text; bytes, which are parsed by their `format`; or a `Document`, also of LangChain or LlamaIndex,
                whose source, title and metadata are the defaults. The text of a document with an `image` is the alt
                text of the image.
            source: Name of the document, such as an address or a path; returned with each chunk. Without a name, the
                source is a hash of the image, or else of the text: the same content again is the same document.
            metadata: JSON values that are stored with each chunk, for filters.
            format: Format of the content. By default, the format of the file extension in the source (`.pdf`, `.html`,
                `.md`, ...), or text with any other extension.

        Raises:
            IngestError: The arguments are invalid, or the content cannot be read or contains no text; the error names
                every problem.
            StoreError: The database cannot be written.
        """
        title, image = "", None
        document = content if isinstance(content, Document) else foreign_document(content)
        if document is not None:
            if metadata is None:
                metadata = document.metadata
            elif isinstance(metadata, Mapping):
                metadata = {**document.metadata, **metadata}
            image = document.image
            source, content = source or document.source or document.id, document.text
            title = storable(document.title)
        if not source and isinstance(content, str | bytes | bytearray):
            source = _content_source(content, image)
        meta = _checked_metadata_json(content, source, metadata, format)
        content = cast("str | bytes", content)
        if image is not None:
            content, image = storable(checked_alt(source, content)), checked_image(source, image)
        content_format = _content_format(content, source, format)
        data = _marked_page(content) if content_format == "html" else _as_bytes(content)
        writer = DocumentWriter(self._database, scope_id(self._database, self._scope), self._scope.key)
        stored_as = NewDocument(_PREFIX + quote(source, safe="/:"), source, self._database.clock(), meta, image)
        digest_parts = [CHUNKER, content_format, title, meta, hashlib.blake2b(data, digest_size=24).hexdigest()]
        if image is not None:
            digest_parts.append(image.id)
        digest = hashlib.blake2b("\0".join(digest_parts).encode(), digest_size=24).hexdigest()
        stored = writer.find(stored_as.uri)
        if stored.content_hash != digest or writer.id_of(stored_as.uri) not in self._ids(source):
            _write(writer, stored_as, data, content_format, title, Version(digest))
            self._on_change()
        finish_removals(self._database, writer.scope_id)
        for row in self._rows(_FIND_ONE, document=writer.id_of(stored_as.uri)):
            return row
        raise IngestError(source, "another caller forgot the document while it was added; add it again")

    def list(self, *, after: str = "", limit: int = 100) -> tuple[StoredDocument, ...]:
        """Return documents of exactly this scope, in order of their sources.

        Args:
            after: Source of the last document of the previous page.
            limit: Maximum number of documents.

        Raises:
            IngestError: An argument is invalid.
        """
        _check_page("documents.list", limit, "a source", after, is_valid=isinstance(after, str))
        return tuple(self._rows(_PAGE.limit(limit), after=storable(after)))

    def __iter__(self) -> Iterator[StoredDocument]:
        """Yield all documents of exactly this scope, in order of their sources; `list` returns a page of them."""
        after = ""
        while page := self.list(after=after, limit=_PAGE_SIZE):
            after = page[-1].source
            yield from [each for each in page if each.source != after]
            # An added document and a file can have the same source: the page can end between them.
            yield from self._rows(_FIND, named=after)

    def get(self, source: str) -> StoredDocument | None:
        """Return the document with a source, or None. If a file has the same source, the added document is returned.

        Raises:
            IngestError: The source is not text.
        """
        return min(self._rows(_FIND, named=_checked_source(source)), key=lambda each: each.is_file, default=None)

    def chunks(self, source: str, *, after: int = -1, limit: int = 100) -> tuple[Document, ...]:
        """Return chunks of a document in order; an empty tuple for an unknown source.

        Args:
            source: Source of the document.
            after: Position of the last chunk of the previous page.
            limit: Maximum number of chunks.

        Raises:
            IngestError: An argument is invalid.
        """
        _check_page("documents.chunks", limit, "a position", after, is_valid=is_whole(after))
        document = self.get(source)
        if document is None:
            return ()
        image = None
        with self._database.read() as connection:
            bound = {"document": document.id, "after": after, "most": limit}
            rows = sound_rows(connection, _CHUNKS, bound, items.c.id)
            if len(rows) == 1:
                image = read_images(connection, [document.id]).get(document.id)
        return tuple(
            Document(
                row.text,
                id=row.id,
                title=row.title,
                source=document.source,
                position=row.position,
                image=image,
                metadata={**_metadata("items", row), "start": row.start, "end": row.end, "line": row.line},
            )
            for row in rows
        )

    def forget(self, source: str) -> bool:
        """Delete all documents with a source, added or ingested; return True if a document was deleted.

        A file that still exists is stored again when its folder is ingested again.
        """
        ids = self._ids(_checked_source(source))
        for document_id in ids:
            forget_document(self._database, document_id)
        if ids:
            self._on_change()
        return bool(ids)

    def _ids(self, source: str) -> Sequence[str]:
        """Return the ids of the documents with a source, including corrupt documents."""
        bound = {"scopes": known_ids(self._database, self._scope), "named": source}
        with self._database.read() as connection:
            return [row.id for row in raw_rows(connection, _IDS, bound) if is_decoded_text(row.id)]

    def _rows(self, query: Any, **bound: object) -> Sequence[StoredDocument]:
        scopes = known_ids(self._database, self._scope)
        with self._database.read() as connection:
            rows = sound_rows(connection, query, {"scopes": scopes, **bound}, documents.c.id)
        return [_stored_document(row) for row in rows]


def _checked_metadata_json(content: object, source: object, metadata: object, content_format: object) -> str:
    """Check the arguments of `add`; return the metadata as JSON.

    Raises:
        IngestError: An argument is invalid; the error names every problem.
    """
    problems = []
    if not isinstance(content, str | bytes | bytearray):
        expected = "text, bytes or a Document"
        if isinstance(content, Image):
            expected = "Document(ALT_TEXT, image=...)"
        problems.append(f"expected {expected} as the content, got {type(content).__name__}")
    problems += [*_source_problems(source), *_format_problems(content, content_format)]
    meta = "{}"
    if metadata is not None and not _is_mapping_of_names(metadata):
        problems.append(f"expected a mapping of names to values as the metadata, got {brief(metadata)}")
    elif metadata:
        try:
            meta = written_metadata(cast("Mapping[str, object]", metadata), sort_keys=True)
        except ValueError as error:
            problems.append(f"its metadata {error}")
    if problems:
        raise IngestError(f"documents.add, {source!r:.80}", "; ".join(problems))
    return meta


def _source_problems(source: object) -> list[str]:
    if not isinstance(source, str) or not source.strip():
        return [f"name the document: expected text as `source`, got {brief(source)}"]
    if storable(source) != source:
        return ["the source contains NUL or an unpaired surrogate"]
    if len(quote(source, safe="/:")) + len(_PREFIX) > MAX_BYTES:
        limit = f"at most {MAX_BYTES - len(_PREFIX):,} bytes after URL encoding, six or more for a non-ASCII character"
        return [f"the source is too long: expected {limit}"]
    return []


def _format_problems(content: object, content_format: object) -> list[str]:
    names = get_args(Format)
    if content_format is not None and content_format not in names:
        hint = nearest(str(content_format), names)
        return [f"unknown format {content_format!r:.80}{hint}; valid formats: {', '.join(names)}"]
    if content_format in _BINARY and isinstance(content, str):
        return [f"expected bytes as the content of the format {content_format!r}, got text"]
    return []


def _is_mapping_of_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _content_format(content: str | bytes, source: str, declared: Format | None) -> Format:
    """Return the format to read content as.

    Raises:
        IngestError: The content is the bytes of an image, which has no text.
    """
    by_name = declared or _format_of(source)
    if isinstance(content, str) and by_name in (*_BINARY, "image"):
        # A text whose source is a PDF or an image was extracted from that file.
        return "text"
    if by_name == "image":
        raise IngestError(
            source, "an image needs an alt text: add Document(ALT_TEXT, image=Image(...))", name="alt_text"
        )
    return by_name


def _write(
    writer: DocumentWriter, document: NewDocument, data: bytes, content_format: Format, title: str, version: Version
) -> None:
    """Cut content into chunks, and store them."""
    file = SourceFile(Path(document.source), document.source, content_format)
    with BytesStream(file, data, IngestOptions()) as reading:

        def seal() -> Version:
            reading.finish()
            return version

        chunks: Iterable[Chunk]
        if document.image is not None:
            alt = data.decode("utf-8", "surrogatepass")
            chunks = [image_chunk(document.image, alt, title, document.meta)]
        else:
            title_part = [SectionStart(title=title)] if title else []
            blocks = chain(title_part, READERS[content_format](reading))
            cuts = text_chunks(reading, chunk_blocks(blocks))
            chunks = _with_metadata(document.source, cuts, document.meta)
        writer.write(document, chunks, seal)


def _stored_document(row: Any) -> StoredDocument:
    is_file = row.uri.startswith("file:")
    return StoredDocument(row.id, row.source, row.chunks, row.ingested_at, is_file, _metadata("documents", row))


def _metadata(table: str, row: Any) -> dict[str, object]:
    """Return the metadata of a row.

    Raises:
        StoreCorrupt: The metadata is corrupt.
    """
    try:
        return read_metadata(row.meta)
    except ValueError as error:
        raise corrupt_row(table, row.id, "meta", str(error)) from None


def _format_of(source: str) -> Format:
    try:
        path = urlsplit(source).path or source
    except ValueError:
        path = source
    return FORMATS.get(PurePosixPath(path).suffix.lower(), "text")


def _checked_source(source: object) -> str:
    if not isinstance(source, str):
        raise IngestError("documents", f"expected text as the source of a document, got {brief(source)}")
    return storable(source)


def _check_page(operation: str, limit: object, expected: str, after: object, *, is_valid: bool) -> None:
    """Check the arguments of a page; `after` is `expected`.

    Raises:
        IngestError: An argument is invalid; the error names every problem.
    """
    problems = []
    if not is_valid:
        problems.append(f"expected {expected} as 'after', got {brief(after)}")
    if not is_whole(limit, 1):
        problems.append(f"expected a limit of 1 or more, got {brief(limit)}")
    if problems:
        raise IngestError(operation, "; ".join(problems))


def _with_metadata(source: str, chunks: Iterator[Chunk], meta: str) -> Iterator[Chunk]:
    """Yield the chunks, with the metadata of their document added to the metadata of each chunk."""
    if meta == "{}":
        yield from chunks
        return
    common = read_metadata(meta)
    for chunk in chunks:
        try:
            merged = written_metadata({**read_metadata(chunk.meta), **common}, sort_keys=True)
        except ValueError as error:
            raise IngestError(source, f"metadata of chunk {chunk.position} {error}") from None
        yield replace(chunk, meta=merged)
