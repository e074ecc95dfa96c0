"""What workers do with the rows of the outbox that they hold: the same for points and for facts.

A row is held by the worker whose name is in `leased_by` until `leased_until`. With no name, that is when what failed
may be tried again.

Every statement is of one space (`this`), and of one worker (`me`) or one `item`.
"""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from agentkit_memory.store.tables import vector_state

__all__ = ["DONE", "FAILED", "HELD", "LONGEST", "RELEASE", "RENEW"]

LONGEST = 86_400.0
"""Seconds. Nobody holds a row longer: a lease that says so was made before the clock was set back."""

_state = vector_state.c
_this = _state.space == bindparam("this")
_mine = (_this, _state.want != _state.have, _state.leased_by == bindparam("me"))
_one = (_this, _state.item_id == bindparam("item"))

HELD = select(_state.item_id, _state.want).where(*_mine).order_by(_state.item_id).with_for_update()
"""What a worker still holds, and keeps until the transaction ends."""
RENEW = update(vector_state).where(*_mine).values(leased_until=bindparam("until"))
RELEASE = update(vector_state).where(*_mine).values(leased_by=None, leased_until=None)
DONE = (
    update(vector_state)
    .where(*_one)
    .values(have=bindparam("done"), attempts=0, problem=bindparam("said"), leased_by=None, leased_until=None)
)
"""What was wanted is there; or, with a problem, it was given up."""
FAILED = (
    update(vector_state)
    .where(*_one)
    .values(leased_by=None, leased_until=bindparam("again"), attempts=bindparam("times"), problem=bindparam("said"))
)
"""To be tried again, not before some time."""
