"""The newest items of a scope are found by an index: without a vector index, a recall reads them."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    op.create_index("ix_items_scope_id_created_at", "items", ["scope_id", "created_at"])
