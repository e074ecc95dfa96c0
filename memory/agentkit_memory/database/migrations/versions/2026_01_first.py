"""The first revision of a store. New stores are created from `tables.py`; later revisions change existing stores."""

revision = "2026_01"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: a store at this revision has its tables."""
