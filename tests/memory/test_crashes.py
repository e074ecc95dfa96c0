"""Kills at each failpoint between two writes, on both databases: no lost, repeated, orphaned or stale rows.

The short form of `benchmarks/crashes.py`; the long form kills at least 500 processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.failpoints import FAILPOINTS
from tests.effort import thinned, unless_fresh
from tests.paths import ROOT

CRASHES = ROOT / "benchmarks" / "crashes.py"
FAULTS = ("lost", "duplicate", "orphan", "stale", "missing", "pending", "damaged")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, and killed by signals")


GROUPS = {"backup", "conversation", "deferred", "export", "index", "items", "messages", "rebuild", "repair", "restore"}
GROUPS |= {"worker"}


@pytest.mark.long
@pytest.mark.parametrize(("store", "part"), thinned([("postgresql+edge", 2), ("sqlite+qdrant", 3), ("sqlite+edge", 4)]))
def test_a_process_killed_between_any_two_writes_leaves_a_consistent_store(
    request: pytest.FixtureRequest, store: str, part: int
) -> None:
    """Each store at a quarter of the failpoints; the benchmark uses all failpoints for each store."""
    address = request.getfixturevalue("fresh_postgres") if store.startswith("postgresql") else ""
    kills = str(unless_fresh(1, 10))
    command = [sys.executable, str(CRASHES), "--only", store, "--part", f"{part}/4", "--kills", kills, "--json"]
    rows = json.loads(subprocess.check_output([*command, "--postgres", address], text=True))
    assert [row for row in rows if any(row[fault] for fault in FAULTS)] == []
    assert [row["failpoint"] for row in rows if not row["kills"]] == []  # each failpoint was reached
    groups = GROUPS | ({"edge"} if store.endswith("edge") else set())
    names = [name for name in FAILPOINTS if name.split(".")[0] in groups]
    assert [row["failpoint"] for row in rows] == names[part - 1 :: 4]
