"""Changing the model: a new space is built beside the active one, checked, made active, and the old one dropped.

Every step may be repeated: a crash anywhere leaves a complete active space, and the next call goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import bindparam, func, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import vector_state
from agentkit_memory.embedders.encoder import Encoder
from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.process.failpoints import failpoint
from agentkit_memory.reembed.gate import Gate, GateCheck, Reembedding, ReembedProgress
from agentkit_memory.reembed.switching import begin, flip, try_again
from agentkit_memory.reembed.trial import check
from agentkit_memory.scope import Scope
from agentkit_memory.store.spaces import Space, space_name

__all__ = ["reembed"]

_MAX_TRIES = 3
"""How often an item, or a model that is away, is tried before this gives up for now."""

_state = vector_state.c
_this_space = _state.space == bindparam("this")
_waits = _state.want != _state.have
_COUNTS = select(
    func.count().filter(_state.want > 0).label("items"),
    func.count().filter(_waits).label("waiting"),
    func.count().filter(_waits, _state.attempts >= _MAX_TRIES).label("given_up"),
    func.min(_state.problem).filter(_waits).label("problem"),
).where(_this_space)


def reembed(
    indexes: Indexes,
    embedders: Embedders,
    encoder: Encoder | None,
    gate: Gate | None,
    scope: Scope,
    on_progress: Callable[[ReembedProgress], None] | None,
) -> Reembedding:
    """Change the model of a store; see `Admin.reembed`."""
    if not isinstance(gate, Gate | None):
        raise InvalidArgument(f"reembed: expected a Gate, or None for no checks, got {gate!r}", name="gate")
    if on_progress is not None and not callable(on_progress):
        raise InvalidArgument(
            f"reembed: expected a function to call with the progress, got {on_progress!r}", name="on_progress"
        )
    database = indexes.database
    model = "" if encoder is None else encoder.model
    if indexes.active().name == space_name(model):
        return _ended(indexes, indexes.active(), True)
    # An earlier change may have left an index.
    indexes.sweep()
    space = begin(database, model, 0 if encoder is None else encoder.measure())
    failpoint("reembed.begun")
    # Opening the index queues all items for it, if they were not.
    index = indexes.get(space)
    failpoint("reembed.queued")
    counts = _build(indexes, space, on_progress)
    failpoint("reembed.built")
    why = ""
    if counts.waiting > counts.items * (gate.failing if gate is not None else 1.0):
        reason = counts.problem or "other workers hold them"
        why = f"{counts.waiting} of {counts.items} items have no vector yet: {reason}"
    checks: tuple[GateCheck, ...] = ()
    if gate is not None and not why:
        checks = check(indexes, embedders, space, index, gate, scope)
        failed = [each for each in checks if not each.passed]
        why = "; ".join(
            f"{each.name}: {each.found} of {each.tried} found, {each.minimum:.0%} needed" for each in failed
        )
        failpoint("reembed.checked")
    if why:
        return _ended(indexes, space, False, why, checks)
    flipped = flip(database, space)
    failpoint("reembed.flipped")
    return _ended(indexes, space, flipped, "" if flipped else "it was abandoned meanwhile", checks)


def _build(indexes: Indexes, space: Space, on_progress: Callable[[ReembedProgress], None] | None) -> Any:
    """Work until every item is in the index of the space or has failed too often."""
    database = indexes.database
    try_again(database, space)
    worker = indexes.worker(space)
    counts = _count(database, space)
    done = counts.items - counts.waiting
    while True:
        if on_progress is not None:
            on_progress(ReembedProgress(space.name, max(0, min(done, counts.items)), counts.items))
        worked = worker.run_once()
        done += worked
        if worked:
            continue
        counts = _count(database, space)
        done = counts.items - counts.waiting
        if not counts.waiting or counts.waiting == counts.given_up:
            return counts
        # Other workers hold some, or some wait for their next try.
        time.sleep(0.05)


def _count(database: Database, space: Space) -> Any:
    """Return how many `items`, `waiting` and `given_up` ones there are, and the first `problem`."""
    with database.read() as connection:
        return connection.execute(_COUNTS, {"this": space.name}).one()


def _ended(
    indexes: Indexes, space: Space, flipped: bool, why: str = "", checks: tuple[GateCheck, ...] = ()
) -> Reembedding:
    left = indexes.sweep()
    counts = _count(indexes.database, space)
    return Reembedding(space.name, space.model, flipped, why, counts.items, counts.waiting, checks, tuple(left))
