"""Databases of durable runs, and workers in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dbos", reason="needs the extra `durable`")

from agentkit import Runs
from tests.postgres import postgres_server

HERE = Path(__file__).parent
Working = Callable[..., Runs]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables: their creation takes longer than most tests."""
    path = tmp_path_factory.mktemp("runs") / "made" / "empty.db"
    runs = Runs(f"sqlite:///{path}")
    assert runs.store.rows
    runs.close()
    return path


@pytest.fixture
def url(empty_database: Path, tmp_path: Path) -> str:
    path = tmp_path / "runs.db"
    for file in empty_database.parent.iterdir():
        shutil.copy(file, tmp_path / file.name.replace("empty.db", path.name))
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the tests."""
    with postgres_server(tmp_path_factory.mktemp("durable-postgres")) as address:
        yield address


@pytest.fixture
def runs(url: str) -> Iterator[Runs]:
    opened = Runs(url)
    yield opened
    opened.close()


@pytest.fixture
def working(runs: Runs) -> Iterator[Working]:
    """Start a worker in this process for agents."""
    with ExitStack() as stack:

        def start(*agents: Any, worker: dict[str, Any] | None = None, **added: Any) -> Runs:
            for agent in agents:
                runs.add(agent, **added)
            stack.enter_context(runs.worker(**{"poll": 0.1, "grace": 0, **(worker or {})}))
            return runs

        yield start
