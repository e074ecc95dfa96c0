"""The tables of a store. A new store is created from them; revisions in `migrations/` upgrade existing stores."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from agentkit_memory.scope import MAX_NAME, NAMES

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite assigns ids by itself only in an INTEGER key.
_BigId = BigInteger().with_variant(Integer(), "sqlite")
_Name = String(MAX_NAME)


def _partial(name: str, where: str, *columns: str, unique: bool = False) -> Index:
    """Return an index over the rows that meet a condition."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


# A scope is stored once. Rows and points that belong to it refer to its number, in SQL and in the vector index.
scopes = Table(
    "scopes",
    METADATA,
    Column("id", _BigId, primary_key=True),
    *(Column(name, _Name, nullable=False) for name in NAMES),
    UniqueConstraint(*NAMES),
)

conversations = Table(
    "conversations",
    METADATA,
    Column("id", _BigId, primary_key=True),
    Column("scope_id", ForeignKey("scopes.id"), nullable=False),
    Column("name", _Name, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("expires_at", Float(53)),
    UniqueConstraint("scope_id", "name"),
    _partial("ix_conversations_expires_at", "expires_at IS NOT NULL", "expires_at"),
    # The number of a deleted conversation is never used again: a session may have the conversation open.
    sqlite_autoincrement=True,
)

# `head_seq` is the number of messages of the branch, which a writer compares and swaps. A fork has the messages of its
# parent up to `fork_seq`, followed by messages that only the fork has. Messages up to `itemised_seq` are items already.
# `edits` counts redactions of the conversation and rewinds of the branch, so that outdated views are detected.
branches = Table(
    "branches",
    METADATA,
    Column("id", _BigId, primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False),
    Column("name", _Name, nullable=False),
    Column("head_seq", Integer, nullable=False),
    Column("parent_id", BigInteger),
    Column("fork_seq", Integer, nullable=False, server_default="0"),
    Column("itemised_seq", Integer, nullable=False, server_default="0"),
    Column("edits", Integer, nullable=False, server_default="0"),
    UniqueConstraint("conversation_id", "name"),
    _partial("ix_branches_behind", "itemised_seq < head_seq", "conversation_id"),
    sqlite_autoincrement=True,
)

# Only the first message of an append has a `key`, if any. `said_at` is NULL if it is equal to `created_at`.
messages = Table(
    "messages",
    METADATA,
    Column("branch_id", ForeignKey("branches.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("key", _Name),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("redacted_at", Float(53)),
    Column("said_at", Float(53)),
    _partial("uq_messages_branch_id_key", "key IS NOT NULL", "branch_id", "key", unique=True),
    sqlite_with_rowid=False,
)

# Notes about the first `seq` messages of a branch, such as a summary. Of the notes with one name, the note with the
# highest `seq` is valid. `body` is JSON.
branch_notes = Table(
    "branch_notes",
    METADATA,
    Column("branch_id", ForeignKey("branches.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("name", _Name, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    sqlite_with_rowid=False,
)

# Tool calls, written with the message that requests them; `result_seq` is the number of the message with the result.
tool_calls = Table(
    "tool_calls",
    METADATA,
    Column("branch_id", ForeignKey("branches.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("call_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("result_seq", Integer),
    Index(None, "branch_id", "call_id"),
    sqlite_with_rowid=False,
)

# Each content of a document has a generation, from 1. `generation` is the published generation, whose chunks are
# recalled; 0 if no generation was published yet, -1 while the document is being removed. `stage` names the last attempt
# to write the document, until no chunks of other generations are left. `stamp` contains the times and the size of the
# file when it was read; it is empty if a later change of the file may leave them the same. `meta` is the metadata of an
# added document; its chunks have the same metadata.
documents = Table(
    "documents",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("scope_id", ForeignKey("scopes.id"), nullable=False),
    Column("uri", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("content_hash", String(64), nullable=False),
    Column("chunks", Integer, nullable=False),
    Column("ingested_at", Float(53), nullable=False),
    Column("generation", Integer, nullable=False, server_default="0"),
    Column("stage", String(36), nullable=False, server_default=""),
    Column("stamp", Text, nullable=False, server_default=""),
    Column("meta", Text, nullable=False, server_default="{}"),
    UniqueConstraint("scope_id", "uri"),
    _partial("ix_documents_unsettled", "stage != ''", "scope_id"),
)

# Recallable items: a `chunk` of a document, an `image`, a `turn` of a conversation, a `fact`. `text` is empty if it is
# equal to the text of the whole message, and is read from the message (`item_text.py`). The position and the metadata
# of a chunk are in `document_chunks`; here they are 0 and empty. `content_hash` is the hash of an image, else empty.
# `said_at` is NULL if it is equal to `created_at`.
items = Table(
    "items",
    METADATA,
    Column("id", String(36), primary_key=True),
    Column("scope_id", ForeignKey("scopes.id"), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("document_id", ForeignKey("documents.id", ondelete="CASCADE")),
    Column("position", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("content_hash", String(64), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("line", Integer, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Column("branch_id", BigInteger),
    Column("speaker", Text, nullable=False, server_default=""),
    Column("role", String(16), nullable=False, server_default=""),
    Column("said_at", Float(53)),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("valid_from", Float(53)),
    Column("valid_to", Float(53)),
    Column("superseded_by", String(36)),
    Column("meta", Text, nullable=False, server_default="{}"),
    _partial("ix_items_of_document", "document_id IS NOT NULL", "document_id"),
    _partial("ix_items_of_branch", "branch_id IS NOT NULL", "branch_id", "position"),
    _partial("ix_items_of_facts", "kind = 'fact'", "scope_id", "position"),
    Index(None, "scope_id", "created_at"),
)

# The chunks of each generation of a document. Chunks of several generations with equal heading and text are one item.
document_chunks = Table(
    "document_chunks",
    METADATA,
    Column("item_id", ForeignKey("items.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("document_id", ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("line", Integer, nullable=False),
    Column("meta", Text, nullable=False),
    Index("ix_document_chunks_in_order", "document_id", "generation", "position"),
    sqlite_with_rowid=False,
)

# The image of an image document, whose only item is the alt text of the image. `content` is empty if the image is
# stored as an address (`url`).
images = Table(
    "images",
    METADATA,
    Column("document_id", ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    Column("media_type", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

# The sources of a fact. The fact is deleted if one of its sources is deleted.
item_sources = Table(
    "item_sources",
    METADATA,
    Column("item_id", ForeignKey("items.id", ondelete="CASCADE"), primary_key=True),
    Column("source_id", String(36), primary_key=True),
    Index(None, "source_id"),
    sqlite_with_rowid=False,
)

# Spaces. `index_id` is the id of the index that the `have` of `vector_state` describes. `writes` is the number of
# acknowledged batches. The index stores this number too, so that an old copy of the index or database is detected.
vector_spaces = Table(
    "vector_spaces",
    METADATA,
    Column("space", String(64), primary_key=True),
    Column("index_id", String(36), nullable=False),
    Column("model", _Name, nullable=False, server_default=""),
    Column("dimensions", Integer, nullable=False, server_default="0"),
    Column("state", String(16), nullable=False, server_default="active"),
    Column("created_at", Float(53), nullable=False, server_default="0"),
    Column("writes", BigInteger, nullable=False, server_default="0"),
)

# The outbox. `want` is the target version of an item in an index, `have` the acknowledged version. The absolute value
# of a version only grows; a negative version means "not in the index". `item_id` is no foreign key: the row of a
# deleted item stays until the index has removed the item too. A worker leases a row until `leased_until`; then another
# worker may lease the row. A failed row without a worker waits until that time. `scope_id` is NULL if it is unknown.
vector_state = Table(
    "vector_state",
    METADATA,
    Column("item_id", String(36), primary_key=True),
    Column("space", String(64), primary_key=True),
    Column("want", Integer, nullable=False),
    Column("have", Integer, nullable=False),
    Column("scope_id", BigInteger),
    Column("leased_by", String(36)),
    Column("leased_until", Float(53)),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("problem", Text),
    _partial("ix_vector_state_pending", "want != have", "space", "item_id"),
    _partial("ix_vector_state_pending_scope", "want != have", "space", "scope_id"),
    # Without this index, a worker would read all waiting rows to find the rows that it leases.
    _partial("ix_vector_state_leased", "leased_by IS NOT NULL", "leased_by", "space"),
    sqlite_with_rowid=False,
)

# Dense vectors (32-bit floats, little-endian) by the hash of the embedded content, so that a text is sent to a model
# once. The table has row ids: without them, SQLite would use a separate page for each vector of more than a kilobyte.
embeddings = Table(
    "embeddings",
    METADATA,
    Column("model", _Name, primary_key=True),
    Column("content_hash", String(64), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
    Column("created_at", Float(53), nullable=False),
)

# Logs of recalls, in the order of writing. `policy`, `candidates` and `degraded` are JSON.
recall_logs = Table(
    "recall_logs",
    METADATA,
    Column("id", _BigId, primary_key=True),
    Column("scope_id", ForeignKey("scopes.id"), nullable=False),
    Column("conversation", _Name, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("query", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("candidates", Text, nullable=False),
    Column("degraded", Text, nullable=False),
    Column("took_us", Integer, nullable=False),
    Index(None, "scope_id", "id"),
    sqlite_autoincrement=True,
)

# Requested erasures; an interrupted erasure has no `finished_at` and is resumed.
erasures = Table(
    "erasures",
    METADATA,
    Column("id", String(36), primary_key=True),
    *(Column(name, _Name, nullable=False) for name in NAMES),
    Column("requested_at", Float(53), nullable=False),
    Column("finished_at", Float(53)),
    Column("counts", Text, nullable=False),
)
