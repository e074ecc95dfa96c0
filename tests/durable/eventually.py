"""Waits for what a worker of this process does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

__all__ = ["eventually"]

_SECONDS = 30.0


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait until a condition is true."""
    limit = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < limit, "it did not become true"
        await asyncio.sleep(0.01)
