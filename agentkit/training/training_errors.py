"""Errors of exports of fine-tuning rows."""

from __future__ import annotations

from agentkit.errors import AgentError


class ExportError(AgentError, ValueError):
    """An argument of an export is invalid, or its file cannot be written. No file was written.

    Attributes:
        problems: Place and text of each problem, if there are several.
    """
