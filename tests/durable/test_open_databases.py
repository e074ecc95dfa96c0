"""What opened databases of durable runs keep in memory."""

from __future__ import annotations

import gc

import pytest

from agentkit import Runs
from agentkit.durable import DurableError


@pytest.mark.long
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


@pytest.mark.parametrize(
    "rest", [":///runs.db?mode=ro", "://host/runs.db", "://bob:key@/runs.db", "+aiosqlite:///runs.db"]
)
def test_what_a_sqlite_address_says_beside_its_file_is_an_error(rest: str) -> None:
    with pytest.raises(DurableError, match="takes a file and nothing else"):
        assert Runs(f"sqlite{rest}").store.tables
