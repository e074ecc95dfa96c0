"""A thread's work in tests: one worker of the index, until it is stopped."""

from __future__ import annotations

from threading import Event

from agentkit_memory.errors import IndexUnavailable, StoreUnavailable
from agentkit_memory.index.index_worker import Worker

__all__ = ["work_until"]


def work_until(stop: Event, worker: Worker) -> None:
    while not stop.is_set():
        try:
            worked = worker.run_once()
        except (StoreUnavailable, IndexUnavailable):
            worked = 0
        if not worked:
            stop.wait(0.01)
