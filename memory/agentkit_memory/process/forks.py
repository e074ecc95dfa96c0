"""Memories in a forked process: their locks, files and connections belong to the parent only.

Every open object is disowned in the child before other code runs there. Every later use raises an error, and its parts
are neither closed nor collected, since SQLite, Edge or a client would then change files that the parent uses.
"""

from __future__ import annotations

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["keep", "track"]


class _Opened(Protocol):
    def disown(self, why: str) -> None:
        """Raise an error at every later use. Called in a child, where threads that hold locks do not exist."""


_open: WeakSet[_Opened] = WeakSet()
_process = os.getpid()


def track(opened: _Opened) -> None:
    """Call `disown` of an object in every process that is forked while the object exists."""
    _open.add(opened)


def keep(*held: object) -> None:
    """Prevent the collection of objects, even at the end of the process."""
    for each in held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _in_child() -> None:
    global _process
    parent, _process = _process, os.getpid()
    for each in list(_open):
        each.disown(f"was opened by process {parent} before it forked; open the memory again in this process")
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
