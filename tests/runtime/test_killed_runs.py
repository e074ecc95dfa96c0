"""Runs whose processes are killed at any moment end like undisturbed runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.effort import unless_fresh


@pytest.mark.parametrize("trials", [unless_fresh(6, 15)])
def test_a_killed_run_resumes_from_its_journal_and_ends_like_an_undisturbed_run(trials: int) -> None:
    command = [sys.executable, "-m", "tests.runtime.killed_runs", str(trials), "7"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["kills"] >= trials / 4
    assert found["wrong"] == 0
