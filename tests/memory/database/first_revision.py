"""The tables of the first revision of a store, as it made them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(255)


def migrate_to_first(connection: sa.Connection, _: str) -> None:
    context = MigrationContext.configure(connection)
    with Operations.context(context):
        create_first_tables()
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0001')")


def create_first_tables() -> None:
    op.create_table(
        "scopes",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant", _NAME, nullable=False),
        sa.Column("user", _NAME, nullable=False),
        sa.Column("session", _NAME, nullable=False),
        sa.Column("agent", _NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scopes"),
        sa.UniqueConstraint("tenant", "user", "session", "agent", name="uq_scopes_tenant_user_session_agent"),
    )
    op.create_table(
        "conversations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("scope_id", _ID, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_conversations_scope_id"),
        sa.UniqueConstraint("scope_id", "name", name="uq_conversations_scope_id_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "branches",
        sa.Column("id", _ID, nullable=False),
        sa.Column("conversation_id", _ID, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("head_seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_branches"),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name="fk_branches_conversation_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("conversation_id", "name", name="uq_branches_conversation_id_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "messages",
        sa.Column("branch_id", _ID, nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", _NAME),
        sa.Column("format", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("branch_id", "seq", name="pk_messages"),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_messages_branch_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "uq_messages_branch_id_key",
        "messages",
        ["branch_id", "key"],
        unique=True,
        sqlite_where=sa.text("key IS NOT NULL"),
        postgresql_where=sa.text("key IS NOT NULL"),
    )
    op.create_table(
        "documents",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("scope_id", _ID, nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("ingested_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_documents_scope_id"),
        sa.UniqueConstraint("scope_id", "uri", name="uq_documents_scope_id_uri"),
    )
    op.create_table(
        "items",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("scope_id", _ID, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("document_id", sa.String(36)),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_items"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_items_scope_id"),
        sa.ForeignKeyConstraint(["document_id"], ["documents.id"], name="fk_items_document_id", ondelete="CASCADE"),
    )
    op.create_index("ix_items_document_id_position", "items", ["document_id", "position"])
    op.create_index("ix_items_scope_id", "items", ["scope_id"])
    op.create_table(
        "vector_spaces",
        sa.Column("space", sa.String(64), nullable=False),
        sa.Column("index_id", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("space", name="pk_vector_spaces"),
    )
    op.create_table(
        "vector_state",
        sa.Column("item_id", sa.String(36), nullable=False),
        sa.Column("space", sa.String(64), nullable=False),
        sa.Column("want", sa.Integer(), nullable=False),
        sa.Column("have", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("item_id", "space", name="pk_vector_state"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_vector_state_pending",
        "vector_state",
        ["space", "item_id"],
        sqlite_where=sa.text("want != have"),
        postgresql_where=sa.text("want != have"),
    )
