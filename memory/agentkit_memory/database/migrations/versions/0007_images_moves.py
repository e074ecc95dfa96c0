"""Images; chunks of a long document that stand elsewhere in its next generation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _of_document(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["document_id"], ["documents.id"], name=f"fk_{table}_document_id", ondelete="CASCADE"
    )


def upgrade() -> None:
    """Add the two tables."""
    op.create_table(
        "images",
        sa.Column("document_id", sa.String(36), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("document_id", name="pk_images"),
        _of_document("images"),
    )
    op.create_table(
        "chunk_moves",
        sa.Column("document_id", sa.String(36), nullable=False),
        sa.Column("item_id", sa.String(36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("meta", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("document_id", "item_id", name="pk_chunk_moves"),
        _of_document("chunk_moves"),
        sqlite_with_rowid=False,
    )
