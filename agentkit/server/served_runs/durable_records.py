"""`DurableRecords`: durable runs, as the clients of a server see runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from agentkit.durable.retention import delete_runs
from agentkit.durable.runs_facade import Runs
from agentkit.durable.stored.run_info import RunInfo, RunState
from agentkit.models.model import NO_USAGE
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import RunNotFound
from agentkit.runs.run_record import RunError, RunRecord, RunsWanted, WaitingCall
from agentkit.runs.run_store import MAX_KEPT, RunStore
from agentkit.server.served_runs.public_errors import OUR_ERRORS

__all__ = ["DurableRecords"]

_PAGE = 200
_Listed: TypeAlias = tuple[float, str, RunInfo | RunRecord]
"""When a run began, its id and what is known of it."""


class DurableRecords(RunStore):
    """Runs whose background runs are those of a `Runs`: of every server, worker and program on its database.

    Everything else, such as requests of OpenAI-compatible endpoints and what tenants used, is kept as it is otherwise.

    Args:
        runs: The durable runs.
        path: See `RunStore`.
        keep: See `RunStore`.
    """

    def __init__(self, runs: Runs, path: Path | None = None, *, keep: int | None = MAX_KEPT) -> None:
        self.runs = runs
        super().__init__(path, keep=keep)

    def get(self, run_id: str, *, tenant: str | None = None) -> RunRecord:
        info = self._info(run_id)
        if info is None or tenant not in (None, info.tenant):
            return super().get(run_id, tenant=tenant)
        with self._answering():
            return _record(info, self.runs.store.journals([run_id]).get(run_id), self.runs.store.outcome(run_id))

    def page(self, wanted: RunsWanted) -> list[RunRecord]:
        until = None if wanted.before is None else self.get(wanted.before, tenant=wanted.tenant).created_at
        every = merge(self._durable(wanted, until), self._others(wanted, until), key=lambda one: -one[0])
        newest = [*islice(((run_id, found) for _, run_id, found in every if run_id != wanted.before), wanted.limit)]
        ids = [run_id for run_id, found in newest if isinstance(found, RunInfo)]
        with self._answering():
            journals, ended = self.runs.store.journals(ids), self.runs.store.outcomes(ids)
        return [
            _record(found, journals[run_id], ended.get(run_id)) if isinstance(found, RunInfo) else found
            for run_id, found in newest
            if isinstance(found, RunRecord) or run_id in journals  # or it was deleted meanwhile
        ]

    def _durable(self, wanted: RunsWanted, until: float | None) -> Iterator[_Listed]:
        """Yield when durable runs began, their ids and what is known of them, the latest first."""
        state: RunState | None = "paused" if wanted.state == "waiting" else wanted.state
        about = {name: getattr(wanted, name) for name in ("agent", "session", "user", "tenant")}
        at = 0
        while page := self._listed(state, about, at, wanted.ids):
            at += len(page)
            for info in page:
                if until is None or info.created_at.timestamp() <= until:
                    yield info.created_at.timestamp(), info.run_id, info

    def _listed(
        self, state: RunState | None, about: Mapping[str, str | None], at: int, ids: Collection[str] | None
    ) -> Sequence[RunInfo]:
        with self._answering():
            return self.runs.store.listed(state, about, _PAGE, at, ids)

    def _others(self, wanted: RunsWanted, until: float | None) -> Iterator[_Listed]:
        """Yield when the other runs began, their ids and the runs, the latest first."""
        before = None
        while page := super().page(replace(wanted, before=before, limit=_PAGE)):
            before = page[-1].run_id
            yield from [(one.created_at, one.run_id, one) for one in page if until is None or one.created_at <= until]

    def delete(self, run_id: str) -> None:
        if self._info(run_id) is None:
            super().delete(run_id)
        else:
            with self._answering():
                delete_runs(self.runs.store, [run_id])

    def journal_text(self, run_id: str) -> str:
        if self._info(run_id) is None:
            return super().journal_text(run_id)
        return self.durable_journal(run_id).dumps()

    def durable_journal(self, run_id: str) -> Journal:
        """Return the journal of a durable run."""
        with self._answering():
            return self.runs.store.journal(run_id)

    def is_durable(self, run_id: str) -> bool:
        """Return True if a run is durable; otherwise it is one of a request to this server."""
        return self._info(run_id) is not None

    def _info(self, run_id: str) -> RunInfo | None:
        """Return what is known of a durable run; None if there is none of this id."""
        try:
            with self._answering():
                return self.runs.store.info(run_id)
        except RunNotFound:
            return None

    def _answering(self) -> AbstractContextManager[None]:
        return self.runs.store.answering()

    def close(self) -> None:
        """Close the databases. Closing twice is fine."""
        self.runs.close()
        super().close()


def _record(info: RunInfo, journal: Journal | None, ended: Mapping[str, Any] | None) -> RunRecord:
    """Return a durable run as its clients see it; one without a journal is damaged."""
    ended = ended or {}
    error = _error(ended) if info.state == "failed" else None
    if journal is None:
        error = RunError("JournalError", "what is stored of this run is damaged")
    return RunRecord(
        run_id=info.run_id,
        tenant=info.tenant,
        agent=info.agent,
        state="waiting" if info.state == "paused" else info.state,
        created_at=info.created_at.timestamp(),
        updated_at=info.updated_at.timestamp(),
        user=info.user,
        session=info.session,
        executor="dbos",
        input=None if journal is None or journal.goes_on else journal.context.user_input,
        output=ended.get("output"),
        citations=ended.get("citations", ()),
        unknown_labels=ended.get("unknown_labels", ()),
        error=error,
        finish_reason=ended.get("finish_reason"),
        usage=NO_USAGE if journal is None else journal.usage,
        waiting=tuple([WaitingCall(call.call_id, call.tool, call.arguments) for call in info.waiting]),
    )


def _error(ended: Mapping[str, Any]) -> RunError:
    """Return what clients read about the error of a run: of one that is not ours, its class only."""
    kinds: tuple[type[Any], ...] = OUR_ERRORS
    known = {one.__name__ for error in kinds for one in _with_subclasses(error)}
    kind = str(ended.get("kind", "Error"))
    text = (
        str(ended.get("message", "")) if kind in known else "an internal error ended the run; see `agentkit runs show`"
    )
    return RunError(kind, text)


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _with_subclasses(one)
