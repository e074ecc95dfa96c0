"""`RequestPace`: limits the requests per second."""

from __future__ import annotations

import asyncio
import math

from agentkit_prompts.errors import InContextError, brief


class RequestPace:
    """Starts requests at equal intervals.

    Args:
        rate: Maximum requests per second; None without a limit.

    Raises:
        InContextError: The rate is not a number above 0.
    """

    def __init__(self, rate: float | None) -> None:
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (is_number and 0 < rate < math.inf):
            text = f"rate: expected requests per second, a number above 0, or None, got {brief(rate)}"
            raise InContextError(text, name="rate", value=brief(rate))
        self._interval = 0.0
        if rate is not None:
            self._interval = 1 / rate
        self._next = 0.0

    @property
    def is_limited(self) -> bool:
        """True if requests can have to wait."""
        return self._interval > 0

    async def wait(self) -> None:
        """Wait until the next request may start."""
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._next)
        self._next = start + self._interval
        if start > now:
            await asyncio.sleep(start - now)
