"""Longer time limits for busy machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentkit_prompts.templates import isolated_process
from tests.waiting import LONG


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """Raise the time limit for the start of the process of isolated templates."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(isolated_process, "_MAX_SECONDS", LONG)
        yield
