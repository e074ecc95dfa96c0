"""`checked_name`: names that clients choose."""

from __future__ import annotations

import re

from agentkit.server.server_errors import Unprocessable

NAME_PATTERN = r"[A-Za-z0-9_~@:+=-][A-Za-z0-9._~@:+=-]{0,127}"
"""Pattern of the names of users and sessions."""
NAME_CHARACTERS = "1 to 128 characters of A-Z a-z 0-9 . _ ~ @ : + = - without a dot at the start"
"""Description of the pattern for messages."""
_NAME = re.compile(NAME_PATTERN)


def checked_name(name: str, param: str) -> str:
    """Return the name of a session or a user after validation. A valid name is safe as a part of a path.

    Args:
        name: The name.
        param: The field of the request, for errors.

    Raises:
        Unprocessable: The name is empty, too long, has a dot at the start, or has characters
            other than letters, digits and `._~@:+=-`.
    """
    if not _NAME.fullmatch(name):
        raise Unprocessable(
            f"{param}: expected {NAME_CHARACTERS}, got {name!r:.60}",
            param=param,
            code="invalid_name",
        )
    return name
