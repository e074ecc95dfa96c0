"""The text of a turn that is a whole message is read from the message; turns that were stored before keep their own.

No table changes. The revision keeps an older version of agentkit, which would read empty texts, from opening the store.
"""

from __future__ import annotations

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Leave all as it is."""
