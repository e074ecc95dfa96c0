"""Errors of optimisations of prompts."""

from __future__ import annotations

from agentkit.errors import AgentError


class ImproveError(AgentError, ValueError):
    """An argument of an optimisation is invalid, no run received a reply, or the result cannot be written.

    Nothing was written, and no text was proposed.
    """


class FilesChanged(ImproveError):
    """Files were changed since the optimisation read them. Nothing was written."""
