"""The frame of the caller outside of these packages, and warnings that name its line."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar
from types import FrameType

_BETWEEN = ("agentkit", "agentkit_prompts", "agentkit_tools", "asyncio", "pydantic")
"""Packages whose frames are skipped to find the caller."""
_WAITING = (*_BETWEEN, "threading", "queue", "concurrent")
"""Packages whose frames are skipped to find the caller in a thread that waits for a background loop."""

waiting_thread: ContextVar[int | None] = ContextVar("agentkit_waiting_thread", default=None)
"""Id of the thread that waits for this code, if this code runs in a background loop; else None."""


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line of the caller outside of these packages. `category` is ignored for a `Warning`."""
    frame = caller()
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    file, module = frame.f_code.co_filename, names.get("__name__") or "<string>"
    warnings.warn_explicit(message, category, file, frame.f_lineno, module, registry)


def caller() -> FrameType:
    """Return the frame of the nearest caller outside of these packages."""
    frame = _outside(sys._getframe(1), _BETWEEN)
    waiting = waiting_thread.get()
    if waiting is not None and frame.f_globals.get("__name__") == "threading":
        # The stack of a background loop starts in the thread of the loop; the caller is in the waiting thread.
        top = sys._current_frames().get(waiting)
        if top is not None:
            return _outside(top, _WAITING)
    return frame


def _outside(frame: FrameType, packages: tuple[str, ...]) -> FrameType:
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        frame = frame.f_back
    return frame
