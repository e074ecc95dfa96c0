"""Metadata of documents that are given rather than read from files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("documents", sa.Column("meta", sa.Text(), nullable=False, server_default="{}"))
