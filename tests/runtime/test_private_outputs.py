"""Files of runs, servers, evaluations and recordings are readable by their owner only, for any umask."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from agentkit import Agent, ScriptedModel
from agentkit.memory import Memory
from agentkit.model_evaluation.answer_file import AnswerFile
from agentkit.server import RunStore, add_token
from agentkit.server.server_errors import AccessFileError
from agentkit.testing import RecordedModel
from agentkit_memory.errors import StoreUnavailable

pytestmark = pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")


def run_store(path: Path) -> None:
    RunStore(path).close()


def access_file(path: Path) -> None:
    add_token(path, "a", "tenant")


def answers(path: Path) -> None:
    AnswerFile(path, {"model": "m"})._file.close()


def recording(path: Path) -> None:
    RecordedModel(ScriptedModel(["Hi"]), path)


def journal(path: Path) -> None:
    Agent(ScriptedModel(["Hi"]), "Be brief.").run_sync("Hello", journal=path)


def export(path: Path) -> None:
    with Memory(path.parent / "home") as memory:
        memory.facts.add("a fact")
        memory.admin.export(path)


def backup(path: Path) -> None:
    with Memory(path.parent / "home") as memory:
        memory.admin.backup(path)


@pytest.fixture(params=[0o000, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.parametrize("write", [run_store, access_file, answers, recording, journal, export, backup])
def test_written_files_are_private(tmp_path: Path, umask: None, write: Callable[[Path], None]) -> None:
    write(tmp_path / "out")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir() if path.is_file()}
    assert "out" in modes
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(("write", "error"), [(access_file, AccessFileError), (export, StoreUnavailable)])
def test_a_file_that_cannot_be_flushed_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None], error: type[Exception]
) -> None:
    def full_disk(file: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "out"
    if write is access_file:
        out.write_text("tokens:\n", "utf-8")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(error):
        write(out)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
