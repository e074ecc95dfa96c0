"""Durable runs of an existing database."""

from __future__ import annotations

from agentkit.cli.options import utf8
from agentkit.durable.runs_facade import Runs
from agentkit.ground.sync_driver import run_blocking

__all__ = ["existing_runs"]


def existing_runs(url: str) -> Runs:
    """Return the runs of an existing database, so that a mistyped address does not create a database.

    Raises:
        DurableError: The database is missing, or has other content.
    """
    runs = Runs(utf8(url))
    run_blocking(runs.store.check_created())
    return runs
