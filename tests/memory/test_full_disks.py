"""A full and a read-only file system: a typed error, and the store continues when there is space again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agentkit.memory import Memory, StoreUnavailable
from agentkit.prompts import Message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB in RAM."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_or_read_only_disk_is_a_typed_error_and_the_store_continues_afterwards(small_disk: Path) -> None:
    with Memory(small_disk / "m", scope="t") as memory:
        session = memory.session("s")
        session.append(Message("user", "first"))
        with (small_disk / "rest").open("wb", buffering=0) as rest, suppress(OSError):
            while True:
                rest.write(b"x" * 4_096)
        with pytest.raises(StoreUnavailable):
            for number in range(50):
                session.append(Message("user", f"{number}" * 20_000))
        (small_disk / "rest").unlink()
        session.refresh()
        session.append(Message("user", "last"))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreUnavailable), Memory(small_disk / "m", scope="t") as memory:
        memory.session("s").append(Message("user", "lost"))
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with Memory(small_disk / "m", scope="t") as memory:
        texts = [message.text for message in memory.session("s").conversation]
        assert (texts[0], texts[-1]) == ("first", "last") and "lost" not in texts
