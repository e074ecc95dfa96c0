"""`DurableRecords`: durable runs, as the clients of a server see runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from agentkit.durable.durable_errors import RunNotFound
from agentkit.durable.durable_store import RunInfo, RunState
from agentkit.durable.retention import delete_runs
from agentkit.durable.runs import Runs
from agentkit.models.model import Usage
from agentkit.run.journal import Journal
from agentkit.server.background_runs import OUR_ERRORS
from agentkit.server.run_records import RunEvent, RunRecord, RunRecords, RunStatus, WaitingCall
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["DurableRecords"]

_PAGE = 200


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
        return self.rest.get(tenant, run_id) if info is None else self.record(info)

    def record(self, info: RunInfo) -> RunRecord:
        """Return a durable run as its clients see it."""
        journal = self.runs.store.journal(info.run_id)
        ended = self.runs.store.outcome(info.run_id) or {}
        asked = None if journal.goes_on else _input(journal.context.user_input)
        return RunRecord(
            id=info.run_id,
            tenant=info.tenant,
            agent=info.agent,
            status=_status(info.state),
            created_at=info.created_at.timestamp(),
            updated_at=info.updated_at.timestamp(),
            user=info.user,
            session=info.session,
            input=asked,
            output=ended.get("output"),
            error=_error(ended) if info.state == "failed" else None,
            finish_reason=ended.get("finish_reason"),
            usage=journal.usage,
            waiting=tuple([WaitingCall(call.call_id, call.tool, call.arguments) for call in info.waiting]),
        )

    def page(
        self,
        tenant: str,
        *,
        agent: str | None = None,
        session: str | None = None,
        user: str | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[RunRecord]:
        """See `RunRecords.page`."""
        wanted = {"agent": agent, "session": session, "user": user, "tenant": tenant}
        until = None if before is None else self.get(tenant, before).created_at
        others = self._others(tenant, until, agent=agent, session=session, user=user, status=status)
        found = merge(self._durable(status, wanted, until), others, key=lambda one: -one[0])
        newest = islice((run_id for _, run_id in found if run_id != before), limit)
        return [self.get(tenant, run_id) for run_id in newest]

    def _durable(
        self, status: RunStatus | None, wanted: Mapping[str, str | None], until: float | None
    ) -> Iterator[tuple[float, str]]:
        """Yield when durable runs began, and their ids, the latest first."""
        state: RunState | None = "paused" if status == "waiting" else status
        at = 0
        while page := self.runs.store.listed(state, wanted, _PAGE, at):
            at += len(page)
            for info in page:
                if until is None or info.created_at.timestamp() <= until:
                    yield info.created_at.timestamp(), info.run_id

    def _others(self, tenant: str, until: float | None, **wanted: Any) -> Iterator[tuple[float, str]]:
        """Yield when the other runs began, and their ids, the latest first."""
        before = None
        while page := self.rest.page(tenant, before=before, limit=_PAGE, **wanted):
            before = page[-1].id
            yield from [(one.created_at, one.id) for one in page if until is None or one.created_at <= until]

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

    def put(self, record: RunRecord) -> None:
        """See `RunRecords.put`."""
        self.rest.put(record)

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
