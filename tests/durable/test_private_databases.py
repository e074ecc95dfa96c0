"""Stored data of durable runs is private to its owner, and no error shows the password of the database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentkit import Runs
from agentkit.durable import DatabaseUnavailable, DurableError
from tests.raising import raises


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_a_database_and_its_folder_are_private(empty_database: Path) -> None:
    assert stat.S_IMODE(empty_database.parent.stat().st_mode) == 0o700
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in empty_database.parent.iterdir()}
    assert found
    assert set(found.values()) == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_a_pipe_keeps_its_permissions(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    store = Runs(f"sqlite:///{pipe}").store
    with raises(DatabaseUnavailable, name="database"), store.answering():
        assert store.rows
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o666


@pytest.mark.parametrize(
    "address",
    [
        "mysql://bob:hunter2@host/db",
        "postgresql://bob:hunter2@host:port/db",
        "postgresql://bob:hunter2@[::/db",
        "bob:hunter2@host/db",
        b"postgresql://bob:hunter2@host/db",
        "sqlite:////dev/null/hidden/runs.db?key=hunter2",
    ],
)
def test_no_error_shows_a_password(address: str) -> None:
    with pytest.raises(DurableError) as caught:
        assert Runs(address).store.rows
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or error.__context__
