"""`RepeatedLines`: filter of logs for a problem that is logged again and again."""

from __future__ import annotations

import logging
import time


class RepeatedLines(logging.Filter):
    """Drops a warning if the same place in the code logged a warning a moment before; errors are not dropped.

    Args:
        seconds: Minimum seconds between two warnings of a place.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._logged_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING:
            return True
        # The key is a place, because clients and databases choose the text.
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._logged_at.get(place, -self._seconds) < self._seconds:
            return False
        self._logged_at[place] = now
        return True
