"""`Redact`: the function that removes secrets and personal data from texts before they leave the process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from agentkit.run.engine.observed import current_observer

Redact: TypeAlias = Callable[[str], str | None]
"""Returns the text to record instead of a text; None omits the text."""

_REMOVED = "[removed]"
"""Text instead of a text that a function omitted."""
_log = logging.getLogger("agentkit")


def process_redact() -> Redact | None:
    """Return the function of the observation of this process; None if no observation redacts."""
    redact: Redact | None = getattr(current_observer(), "redact", None)
    return redact


def redacted(redact: Redact | None, text: str) -> str:
    """Return the text that `redact` returns, or `[removed]` if it returns no text or fails."""
    if redact is None:
        return text
    try:
        result = redact(text)
    except Exception:
        # An observation must not fail a run, and a text that was not redacted must not leave the process.
        _log.exception("redact failed: the text is omitted")
        return _REMOVED
    if isinstance(result, str):
        return result
    return _REMOVED
