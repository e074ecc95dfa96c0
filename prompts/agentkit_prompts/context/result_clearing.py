"""`ResultClearing`: policy that replaces old tool results in a prompt by placeholders."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResultClearing:
    """Policy for old tool results. The conversation does not change: only the prompt contains placeholders."""

    keep: int = 3
    """Number of the latest steps with tool calls whose results are shown."""
    over: int = 500
    """Only results of more tokens are cleared."""
    batch: int = 4_000
    """Minimum tokens of the results that are cleared together. Each clearing changes the prompt at the first of these
    results, where the cache of a provider ends."""
    only: tuple[str, ...] | None = None
    """Names of the tools whose results are cleared; None for all tools."""
    without: tuple[str, ...] = ()
    """Names of tools whose results are never cleared."""
    start: int = 0
    """Number of characters at the start of a cleared result that are shown."""
