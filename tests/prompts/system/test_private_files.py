"""Permissions of stored files: only the owner can read them, with any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentkit.memory import Memory
from agentkit.prompts import Message
from agentkit_prompts.system.private_files import private_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the permissions of files are POSIX's")


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def rights(folder: Path) -> dict[str, str]:
    """Return the files and folders below that other users can use, with their permissions."""
    found = {path: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {str(path): oct(mode) for path, mode in found.items() if mode & 0o077}


def fill(memory: Memory, text: str) -> None:
    memory.session("s").append(Message("user", text))
    memory.facts.add(f"{text} is a fact")
    memory.worker().drain()
    assert memory.recall(text).knowledge


def test_the_files_of_a_memory_are_private(tmp_path: Path, umask: None) -> None:
    home = tmp_path / "a/b/.agentkit"
    with Memory(home) as memory:
        fill(memory, "zebra")
        assert rights(tmp_path / "a") == {}
        assert stat.S_IMODE((home / "memory.db").stat().st_mode) == 0o600
        assert stat.S_IMODE((home / "memory.db-wal").stat().st_mode) == 0o600
        assert stat.S_IMODE((home / "index").stat().st_mode) == 0o700
        fill(memory, "violin")
        memory.admin.compact()
        assert rights(tmp_path / "a") == {}
    assert rights(tmp_path / "a") == {}
    with Memory(home) as memory:
        fill(memory, "marimba")
    assert rights(tmp_path / "a") == {}


def test_files_of_an_older_version_become_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Memory(home) as memory:
        fill(memory, "zebra")
    for path in (home, *home.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    with Memory(home) as memory:
        fill(memory, "violin")
        assert [*rights(home)] == [str(home), str(home / "index")]  # a folder that exists may be shared on purpose
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.rglob("*") if path.is_file())


def test_a_folder_of_the_user_keeps_its_permissions(tmp_path: Path) -> None:
    home = tmp_path / "shared"
    home.mkdir()
    home.chmod(0o755)
    with Memory(home) as memory:
        fill(memory, "zebra")
    assert [*rights(home)] == [str(home)]


def test_a_link_in_an_index_folder_does_not_change_its_target(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    with Memory(tmp_path / "home") as memory:
        fill(memory, "zebra")
        space = next(path.parent for path in (tmp_path / "home/index").rglob("lock"))
        (space / "link").symlink_to(outside)
    with Memory(tmp_path / "home") as memory:
        fill(memory, "violin")
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_a_folder_instead_of_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o755)
    private_file(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
