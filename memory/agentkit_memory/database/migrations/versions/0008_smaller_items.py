"""Indexes of items hold only those that have what they are ordered by, and the hash of a turn or fact is not kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes anew, and empty the hashes that nothing is compared with."""
    for name, column in (("document", "document_id"), ("branch", "branch_id")):
        op.drop_index(f"ix_items_{column}_position", "items")
        where = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_items_of_{name}", "items", [column, "position"], sqlite_where=where, postgresql_where=where
        )
    op.execute("UPDATE items SET content_hash = '' WHERE kind IN ('turn', 'fact')")
