"""Which durable runs a database keeps: those that ended are deleted by their ids, or by when they ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from agentkit.durable.durable_errors import DurableError
from agentkit.durable.schedules import SCHEDULED
from agentkit.durable.stored.durable_store import APPLICATION, WORKFLOW, DurableStore

__all__ = ["delete_ended", "delete_runs"]

_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_PAGE = 500
_MIN_AGE_SCHEDULED = timedelta(hours=1)
"""How long it stays known that a schedule was due: another worker may only now look for what is due."""


def delete_runs(store: DurableStore, run_ids: Sequence[str]) -> int:
    """Delete runs that have ended, with all that is stored of them, and return how many; others stay.

    Raises:
        RunNotFound: There is no run of one of the ids; nothing was deleted.
    """
    ids = list(dict.fromkeys(run_ids))
    found = {info.run_id: info for at in range(0, len(ids), _PAGE) for info in store.infos(ids[at : at + _PAGE])}
    for run_id in ids:
        if run_id not in found:
            store.info(run_id)  # raises that it is not there, or what it is
    ended = [run_id for run_id in ids if found[run_id].has_ended]
    for at in range(0, len(ended), _PAGE):
        _delete(store, ended[at : at + _PAGE])
    return len(ended)


def delete_ended(store: DurableStore, older_than: timedelta, tenant: str | None = None) -> int:
    """Delete the runs that ended so long ago, all or those of a tenant, and return how many.

    Raises:
        DurableError: The time is no `timedelta`, or below 0; nothing was deleted.
    """
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise DurableError(
            f"older_than={older_than!r:.60}: expected a timedelta, 0 or more; nothing was deleted", name="older_than"
        )
    now = datetime.now(UTC)

    def ended(ids: list[str]) -> list[str]:
        return [info.run_id for info in store.infos(ids) if info.has_ended and tenant in (None, info.tenant)]

    if tenant is None:
        _sweep(store, SCHEDULED, now - max(older_than, _MIN_AGE_SCHEDULED), lambda ids: ids)
    return _sweep(store, WORKFLOW, now - older_than, ended)


def _sweep(store: DurableStore, name: str, before: datetime, chosen: Callable[[list[str]], list[str]]) -> int:
    """Delete those chosen of the workflows that ended before, and return how many."""
    kept = deleted = 0
    while True:
        page = store.workflows.listed(
            [name],
            application=APPLICATION,
            statuses=_ENDED,
            completed_before=before.timestamp(),
            limit=_PAGE,
            offset=kept,
        )
        ids = chosen([one.workflow_id for one in page])
        _delete(store, ids)
        deleted += len(ids)
        kept += len(page) - len(ids)
        if len(page) < _PAGE:
            return deleted


def _delete(store: DurableStore, run_ids: Sequence[str]) -> None:
    if run_ids:
        store.workflows.delete(run_ids)
        store.tables.forget_calls(run_ids)
