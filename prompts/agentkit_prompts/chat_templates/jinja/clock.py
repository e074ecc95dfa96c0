"""Clock of Jinja chat templates: the function `strftime_now`, which formats the time of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from agentkit_prompts.templates.sandbox.guards import check_strftime

CLOCK = "strftime_now"
_CHECK = re.compile(rf"\b{CLOCK}\s+is\s+(not\s+)?defined\b")
"""Test in a template that prints a fixed date if it is rendered without a time."""


def clock_of(now: datetime, *, is_limited: bool) -> Callable[[str], str]:
    """Return the function that formats a time."""

    def strftime_now(format: str) -> str:
        if is_limited:
            check_strftime(format, any_directive=True)
        return now.strftime(format)

    return strftime_now


def requires_clock(source: str) -> bool:
    """True if a template prints the date, and cannot be rendered without a time."""
    return CLOCK in source and not _CHECK.search(source)
