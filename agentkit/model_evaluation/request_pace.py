"""How fast requests follow one another."""

from __future__ import annotations

import asyncio
import math

from agentkit_prompts.errors import InContextError, brief

__all__ = ["RequestPace"]


class RequestPace:
    """Lets requests begin at equal distances.

    Args:
        rate: Requests that begin in a second; None for as many as there are.

    Raises:
        InContextError: It is no number above 0.
    """

    def __init__(self, rate: float | None) -> None:
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (is_number and 0 < rate < math.inf):
            text = f"rate: expected requests in a second, a number above 0, or None, got {brief(rate)}"
            raise InContextError(text, name="rate", value=brief(rate))
        self._distance = 0.0
        if rate is not None:
            self._distance = 1 / rate
        self._next = 0.0

    async def turn(self) -> None:
        """Wait until the next request may begin."""
        if not self._distance:
            return
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._distance
        if at > now:
            await asyncio.sleep(at - now)
