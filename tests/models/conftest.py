"""One chat server for all tests of the models, and no keys of this machine."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.servers import ChatServer, serve


@pytest.fixture(scope="session")
def server() -> Iterator[ChatServer]:
    with serve() as running:
        yield running


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = ("API_KEY", "BASE_URL", "ORG_ID", "PROJECT_ID", "CUSTOM_HEADERS", "AUTH_TOKEN")
    for name in [f"{who}_{what}" for who in ("OPENAI", "ANTHROPIC", "GEMINI", "DEEPSEEK") for what in variables]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module", autouse=True)
def no_open_sockets() -> Iterator[None]:
    """Collect open sockets while the module that opened them can still fail."""
    yield
    gc.collect()
