"""Places between two writes where a test can kill the process, as a power cut or `kill -9` would.

Off, and free, unless the environment variable AGENTKIT_FAILPOINT names one: `worker.flushed:3` kills at its third pass.
"""

from __future__ import annotations

import itertools
import os
import signal

__all__ = ["VARIABLE", "failpoint"]

VARIABLE = "AGENTKIT_FAILPOINT"

_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_passes = itertools.count(1)  # counting on is atomic: threads pass here


def failpoint(name: str) -> None:
    """Mark that the program is at the failpoint `name`."""
    if name == _name and next(_passes) == int(_count or 1):
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
