"""Which scope a row of the outbox belongs to, so that a reader finds what its own scopes have pending."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_SCOPES = "UPDATE vector_state SET scope_id = (SELECT scope_id FROM items WHERE items.id = vector_state.item_id)"


def upgrade() -> None:
    """Add the column, with the scopes of the items, and put it into the index of what is pending."""
    op.add_column("vector_state", sa.Column("scope_id", sa.BigInteger()))
    op.execute(_SCOPES)
    pending = sa.text("want != have")
    op.create_index(
        "ix_vector_state_pending_scope",
        "vector_state",
        ["space", "scope_id"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
