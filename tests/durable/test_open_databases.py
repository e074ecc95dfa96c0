"""What opened databases of durable runs keep in memory."""

from __future__ import annotations

import gc

from agentkit import Runs


def test_lists_of_ids_of_every_length_do_not_stay_in_memory(runs: Runs) -> None:
    def compiled() -> int:
        gc.collect()
        return sum(f"{type(each).__module__}.{type(each).__name__}" == "sqlite3.Statement" for each in gc.get_objects())

    assert runs.store.infos(["0"]) == []
    before = compiled()
    assert before > 0
    for length in range(2, 80):
        assert runs.store.infos([f"{number}" for number in range(length)]) == []
    assert compiled() - before < 40
