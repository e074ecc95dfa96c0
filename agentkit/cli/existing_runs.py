"""Durable runs of an existing database, and results of their async methods."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit.cli.options import utf8

if TYPE_CHECKING:
    from agentkit.durable.runs_facade import Runs

T = TypeVar("T")


def existing_runs(url: str) -> Runs:
    """Return the runs of an existing database, so that a mistyped address does not create a database.

    Raises:
        DurableError: The database is missing, or has other content.
    """
    from agentkit.durable.runs_facade import Runs

    runs = Runs(utf8(url))
    result_of(runs.store.check_created())
    return runs


def result_of(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of an async method."""
    from agentkit.ground.sync_driver import run_blocking

    return run_blocking(work)
