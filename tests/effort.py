"""How hard laws and campaigns are tried: a little by default, in full with `--all`, as CI does."""

from __future__ import annotations

import os


def tries(usual: int, full: int) -> int:
    """Return how often something is tried in this run of the tests."""
    return full if os.environ.get("AGENTKIT_ALL_TESTS") else usual
