"""Turns and facts as items, forks, redaction and expiry, tool calls, leases, recall logs, embeddings, erasures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String(255)
_TIME = sa.Float(53)
_PARTIAL = (
    ("conversations", "ix_conversations_expires_at", "expires_at", "expires_at IS NOT NULL"),
    ("branches", "ix_branches_behind", "conversation_id", "itemised_seq < head_seq"),
    ("items", "ix_items_leaving", "document_id", "last_generation IS NOT NULL"),
)


def _added() -> dict[str, tuple[sa.Column[object], ...]]:
    return {
        "conversations": (sa.Column("expires_at", _TIME),),
        "branches": (
            sa.Column("parent_id", sa.BigInteger()),
            sa.Column("fork_seq", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("itemised_seq", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("edits", sa.Integer(), nullable=False, server_default="0"),
        ),
        "messages": (sa.Column("redacted_at", _TIME), sa.Column("said_at", _TIME)),
        "items": (
            sa.Column("branch_id", sa.BigInteger()),
            sa.Column("speaker", sa.Text(), nullable=False, server_default=""),
            sa.Column("said_at", _TIME),
            sa.Column("version", sa.Integer(), nullable=False, server_default="1"),
            sa.Column("valid_from", _TIME),
            sa.Column("valid_to", _TIME),
            sa.Column("superseded_by", sa.String(36)),
            sa.Column("meta", sa.Text(), nullable=False, server_default="{}"),
            sa.Column("first_generation", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("last_generation", sa.Integer()),
        ),
        "documents": (
            sa.Column("generation", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("stage", sa.String(36), nullable=False, server_default=""),
            sa.Column("stamp", sa.Text(), nullable=False, server_default=""),
        ),
        "vector_spaces": (
            sa.Column("model", _NAME, nullable=False, server_default=""),
            sa.Column("dimensions", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("state", sa.String(16), nullable=False, server_default="active"),
            sa.Column("created_at", _TIME, nullable=False, server_default="0"),
        ),
        "vector_state": (
            sa.Column("leased_by", sa.String(36)),
            sa.Column("leased_until", _TIME),
            sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("problem", sa.Text()),
        ),
    }


def upgrade() -> None:
    """Add columns to the tables there are, then the new tables."""
    for table, columns in _added().items():
        for column in columns:
            op.add_column(table, column)
    op.create_index("ix_items_branch_id_position", "items", ["branch_id", "position"])
    op.create_index("ix_items_scope_id_kind_position", "items", ["scope_id", "kind", "position"])
    op.drop_index("ix_items_scope_id", "items")
    for table, name, indexed, where in _PARTIAL:
        op.create_index(name, table, [indexed], sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    op.create_table(
        "item_sources",
        sa.Column("item_id", sa.String(36), nullable=False),
        sa.Column("source_id", sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint("item_id", "source_id", name="pk_item_sources"),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name="fk_item_sources_item_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_item_sources_source_id", "item_sources", ["source_id"])
    op.create_table(
        "tool_calls",
        sa.Column("branch_id", _ID, nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("result_seq", sa.Integer()),
        sa.PrimaryKeyConstraint("branch_id", "seq", "position", name="pk_tool_calls"),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_tool_calls_branch_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tool_calls_branch_id_call_id", "tool_calls", ["branch_id", "call_id"])
    op.create_table(
        "embeddings",
        sa.Column("model", _NAME, nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("model", "content_hash", name="pk_embeddings"),
    )
    op.create_table(
        "recall_logs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("scope_id", _ID, nullable=False),
        sa.Column("conversation", _NAME, nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("candidates", sa.Text(), nullable=False),
        sa.Column("degraded", sa.Text(), nullable=False),
        sa.Column("took_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_recall_logs"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_recall_logs_scope_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_recall_logs_scope_id_id", "recall_logs", ["scope_id", "id"])
    op.create_table(
        "erasures",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("tenant", _NAME, nullable=False),
        sa.Column("user", _NAME, nullable=False),
        sa.Column("session", _NAME, nullable=False),
        sa.Column("agent", _NAME, nullable=False),
        sa.Column("requested_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_erasures"),
    )
