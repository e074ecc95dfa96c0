"""The tables, as SQLAlchemy sees them. `migrations/` creates them; a test compares the two."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    column,
)

from agentkit_memory.scope import MAX_NAME

__all__ = [
    "METADATA",
    "branches",
    "conversations",
    "documents",
    "items",
    "messages",
    "scopes",
    "vector_spaces",
    "vector_state",
]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_BigId = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers rows by itself only in an INTEGER key
_Name = String(MAX_NAME)

# A scope is stored once; everything that belongs to it carries its number, in SQL and in the vector index.
scopes = Table(
    "scopes",
    METADATA,
    Column("id", _BigId, primary_key=True),
    Column("tenant", _Name, nullable=False),
    Column("user", _Name, nullable=False),
    Column("session", _Name, nullable=False),
    Column("agent", _Name, nullable=False),
    UniqueConstraint("tenant", "user", "session", "agent"),
)

conversations = Table(
    "conversations",
    METADATA,
    Column("id", _BigId, primary_key=True),
    Column("scope_id", ForeignKey("scopes.id"), nullable=False),
    Column("name", _Name, nullable=False),
    Column("created_at", Float(53), nullable=False),
    UniqueConstraint("scope_id", "name"),
)

# `head_seq` is what a writer compares and swaps: the number of messages of the branch.
branches = Table(
    "branches",
    METADATA,
    Column("id", _BigId, primary_key=True),
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False),
    Column("name", _Name, nullable=False),
    Column("head_seq", Integer, nullable=False),
    UniqueConstraint("conversation_id", "name"),
)

# `key` stands on the first message of an append only, so that NULLs do not collide.
messages = Table(
    "messages",
    METADATA,
    Column("branch_id", ForeignKey("branches.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("key", _Name),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Float(53), nullable=False),
    Index(
        "uq_messages_branch_id_key",
        "branch_id",
        "key",
        unique=True,
        sqlite_where=column("key").is_not(None),
        postgresql_where=column("key").is_not(None),
    ),
    sqlite_with_rowid=False,
)

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
    UniqueConstraint("scope_id", "uri"),
)

# What can be recalled. Chunks for now: their neighbours are the positions next to theirs.
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
    Index(None, "document_id", "position"),
    Index(None, "scope_id"),
)

# Which index the `have` of `vector_state` speaks of: another index holds nothing of it.
vector_spaces = Table(
    "vector_spaces",
    METADATA,
    Column("space", String(64), primary_key=True),
    Column("index_id", String(36), nullable=False),
)

# The outbox. `want` and `have` are versions that only grow in size; a negative one means "not in the index".
# No foreign key: the row of a deleted item stays until the index has forgotten it too.
vector_state = Table(
    "vector_state",
    METADATA,
    Column("item_id", String(36), primary_key=True),
    Column("space", String(64), primary_key=True),
    Column("want", Integer, nullable=False),
    Column("have", Integer, nullable=False),
    Index(
        "ix_vector_state_pending",
        "space",
        "item_id",
        sqlite_where=column("want") != column("have"),
        postgresql_where=column("want") != column("have"),
    ),
    sqlite_with_rowid=False,
)
