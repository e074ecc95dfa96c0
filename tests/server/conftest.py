"""Servers whose runs are executed in their process, and servers whose runs are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Runs
from agentkit.memory import Memory
from tests.server.serving_agents import Client, served

RunService = Callable[..., AbstractContextManager[Client]]


@pytest.fixture(params=["process", "dbos"])
def run_service(request: pytest.FixtureRequest, tmp_path: Path) -> RunService:
    """Serve an agent; its runs have the executor of the parameter."""

    @contextmanager
    def serve(agent: Agent[Any, Any], **options: Any) -> Iterator[Client]:
        if request.param == "process":
            with served(agent, **options) as client:
                yield client
            return
        pytest.importorskip("dbos", reason="needs the extra `durable`")
        runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
        with (
            Memory(tmp_path / "home", scope="local") as memory,
            served(agent.with_changes(memory=memory), runs=runs, **options) as client,
        ):
            yield client
        runs.close()

    return serve
