"""Loggers of the SDK of MCP."""

from __future__ import annotations

import logging

_SILENCE = logging.NullHandler()


def silence_sdk() -> None:
    """Make the loggers of the SDK silent, unless the application configures logging."""
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(_SILENCE)
