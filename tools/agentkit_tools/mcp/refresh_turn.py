"""`refresh_turn`: one session after the other refreshes the tokens of a storage."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentkit_tools.mcp.token_file import TokenFile

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage

_PAUSE_SECONDS = 0.05
_LOCK = threading.Lock()
_REFRESHED: set[int] = set()
"""Ids of the storages whose tokens are refreshed now, by a session in any thread."""


@asynccontextmanager
async def refresh_turn(storage: TokenStorage) -> AsyncIterator[None]:
    """Wait until no other session refreshes the tokens of a storage; of a file, also in other processes.

    Authorization servers accept a refresh token once, and can revoke a login whose refresh token is sent again.

    Raises:
        OSError: The folder of the file cannot be written.
    """
    if isinstance(storage, TokenFile):
        async with storage.alone():
            yield
        return
    while not _has_begun(id(storage)):
        await asyncio.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        with _LOCK:
            _REFRESHED.discard(id(storage))


def _has_begun(number: int) -> bool:
    with _LOCK:
        if number in _REFRESHED:
            return False
        _REFRESHED.add(number)
        return True
