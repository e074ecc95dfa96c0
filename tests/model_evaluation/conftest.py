"""Servers and evaluations that these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ChatServer, serve


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serve() as running:
        yield running
