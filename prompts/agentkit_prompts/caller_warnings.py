"""Warnings at the line of the caller, outside of these packages."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn"]

_BETWEEN = ("agentkit", "agentkit_prompts", "agentkit_tools", "asyncio", "pydantic")
"""Packages that are skipped when the line of a warning is looked up."""


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of these packages that led here, with a text and its category, or with a warning."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
