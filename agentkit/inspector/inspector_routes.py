"""The routes of the inspector: its page, and the JSON that the page reads."""

from __future__ import annotations

from starlette.routing import Route

from agentkit.inspector.source import SourceOf

__all__ = ["routes"]


def routes(source: SourceOf) -> list[Route]:
    """Return the routes under `/inspector`, for a Starlette application.

    Args:
        source: Returns what the caller of a request may see.
    """
    del source
    return []
