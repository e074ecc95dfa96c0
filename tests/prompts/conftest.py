"""Time for what takes long only because the machine is busy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentkit_prompts.templates import isolated_process
from tests.waiting import LONG


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """Have the process of isolated templates take its time to start."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(isolated_process, "_MAX_SECONDS", LONG)
        yield
