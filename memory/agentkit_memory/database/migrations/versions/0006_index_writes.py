"""How many batches the index of a space took, so that an older copy of the database or of the index is noticed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the number; an index without one is compared once."""
    op.add_column("vector_spaces", sa.Column("writes", sa.BigInteger(), nullable=False, server_default="0"))
