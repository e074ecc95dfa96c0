"""The first form of a store, from which older ones are upgraded. New stores are made from the tables at once."""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: whatever is at this revision has its tables."""
