"""The background work of a memory, in a thread of the caller."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from agentkit.memory import Memory
from agentkit.memory.recall import Point, VectorIndex
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.index.qdrant_edge import EdgeIndex


def test_a_worker_runs_in_the_thread_of_its_caller_until_it_is_stopped(tmp_path: Path) -> None:
    with Memory(tmp_path) as memory:
        worker, stop = memory.worker(), threading.Event()
        thread = threading.Thread(target=worker.run, args=(stop, 0.01))
        thread.start()
        try:
            memory.documents.add("The heron fishes at dawn.", source="heron.md")
            while (now := memory.admin.verify()).pending or not now.points:
                stop.wait(0.01)
        finally:
            stop.set()
            thread.join(60)
        assert not thread.is_alive()


def test_a_long_backlog_of_messages_becomes_items_and_points_in_rounds(tmp_path: Path) -> None:
    waiting: list[int] = []

    class Counting(EdgeIndex):
        """Index that counts the waiting items at each write."""

        def upsert(self, points: Sequence[Point]) -> None:
            waiting.extend(StoreProbe(memory).values("SELECT count(*) FROM vector_state WHERE want != have"))
            super().upsert(points)

    def opener(space: str, dimensions: int) -> VectorIndex:
        return Counting(tmp_path / space, dimensions)

    with Memory(tmp_path, index=opener) as memory:
        memory.session("s").append(*[Message("user", "x")] * 4500)
        assert memory.worker().drain() >= 4500
        assert max(waiting) < 3000 and memory.admin.verify(sample=0).points == 4500
