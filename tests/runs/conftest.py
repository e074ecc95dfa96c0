"""Stores of runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from agentkit.runs.run_store import RunStore
from tests.postgres import postgres_server

Opened = Callable[[], RunStore]


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server that lives as long as the tests."""
    with postgres_server(tmp_path_factory.mktemp("runs-postgres")) as address:
        yield address


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Open a store; the stores of a test are on one database, except in memory."""
    with ExitStack() as stack:
        if request.param != "postgres":
            store = RunStore(None if request.param == "memory" else tmp_path / "runs.db")
            stack.callback(store.close)
            yield lambda: store
            return
        url = sa.make_url(request.getfixturevalue("postgres_url")).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text("DROP SCHEMA public CASCADE"))
            connection.execute(sa.text("CREATE SCHEMA public"))
        stack.callback(engine.dispose)
        yield lambda: RunStore(engine)


@pytest.fixture
def store(opened: Opened) -> RunStore:
    return opened()
