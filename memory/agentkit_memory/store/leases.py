"""Leases on rows of the outbox, for workers of the index and of facts alike.

A row is held by the worker named in `leased_by` until `leased_until`. Without a name, a failed row may be tried again
from then on.

Every statement is about one space (`this`), and one worker (`me`) or one `item`.
"""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from agentkit_memory.store.tables import vector_state

__all__ = ["DONE", "FAILED", "HELD", "MAX_LEASE", "RELEASE", "RENEW", "retry_pause"]

MAX_LEASE = 86_400.0
"""Seconds. A longer lease was made before the clock was set back, and is void."""

_MAX_PAUSE = 300.0
"""Seconds between two tries of what failed."""

_state = vector_state.c
_this = _state.space == bindparam("this")
_mine = (_this, _state.want != _state.have, _state.leased_by == bindparam("me"))
_one = (_this, _state.item_id == bindparam("item"))

HELD = select(_state.item_id, _state.want).where(*_mine).order_by(_state.item_id).with_for_update()
"""The rows that a worker still holds, locked until the transaction ends."""
RENEW = update(vector_state).where(*_mine).values(leased_until=bindparam("until"))
RELEASE = update(vector_state).where(*_mine).values(leased_by=None, leased_until=None)
DONE = (
    update(vector_state)
    .where(*_one)
    .values(have=bindparam("done"), attempts=0, problem=bindparam("error"), leased_by=None, leased_until=None)
)
"""The wanted version is indexed; with an error, it was given up."""
FAILED = (
    update(vector_state)
    .where(*_one)
    .values(leased_by=None, leased_until=bindparam("again"), attempts=bindparam("times"), problem=bindparam("error"))
)
"""To be tried again, not before `again`."""


def retry_pause(attempts: int) -> float:
    """Return the seconds until the next try after so many failed ones: 1, 2, 4, ... up to five minutes."""
    return min(2.0 ** min(attempts, 20), _MAX_PAUSE)
