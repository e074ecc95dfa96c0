"""Killed at every failpoint between any two writes, on both databases: nothing lost, doubled, orphaned or stale.

The short form of `benchmarks/crashes.py`, whose long form kills at least 500 processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.failpoints import FAILPOINTS
from tests.paths import ROOT

CRASHES = ROOT / "benchmarks" / "crashes.py"
FAULTS = ("lost", "duplicate", "orphan", "stale", "missing", "pending", "damaged")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, and killed by signals")


@pytest.mark.parametrize(
    ("store", "kills"),
    [
        pytest.param("sqlite+edge", 5, marks=pytest.mark.long),
        pytest.param("postgresql+edge", 5, marks=pytest.mark.long),
        pytest.param("sqlite+qdrant", 5, marks=pytest.mark.long),
    ],
)
def test_a_process_killed_between_any_two_writes_leaves_a_store_that_is_whole(
    request: pytest.FixtureRequest, store: str, kills: int
) -> None:
    address = request.getfixturevalue("fresh_postgres") if store.startswith("postgresql") else ""
    command = [sys.executable, str(CRASHES), "--only", store, "--kills", str(kills), "--postgres", address, "--json"]
    rows = json.loads(subprocess.check_output(command, text=True))
    assert [row for row in rows if any(row[fault] for fault in FAULTS)] == []
    assert [row["failpoint"] for row in rows if not row["kills"]] == []  # each was passed
    groups = {"backup", "conversation", "deferred", "export", "index", "items", "messages", "rebuild", "repair"}
    groups |= {"restore", "worker"} | ({"edge"} if store.endswith("edge") else set())
    assert {row["failpoint"] for row in rows} == {name for name in FAILPOINTS if name.split(".")[0] in groups}
