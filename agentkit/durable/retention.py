"""Deletion of finished runs, by id or by age, with an archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agentkit.durable.run_archive import RunArchive
from agentkit.durable.schedules import SCHEDULED
from agentkit.durable.stored.durable_store import APPLICATION, DurableStore
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_record import RunsWanted

_ENDED_STATES = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
"""DBOS states of workflows that have ended."""
_PAGE = 500
"""Number of runs or workflows that one query reads."""
_MIN_AGE_SCHEDULED = timedelta(hours=1)
"""Minimum age of deleted workflows of schedules: a slow worker could handle their due times again."""


def delete_runs(store: DurableStore, run_ids: Sequence[str]) -> int:
    """Delete finished runs with all their data, and return their number. Other runs stay.

    Raises:
        RunNotFound: A run is unknown; nothing was deleted.
    """
    ids = list(dict.fromkeys(run_ids))
    records = {
        record.run_id: record
        for at in range(0, len(ids), _PAGE)
        for record in store.rows.page(RunsWanted(ids=ids[at : at + _PAGE], limit=_PAGE))
    }
    for run_id in ids:
        if run_id not in records:
            store.rows.get(run_id)  # raises RunNotFound
    finished = [run_id for run_id in ids if records[run_id].has_ended]
    store.delete(finished)
    return len(finished)


def delete_ended(
    store: DurableStore, older_than: timedelta, tenant: str | None = None, archive: Path | None = None
) -> int:
    """Delete runs that finished more than `older_than` ago, of all tenants or one, and return their number.

    With `archive`, the runs are appended to this file before they are deleted; see `RunArchive`.

    Raises:
        DurableError: The age is not a `timedelta`, or is negative, or the archive cannot be opened; nothing was
            deleted.
    """
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise DurableError(
            f"older_than={older_than!r:.60}: expected a timedelta, 0 or more; nothing was deleted", name="older_than"
        )
    now = store.rows.database.time()
    if tenant is None:
        _forget_schedules(store, datetime.fromtimestamp(now, UTC) - max(older_than, _MIN_AGE_SCHEDULED))
    before = now - older_than.total_seconds()
    if archive is None:
        return _delete_pages(store, before, tenant, lambda ids: ids)
    with closing(RunArchive(archive)) as runs:

        def archived(ids: Sequence[str]) -> Sequence[str]:
            # A run that was resumed or deleted meanwhile stays as it is.
            records = [record for record in store.rows.page(RunsWanted(ids=ids, limit=_PAGE)) if record.has_ended]
            runs.add(records, [store.rows.journal_text(record.run_id) for record in records])
            return [record.run_id for record in records]

        return _delete_pages(store, before, tenant, archived)


def _delete_pages(
    store: DurableStore, before: float, tenant: str | None, archived: Callable[[Sequence[str]], Sequence[str]]
) -> int:
    """Delete the runs that ended before a time. `archived` returns the ids of a page that may be deleted."""
    deleted = 0
    while page := store.rows.ended_before(before, tenant, _PAGE):
        ids = archived(page)
        if not ids:
            break
        store.delete(ids)
        deleted += len(ids)
    return deleted


def _forget_schedules(store: DurableStore, before: datetime) -> None:
    """Delete the finished workflows of schedules: DBOS adds a workflow each time a schedule is due."""
    while True:
        page = store.client.list_workflows(
            name=SCHEDULED,
            application_name=APPLICATION,
            status=_ENDED_STATES,
            completed_before=before.isoformat(),
            limit=_PAGE,
            load_input=False,
            load_output=False,
        )
        if page:
            store.client.delete_workflows([row.workflow_id for row in page])
        if len(page) < _PAGE:
            return
