"""`DurableRecords`: durable runs, as the clients of a server see runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from typing import Any, TypeAlias

from agentkit.durable.durable_errors import RunNotFound
from agentkit.durable.retention import delete_runs
from agentkit.durable.run_info import RunInfo, RunState
from agentkit.durable.runs import Runs
from agentkit.models.model import Usage
from agentkit.run.journal import Journal
from agentkit.server.served_runs.background_runs import OUR_ERRORS
from agentkit.server.served_runs.run_records import RunEvent, RunRecord, RunRecords, RunStatus, RunsWanted, WaitingCall
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["DurableRecords"]

_PAGE = 200
_Listed: TypeAlias = tuple[float, str, RunInfo | RunRecord]
"""When a run began, its id and what is known of it."""


class DurableRecords:
    """A `RunRecords` whose background runs are those of a `Runs`: of every server, worker and program on its database.

    Args:
        runs: The durable runs.
        rest: Where everything else is kept: requests of OpenAI-compatible endpoints, and what tenants used.
    """

    def __init__(self, runs: Runs, rest: RunRecords) -> None:
        self.runs = runs
        self.rest = rest

    # Durable runs

    def get(self, tenant: str, run_id: str) -> RunRecord:
        """See `RunRecords.get`."""
        info = self._info(tenant, run_id)
        if info is None:
            return self.rest.get(tenant, run_id)
        return _record(info, self.durable_journal(run_id), self.runs.store.outcome(run_id))

    def page(self, tenant: str, wanted: RunsWanted) -> Sequence[RunRecord]:
        """See `RunRecords.page`."""
        until = None if wanted.before is None else self.get(tenant, wanted.before).created_at
        every = merge(
            self._durable(tenant, wanted, until), self._others(tenant, wanted, until), key=lambda one: -one[0]
        )
        newest = [*islice(((run_id, found) for _, run_id, found in every if run_id != wanted.before), wanted.limit)]
        ids = [run_id for run_id, found in newest if isinstance(found, RunInfo)]
        journals, ended = self.runs.store.journals(ids), self.runs.store.outcomes(ids)
        return [
            _record(found, journals[run_id], ended.get(run_id)) if isinstance(found, RunInfo) else found
            for run_id, found in newest
            if isinstance(found, RunRecord) or run_id in journals  # or it was deleted meanwhile
        ]

    def _durable(self, tenant: str, wanted: RunsWanted, until: float | None) -> Iterator[_Listed]:
        """Yield when durable runs began, their ids and what is known of them, the latest first."""
        state: RunState | None = "paused" if wanted.status == "waiting" else wanted.status
        about = {"agent": wanted.agent, "session": wanted.session, "user": wanted.user, "tenant": tenant}
        at = 0
        while page := self.runs.store.listed(state, about, _PAGE, at):
            at += len(page)
            for info in page:
                if until is None or info.created_at.timestamp() <= until:
                    yield info.created_at.timestamp(), info.run_id, info

    def _others(self, tenant: str, wanted: RunsWanted, until: float | None) -> Iterator[_Listed]:
        """Yield when the other runs began, their ids and the runs, the latest first."""
        before = None
        while page := self.rest.page(tenant, replace(wanted, before=before, limit=_PAGE)):
            before = page[-1].id
            yield from [(one.created_at, one.id, one) for one in page if until is None or one.created_at <= until]

    def delete(self, tenant: str, run_id: str) -> None:
        """See `RunRecords.delete`."""
        if self._info(tenant, run_id) is None:
            self.rest.delete(tenant, run_id)
        else:
            delete_runs(self.runs.store, [run_id])

    def journal(self, tenant: str, run_id: str) -> str:
        """See `RunRecords.journal`."""
        if self._info(tenant, run_id) is None:
            return self.rest.journal(tenant, run_id)
        return self.durable_journal(run_id).dumps()

    def durable_journal(self, run_id: str) -> Journal:
        """Return the journal of a durable run."""
        return self.runs.store.journal(run_id)

    def _info(self, tenant: str, run_id: str) -> RunInfo | None:
        """Return what is known of a durable run of a tenant; None where it has none of this id."""
        try:
            info = self.runs.store.info(run_id)
        except RunNotFound:
            return None
        return info if info.tenant == tenant else None

    # The rest

    def add(self, record: RunRecord, journal: str = "") -> RunRecord:
        """See `RunRecords.add`."""
        return self.rest.add(record, journal)

    def find(self, tenant: str, key: str) -> RunRecord | None:
        """See `RunRecords.find`."""
        return self.rest.find(tenant, key)

    def put(self, record: RunRecord, *, was: RunStatus | None = None) -> bool:
        """See `RunRecords.put`."""
        return self.rest.put(record, was=was)

    def unfinished(self) -> Sequence[RunRecord]:
        """See `RunRecords.unfinished`."""
        return self.rest.unfinished()

    def add_events(self, tenant: str, run_id: str, events: Sequence[RunEvent]) -> None:
        """See `RunRecords.add_events`."""
        self.rest.add_events(tenant, run_id, events)

    def events(self, tenant: str, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RunEvent]:
        """See `RunRecords.events`."""
        return self.rest.events(tenant, run_id, after=after, limit=limit)

    def last_event(self, tenant: str, run_id: str) -> int:
        """See `RunRecords.last_event`."""
        return self.rest.last_event(tenant, run_id)

    def add_journal(self, tenant: str, run_id: str, line: str) -> None:
        """See `RunRecords.add_journal`."""
        self.rest.add_journal(tenant, run_id, line)

    def add_usage(self, tenant: str, day: str, usage: Usage, runs: int = 1) -> None:
        """See `RunRecords.add_usage`."""
        self.rest.add_usage(tenant, day, usage, runs)

    def usage(self, tenant: str, *, since: str = "") -> Mapping[str, tuple[int, Usage]]:
        """See `RunRecords.usage`."""
        return self.rest.usage(tenant, since=since)

    def close(self) -> None:
        """See `RunRecords.close`."""
        self.runs.close()
        self.rest.close()


def _record(info: RunInfo, journal: Journal, ended: Mapping[str, Any] | None) -> RunRecord:
    """Return a durable run as its clients see it."""
    ended = ended or {}
    return RunRecord(
        id=info.run_id,
        tenant=info.tenant,
        agent=info.agent,
        status=_status(info.state),
        created_at=info.created_at.timestamp(),
        updated_at=info.updated_at.timestamp(),
        user=info.user,
        session=info.session,
        input=None if journal.goes_on else _input(journal.context.user_input),
        output=ended.get("output"),
        error=_error(ended) if info.state == "failed" else None,
        finish_reason=ended.get("finish_reason"),
        usage=journal.usage,
        waiting=tuple([WaitingCall(call.call_id, call.tool, call.arguments) for call in info.waiting]),
    )


def _status(state: RunState) -> RunStatus:
    return "waiting" if state == "paused" else state


def _input(asked: UserInput) -> dict[str, Any]:
    return {"text": asked.text, "additional_kwargs": dict(asked.additional_kwargs)}


def _error(ended: Mapping[str, Any]) -> dict[str, Any]:
    """Return what clients read about the error of a run: of one that is not ours, its class only."""
    kinds: tuple[type[Any], ...] = OUR_ERRORS
    known = {one.__name__ for error in kinds for one in _with_subclasses(error)}
    kind = str(ended.get("kind", "Error"))
    text = (
        str(ended.get("message", "")) if kind in known else "an internal error ended the run; see `agentkit runs show`"
    )
    return {"type": kind, "message": text}


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _with_subclasses(one)
