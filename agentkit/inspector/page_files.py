"""The files of the page, read and compressed once for each server."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

__all__ = ["PageFile", "page_files"]

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class PageFile(NamedTuple):
    """A file as it is sent."""

    plain: bytes
    packed: bytes
    """With gzip."""
    media_type: str


def page_files() -> dict[str, PageFile]:
    """Return the files of the page by their names: no other ones can be asked for."""
    found = {}
    for path in sorted(_PAGE.iterdir()):
        if (media_type := _TYPES.get(path.suffix)) is not None:
            data = path.read_bytes()
            found[path.name] = PageFile(data, gzip.compress(data, mtime=0), media_type)
    return found
