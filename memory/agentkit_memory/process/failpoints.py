"""Failpoints: places between two writes at which a test can kill the process, as a power cut or `kill -9` would.

A failpoint does nothing unless the environment variable AGENTKIT_FAILPOINT names it: `worker.flushed:3` kills the
process at the third pass of the failpoint `worker.flushed`.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from functools import partial

VARIABLE = "AGENTKIT_FAILPOINT"

_EVENT = "agentkit.failpoint"
_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
# Several threads may pass a failpoint; `count` is atomic.
_passes = itertools.count(1)

failpoint = partial(sys.audit, _EVENT)
"""Function that marks a place by its name. Without a hook, Python ignores the event at once."""


def _kill(event: str, arguments: tuple[object, ...]) -> None:
    """Kill the process at the pass of the failpoint that the environment names."""
    if event == _EVENT and arguments == (_name,) and next(_passes) == int(_count or 1):
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


if _name:
    sys.addaudithook(_kill)
