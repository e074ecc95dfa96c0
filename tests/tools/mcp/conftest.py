"""An MCP server in a separate process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.tools.mcp.mcp_running import HTTPPeer, http_server
from tests.waiting import LONG


@pytest.fixture(autouse=True, scope="module")
def no_leftover() -> Iterator[None]:
    """Collect the processes of killed servers here, and not in a later test that allows no open resource."""
    yield
    gc.collect()


@pytest.fixture
def http_peer() -> Iterator[HTTPPeer]:
    with http_server("honest") as peer:
        yield peer


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent that a server that is slow because of a busy machine is taken for a server that hangs."""
    monkeypatch.setattr("agentkit_tools.mcp.connection._MIN_PROBE_SECONDS", LONG)
    monkeypatch.setattr("agentkit_tools.mcp.connection._MAX_PROBE_SECONDS", LONG)
