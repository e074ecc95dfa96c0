"""`SQLiteConnection`: a connection of DBOS to a SQLite file, which damaged text and an old SQLite do not break."""

from __future__ import annotations

import sqlite3
import time
from functools import partial
from typing import Any

__all__ = ["SQLiteConnection", "prepare"]

_FIRST_WITH_SUBSEC = (3, 42)

_lenient_text = partial(str, encoding="utf-8", errors="replace")
"""How the driver reads text, so that bytes that are no UTF-8 end no statement."""


class SQLiteConnection(sqlite3.Connection):
    """A connection that is prepared, for engines that DBOS makes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        prepare(self)


def prepare(connection: sqlite3.Connection, _record: object = None) -> None:
    """Let a connection read text leniently, and know `unixepoch('subsec')`.

    From Python 3.12 on DBOS writes times with it, though the SQLite that a Python is built with may be older than 3.42,
    which brought it.
    """
    connection.text_factory = _lenient_text
    if sqlite3.sqlite_version_info < _FIRST_WITH_SUBSEC:
        connection.create_function("unixepoch", 1, lambda _: round(time.time(), 3))
