"""Places between two writes where a test can kill the process, as a power cut or `kill -9` would.

Off, and free, unless the environment variable AGENTKIT_FAILPOINT names one: `worker.flushed:3` kills at its third pass.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from functools import partial

__all__ = ["VARIABLE", "failpoint"]

VARIABLE = "AGENTKIT_FAILPOINT"

_EVENT = "agentkit.failpoint"
_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
# Counting is atomic, and threads pass here.
_passes = itertools.count(1)

failpoint = partial(sys.audit, _EVENT)
"""Marks that the program is at the failpoint with this name. Without a hook, Python ignores such an event at once."""


def _kill(event: str, arguments: tuple[object, ...]) -> None:
    """Kill the process at the pass of the failpoint that the environment names."""
    if event == _EVENT and arguments == (_name,) and next(_passes) == int(_count or 1):
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


if _name:
    sys.addaudithook(_kill)
