"""Waits for what a server does in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.server.serving_agents import Client

__all__ = ["ended", "until"]

_SECONDS = 30.0


def until(condition: Callable[[], Any]) -> Any:
    """Return what a condition does, once it is true."""
    limit = time.monotonic() + _SECONDS
    while not (found := condition()):
        assert time.monotonic() < limit, "it did not become true"
        time.sleep(0.01)
    return found


def ended(client: Client, run: str, token: str | None = None) -> dict[str, Any]:
    """Return a run once it has ended, or waits."""

    def seen() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/runs/{run}", token).json()
        return None if found["status"] in ("queued", "running") else found

    done: dict[str, Any] = until(seen)
    return done
