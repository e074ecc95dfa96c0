"""Whose message a turn is; notes beside the messages of a branch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ROLES = """
UPDATE items SET role = COALESCE((
  SELECT {role} FROM messages WHERE messages.branch_id = items.branch_id AND messages.seq = items.position
), '') WHERE kind = 'turn'
"""


def upgrade() -> None:
    """Add the column, with the roles that the messages have, and the table."""
    op.add_column("items", sa.Column("role", sa.String(16), nullable=False, server_default=""))
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    role = "json_extract(body, '$.role')" if is_sqlite else "body::json ->> 'role'"
    op.execute(_ROLES.format(role=role))
    op.create_table(
        "branch_notes",
        sa.Column("branch_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("branch_id", "seq", "name", name="pk_branch_notes"),
        sa.ForeignKeyConstraint(["branch_id"], ["branches.id"], name="fk_branch_notes_branch_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
