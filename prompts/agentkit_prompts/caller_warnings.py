"""The caller outside of these packages: its frame, and warnings at its line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import NamedTuple

__all__ = ["Caller", "caller", "warn"]

_BETWEEN = ("agentkit", "agentkit_prompts", "agentkit_tools", "asyncio", "pydantic")
"""Packages that are skipped to find the caller."""


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of these packages that led here, with a text and its category, or with a warning."""
    warnings.warn(message, category, stacklevel=caller().level)


class Caller(NamedTuple):
    """The code outside of these packages that led to a function."""

    frame: FrameType
    level: int
    """Level of the frame for a warning of this function."""


def caller() -> Caller:
    """Return the caller of the function that calls this."""
    # Level 1 is the function itself.
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    return Caller(frame, level)
