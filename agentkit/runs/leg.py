"""`Leg`: an entry of a run in the queue of the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import sqlalchemy as sa


class Leg(NamedTuple):
    """One entry of a run in the queue: a run is queued at its start, and again after each interruption or pause."""

    order: int
    """Number of the run in the order of starts."""
    run_id: str
    number: int
    """Number of the leg, from 0."""
    request: str
    """Request for the executor that queues the run, as JSON."""


QueueLeg: TypeAlias = Callable[[sa.Connection, Leg], None]
"""Queues a leg, in a transaction."""
