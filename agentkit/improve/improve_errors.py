"""Errors of optimisations of prompts."""

from __future__ import annotations

from agentkit.errors import AgentError


class ImproveError(AgentError, ValueError):
    """An argument of an optimisation is invalid, or its result cannot be written. Nothing was sent or written."""


class FilesChanged(ImproveError):
    """Files were changed since the optimisation read them. Nothing was written."""
