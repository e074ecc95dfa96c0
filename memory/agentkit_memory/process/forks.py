"""Memories in a forked process: their locks, files and connections belong to the parent only.

Every open object is disowned in the child before other code runs there. Every later use of the object raises an error.
Its parts are neither closed nor collected, since SQLite, Edge or a client would then change files of the parent.
"""

from __future__ import annotations

import ctypes
import os
from typing import Protocol
from weakref import WeakSet


class _Opened(Protocol):
    def disown(self, why: str) -> None:
        """Make every later use of the object raise an error; `why` completes the error.

        The method is called in the child process. Threads of the parent, which may hold locks, do not exist there.
        """


_open: WeakSet[_Opened] = WeakSet()
_process = os.getpid()


def track(opened: _Opened) -> None:
    """Register an object, so that its `disown` is called in every process that is forked while the object exists."""
    _open.add(opened)


def keep(*objects: object) -> None:
    """Prevent the garbage collection of objects, even at the end of the process."""
    for each in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _in_child() -> None:
    global _process
    parent, _process = _process, os.getpid()
    for each in list(_open):
        each.disown(f"was opened by process {parent} before it forked; open the memory again in this process")
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
