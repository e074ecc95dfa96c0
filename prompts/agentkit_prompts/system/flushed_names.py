"""Names of files in a folder, on the disk."""

from __future__ import annotations

import os
from pathlib import Path


def flush_names(folder: Path) -> None:
    """Wait until new and changed names in a folder are on the disk: a power failure can undo other names."""
    # Windows cannot open folders.
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
