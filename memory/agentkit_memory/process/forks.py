"""What a fork leaves in the child: memories of its parent, whose locks, files and connections are the parent's alone.

Everything that is open is told in the child before any other code runs there. It refuses from then on, and nothing
that it holds is closed or collected: what SQLite, Edge or a client do then would reach what the parent is using.
"""

from __future__ import annotations

import ctypes
import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["keep", "track"]


class _Opened(Protocol):
    def disown(self, why: str) -> None:
        """Refuse every use from now on. Called in a child; threads that held locks are no more, the locks are."""
        ...


_open: WeakSet[_Opened] = WeakSet()
_process = os.getpid()


def track(opened: _Opened) -> None:
    """Have something told, in every process that is forked while it lives, that it belongs to the parent."""
    _open.add(opened)


def keep(*held: object) -> None:
    """Never collect some objects, not even as the process ends."""
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
