"""Failpoints: a kill only at the named place, and no effect if disabled."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import agentkit_memory
from agentkit_memory.process.failpoints import VARIABLE
from benchmarks.failpoints import FAILPOINTS

ROOT = Path(agentkit_memory.__file__).parent
PASS = """if True:
    from agentkit_memory.process.failpoints import failpoint
    for _ in range(5):
        failpoint("worker.leased")
        failpoint("worker.flushed")
        print("passed", flush=True)
"""


def run(spec: str) -> subprocess.CompletedProcess[str]:
    import os

    environment = os.environ | {VARIABLE: spec}
    return subprocess.run([sys.executable, "-c", PASS], env=environment, capture_output=True, text=True)


def test_a_process_is_killed_at_the_requested_pass() -> None:
    killed = run("worker.flushed:3")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "passed\n" * 2)
    assert run("worker.leased").stdout == ""
    assert run("").stdout == "passed\n" * 5


def test_the_failpoints_in_the_code_are_equal_to_the_table() -> None:
    placed = set()
    for file in ROOT.rglob("*.py"):
        placed.update(re.findall(r'failpoint\("([^"]+)"\)', file.read_text("utf-8")))
    assert placed == set(FAILPOINTS)
