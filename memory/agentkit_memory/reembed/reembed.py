"""Change of the model: a new space is built next to the active space, checked and activated; the old space is dropped.

After a crash, the active space is complete, and the next call continues the change.
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

_MAX_TRIES = 3
"""Maximum tries of an item before the build ends without it, for example while the model is not available."""

_state = vector_state.c
_this_space = _state.space == bindparam("this")
_waits = _state.want != _state.have
# A waiting removal is no item of the space: removals may even outnumber the items.
_is_item = _state.want > 0
_COUNTS = select(
    func.count().filter(_is_item).label("items"),
    func.count().filter(_is_item, _waits).label("failing"),
    func.count().filter(_waits).label("waiting"),
    func.count().filter(_waits, _state.attempts >= _MAX_TRIES).label("given_up"),
    func.min(_state.problem).filter(_is_item, _waits).label("problem"),
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
    model = ""
    if encoder is not None:
        model = encoder.model
    active = indexes.active()
    if active.name == space_name(model):
        return _result(indexes, active, True)
    # An earlier change may have left the index of a retired space.
    indexes.sweep()
    dimensions = 0
    if encoder is not None:
        dimensions = encoder.measure()
    space = begin(indexes.database, model, dimensions)
    failpoint("reembed.begun")
    # Opening the index queues all items for the space, unless they are queued already.
    index = indexes.get(space)
    failpoint("reembed.queued")
    counts = _build(indexes, space, on_progress)
    failpoint("reembed.built")
    checks: tuple[GateCheck, ...] = ()
    if gate is not None:
        problem = _failure_problem(counts, gate)
        if not problem:
            checks = check(indexes, embedders, space, index, gate, scope)
            failpoint("reembed.checked")
            failed = [each for each in checks if not each.passed]
            problem = "; ".join(
                f"{each.name}: {each.found} of {each.tried} found, {each.minimum:.0%} needed" for each in failed
            )
        if problem:
            return _result(indexes, space, False, problem, checks)
    flipped = flip(indexes.database, space)
    failpoint("reembed.flipped")
    if not flipped:
        return _result(indexes, space, False, "it was abandoned meanwhile", checks)
    return _result(indexes, space, True, "", checks)


def _failure_problem(counts: Any, gate: Gate) -> str:
    """Return the problem of items without a vector; empty text if the gate allows their number."""
    if counts.failing <= counts.items * gate.failing:
        return ""
    reason = counts.problem or "other workers have leased them"
    return f"{counts.failing} of {counts.items} items have no vector yet: {reason}"


def _build(indexes: Indexes, space: Space, on_progress: Callable[[ReembedProgress], None] | None) -> Any:
    """Process the outbox until every item is in the index of the space or has failed too often; return the counts."""
    database = indexes.database
    try_again(database, space)
    worker = indexes.worker(space)
    counts = _count(database, space)
    done = counts.items - counts.failing
    while True:
        if on_progress is not None:
            on_progress(ReembedProgress(space.name, max(0, min(done, counts.items)), counts.items))
        worked = worker.run_once()
        done += worked
        if worked:
            continue
        counts = _count(database, space)
        done = counts.items - counts.failing
        if not counts.waiting or counts.waiting == counts.given_up:
            return counts
        # Other workers have leased rows, or failed items wait for their next try.
        time.sleep(0.05)


def _count(database: Database, space: Space) -> Any:
    """Return the counts of a space.

    These are `items`, `failing` items without a vector, `waiting` rows (items and removals), rows that are `given_up`,
    and the first `problem`.
    """
    with database.read() as connection:
        return connection.execute(_COUNTS, {"this": space.name}).one()


def _result(
    indexes: Indexes, space: Space, flipped: bool, problem: str = "", checks: tuple[GateCheck, ...] = ()
) -> Reembedding:
    """Drop retired spaces, and return the result of a change."""
    undropped = tuple(indexes.sweep())
    counts = _count(indexes.database, space)
    return Reembedding(space.name, space.model, flipped, problem, counts.items, counts.failing, checks, undropped)
