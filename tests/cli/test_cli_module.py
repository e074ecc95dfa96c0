"""`python -m agentkit` is the command."""

from __future__ import annotations

import subprocess
import sys


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "agentkit", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "compose" in done.stdout
