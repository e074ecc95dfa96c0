"""`RefusalLog`: log of the requests that a server refuses."""

from __future__ import annotations

import logging
import time

from agentkit.server.access import Caller
from agentkit.server.server_errors import ServerError

_log = logging.getLogger("agentkit.server")
_SECONDS = 1.0
"""Minimum seconds between two lines about the same token, path and code."""


class RefusalLog:
    """Log of the requests that a server refuses, with the token of the caller and the code of the error.

    The lines contain no text of the client except the escaped name of a field, so a client cannot forge a line.
    """

    def __init__(self) -> None:
        self._logged_at: dict[tuple[str, str, str | None], float] = {}

    def log(self, path: str, error: ServerError, caller: Caller) -> None:
        """Log a refused request; failures of the server (500 and above) are logged by their place in the code.

        Args:
            path: The method and the template of the route. The path itself contains text of the client.
            error: The error that the client receives.
            caller: The sender; its name is empty before the token is checked, and on a server without tokens.
        """
        if error.status >= 500:
            return
        # Bounded by the number of tokens, paths and codes: clients choose none of them.
        key, now = (caller.name, path, error.code), time.monotonic()
        if now - self._logged_at.get(key, -_SECONDS) < _SECONDS:
            return
        self._logged_at[key] = now
        field = ""
        if error.param:
            field = f" ({error.param!r:.80})"
        sender = ""
        if caller.name:
            sender = f"; token {caller.name} of tenant {caller.tenant}"
        _log.warning("refused %s: %d %s%s%s", path, error.status, error.code, field, sender)
