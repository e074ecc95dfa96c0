"""The background work of a memory, in a thread of the caller's own."""

from __future__ import annotations

import threading
from pathlib import Path

from agentkit.memory import Memory


def test_a_worker_works_in_the_thread_that_runs_it_until_it_is_stopped(tmp_path: Path) -> None:
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
