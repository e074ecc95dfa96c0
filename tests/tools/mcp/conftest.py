"""An MCP server in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.mcp.mcp_running import HTTPPeer, free_port


@pytest.fixture
def http_peer() -> Iterator[HTTPPeer]:
    peer = HTTPPeer("honest", free_port())
    peer.start()
    yield peer
    peer.kill()
