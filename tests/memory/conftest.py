"""Fixtures: stores on real disks and servers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit.memory import Memory
from agentkit.testing import StoreProbe
from agentkit_memory.database.engine import Database
from tests.forks import MEMORIES, Forks, forks
from tests.postgres import postgres_server
from tests.waiting import LONG

HERE = Path(__file__).parent
LIMITS = ("embedders.encoder._QUESTION_TIMEOUT", "index.indexes._MAX_WAIT", "recall.rerankers._TIMEOUT")


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """Raise the time limits of a recall for busy machines."""
    with pytest.MonkeyPatch.context() as patched:
        for limit in LIMITS:
            patched.setattr(f"agentkit_memory.{limit}", LONG)
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store with all tables: their creation takes longer than many tests."""
    path = tmp_path_factory.mktemp("made") / "store"
    Memory(path).close()
    return path


@pytest.fixture
def memory(empty_store: Path, home: Path) -> Iterator[Memory]:
    with Memory(shutil.copytree(empty_store, home)) as opened:
        yield opened


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Processes that open memories, without the time to import the modules of memories."""
    with forks(tmp_path_factory.mktemp("forks"), *MEMORIES) as started:
        yield started


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a PostgreSQL server that runs during the tests."""
    with postgres_server(tmp_path_factory.mktemp("postgres")) as address:
        yield address


@pytest.fixture
def fresh_postgres(postgres: str) -> str:
    """The server with an empty database, after any revision of a previous test."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """Database of the memory of a test, opened again as another process opens it."""
    memory = request.getfixturevalue("either" if "either" in request.fixturenames else "memory")
    target = StoreProbe(memory).target
    opened = Database.open(target / "memory.db" if isinstance(target, Path) else target)
    yield opened
    opened.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Select the tests of PostgreSQL: by default only conversations, as other rows use the same code."""
    for item in items:
        if "postgresql" in item.name and item.path.is_relative_to(HERE) and item.path.parent.name != "conversations":
            item.add_marker("long")


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> Iterator[Memory]:
    """Memory on SQLite, then memory on PostgreSQL."""
    if request.param == "sqlite":
        opened = Memory(shutil.copytree(empty_store, tmp_path / "store"))
    else:
        opened = Memory(request.getfixturevalue("fresh_postgres"), index=tmp_path / "index")
    with opened:
        yield opened
