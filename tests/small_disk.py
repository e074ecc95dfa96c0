"""A file system that can be full or read-only, for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of 24 MB in RAM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Use all free space."""
        with (self.folder / "rest").open("wb", buffering=0) as rest, suppress(OSError):
            while True:
                rest.write(b"x" * 4_096)

    def free(self) -> None:
        """Release the space again."""
        (self.folder / "rest").unlink()

    def allow_writes(self, *, allowed: bool) -> None:
        """Make the file system read-only, or writable again."""
        mode = "rw" if allowed else "ro"
        subprocess.run(["mount", "-o", f"remount,{mode}", self.folder], check=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Mount a file system; skips the test without the right to mount."""
    folder.mkdir()
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)
