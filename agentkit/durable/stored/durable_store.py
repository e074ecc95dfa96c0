"""`DurableStore`: the durable runs in a database: what they are, how they ended, and how they go on.

One run is one DBOS workflow, and the lines of its journal are steps of it: what a run was answered is stored once, as
our JSON, before it goes on, by a write that DBOS refuses to whoever does not own the run any more. So recovery, queues,
priorities and schedules are those of DBOS, and going on is `Agent.resume`. Agents inside of it: see `journal_rows`.
Journals in tables of our own beside a queue would need that fence, those retries and that retention written again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

from sqlalchemy import exc

from agentkit.durable.durable_errors import DatabaseUnavailable, DurableError, RunIdTaken, RunNotFound
from agentkit.durable.stored.database import address_of, checked_url, is_made, opened_database, shown_url
from agentkit.durable.stored.journal_rows import INNER, JournalRow, journal_rows, journal_text
from agentkit.durable.stored.run_info import RunInfo, RunState, info_of, inner_info, names_of, outcome_of, state_of
from agentkit.durable.stored.run_request import RunRequest
from agentkit.durable.stored.run_tables import AskedCall, RunTables
from agentkit.durable.stored.workflow_rows import WorkflowRow, WorkflowRows, can_be_stored
from agentkit.errors import JournalError
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal

__all__ = ["APPLICATION", "PRIORITY", "VERSION", "WORKFLOW", "DurableStore"]

T = TypeVar("T")

APPLICATION = "agentkit"
"""The application that the workflows belong to: others may share the database."""
WORKFLOW = "agentkit.run"
VERSION = "agentkit-1"
"""The version that DBOS knows; agents have versions of their own."""

_BEHIND = 2**31 - 1
"""Behind every step: a workflow that is rewound to it has lost nothing, and runs again from its journal."""
PRIORITY = 100
"""That of a run that was given none."""
_PAGE = 500
_SECONDS_AGAIN = 1.0
"""Between two questions to a database that does not answer."""
_MAX_SHOWN = 300
_log = logging.getLogger("agentkit")


class DurableStore:
    """The runs in a database. Its methods block, and raise what SQLAlchemy does where the database does not answer:
    `RunHandle` and `Runs` ask them by `ask` or `wait_for`.

    Args:
        url: The database.

    Raises:
        DurableError: It is of another kind.
    """

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        self._lock = threading.Lock()
        self._opened: tuple[Any, RunTables] | None = None

    @property
    def address(self) -> str:
        """What DBOS connects to: the database, with its password and how connections are made."""
        return address_of(self.url)

    @contextmanager
    def answering(self, again: str = "then ask again") -> Iterator[None]:
        """Within it, a database that does not answer is a `DatabaseUnavailable`.

        Args:
            again: What to do once it answers.
        """
        try:
            yield
        except (exc.SQLAlchemyError, UnicodeDecodeError) as error:  # a damaged file may break what SQLite says of it
            what = " ".join(str(getattr(error, "orig", None) or error).split())[:_MAX_SHOWN]
            raise DatabaseUnavailable(
                f"the database of the runs, {shown_url(self.url)}, does not answer or refuses: {what}: see that it "
                f"runs, can be reached and has room, {again}",
                name="database",
                path=shown_url(self.url),
            ) from error

    async def check_made(self) -> None:
        """Check that the database has been used for runs: whoever only looks at runs makes none.

        Raises:
            DurableError: There is no database, or one of something else.
            DatabaseUnavailable: The database does not answer.
        """
        if not await self.ask(lambda: is_made(self.url)):
            raise DurableError(
                f"{shown_url(self.url)} has no runs: see that this is their address; it is made when the first run is "
                "started",
                name="url",
            )

    async def ask(self, work: Callable[[], T]) -> T:
        """Return what a function returns that asks the database, in a thread.

        Raises:
            DatabaseUnavailable: The database does not answer.
        """

        def asked() -> T:
            with self.answering():
                return work()

        return await in_thread(asked)

    async def wait_for(self, work: Callable[[], T]) -> T:
        """Return what a function returns that only reads; while the database does not answer it is asked again."""
        is_noted = False
        while True:
            try:
                return await self.ask(work)
            except DatabaseUnavailable as error:
                if not is_noted:
                    _log.warning("%s; until then it is asked again each second", error)
                is_noted = True
                await asyncio.sleep(_SECONDS_AGAIN)

    def enqueue(
        self, wanted: Sequence[tuple[str, RunRequest]], *, priority: int = PRIORITY, delay: float | None = None
    ) -> None:
        """Store runs that are to begin. One that is there already stays as it is.

        Raises:
            RunIdTaken: It is another one; nothing was stored.
        """
        if len(wanted) > 1:  # one is stored, or it is not
            wanted = [one for at in range(0, len(wanted), _PAGE) for one in self._unknown(wanted[at : at + _PAGE])]
        rows = [
            self.client._build_enqueue_status(_enqueue_options(*one, priority, delay), one[1].data()) for one in wanted
        ]
        begun: set[str] = set()
        for at in range(0, len(rows), _PAGE):
            page = [status for _, status in rows[at : at + _PAGE]]
            # One transaction; and runs of one session keep their order, whatever the clock of this process: behind the
            # last one that the database has, which DBOS would ask for once and note for ever.
            self.client._sys_db._batch_created_at_cursors.clear()
            begun |= self.client._sys_db.init_workflows(page) if delay is None else self._delayed(page)
        for run_id, request in wanted:
            if run_id not in begun:
                one = self._any(run_id, with_input=True)
                what = request.differs(RunRequest.of_data(one.input)) if one.name == WORKFLOW else "agent"
                if what is not None:
                    raise RunIdTaken(run_id, what)

    def _unknown(self, wanted: Sequence[tuple[str, RunRequest]]) -> list[tuple[str, RunRequest]]:
        """Return those runs that are not there yet.

        Raises:
            RunIdTaken: One that is there is another one.
        """
        found = {
            one.workflow_id: one.input for one in self._statuses([run_id for run_id, _ in wanted], with_input=True)
        }
        for run_id, request in wanted:
            if run_id in found and (what := request.differs(RunRequest.of_data(found[run_id]))) is not None:
                raise RunIdTaken(run_id, what)
        return [one for one in wanted if one[0] not in found]

    def _delayed(self, rows: Sequence[Any]) -> set[str]:
        """Store runs that begin later, and return the ids of those that are new."""
        begun: set[str] = set()
        for status in rows:
            key = os.urandom(16).hex()
            _, is_new = self.client._sys_db.init_workflow(status, creator_xid=key, reuse_policy="return-existing")
            begun |= {status["workflow_uuid"]} if is_new else set()
        return begun

    def listed(
        self,
        state: RunState | None,
        wanted: Mapping[str, str | None],
        limit: int,
        offset: int,
        of: Collection[str] | None = None,
    ) -> Sequence[RunInfo]:
        """Return runs, the latest first; `wanted` has attributes that they must have, and `of` their ids."""
        if state is not None and state not in (known := sorted(get_args(RunState))):
            raise DurableError(
                f"state={state!r}: expected one of {', '.join(map(repr, known))}", name="state", value=str(state)
            )
        attributes = {name: value for name, value in wanted.items() if value is not None}
        if not all(map(can_be_stored, attributes.values())):
            return []
        statuses = names_of(state)
        found: list[WorkflowRow] = []
        at, ids = 0, None if of is None else list(of)
        if state == "paused":
            asked = dict.fromkeys(call.run_id for call in self.tables.waiting(100_000))
            ids = [one for one in asked if of is None or one in of]
        while len(found) < offset + limit and (ids is None or at < len(ids)):
            page = self.workflows.listed(
                [WORKFLOW],
                application=APPLICATION,
                statuses=statuses,
                attributes=None if self.tables.is_sqlite else attributes,
                latest_first=True,
                with_output=True,
                is_short=True,
                ids=None if ids is None else ids[at : at + _PAGE],
                limit=_PAGE,
                offset=at if ids is None else 0,
            )
            at += _PAGE
            found += [one for one in page if state in (None, state_of(one)) and _has(one, attributes)]
            if ids is None and len(page) < _PAGE:
                break
        found.sort(key=lambda one: one.created_at, reverse=True)
        return self._infos(found[offset : offset + limit])

    def info(self, run_id: str) -> RunInfo:
        """Return what is known of a run. Blocks."""
        return self._infos([self._status(run_id, is_short=True)])[0]

    def any_info(self, run_id: str) -> RunInfo:
        """Return what is known of a run, or of an agent inside of one. Blocks; `RunHandle.info` does not."""
        one = self._any(run_id, is_short=True)
        return self._infos([one])[0] if one.name == WORKFLOW else inner_info(one, self.info(self._around(one)))

    def inside(self, run_id: str) -> list[RunInfo]:
        """Return what is known of the agents inside of a run, at any depth, in the order they began. Blocks."""
        run = self.info(self._around(self._any(run_id)))
        return [inner_info(one, run) for one in self.workflows.listed([INNER], inside=[run_id], with_output=True)]

    def infos(self, run_ids: Sequence[str]) -> list[RunInfo]:
        """Return what is known of those of these runs that there are. Blocks."""
        return self._infos(self._statuses(run_ids, is_short=True))

    def request(self, run_id: str) -> RunRequest:
        """Return what is stored of a run since it was started. Blocks."""
        return RunRequest.of_data(self._status(run_id, with_input=True).input)

    def journal(self, run_id: str) -> Journal:
        """Return the journal of a run, or of an agent inside of one, so far. Blocks; `RunHandle.journal` does not.

        Raises:
            JournalError, DurableError: It cannot be read.
        """
        one = self._any(run_id, with_input=True)
        return _journal(one, self.rows([one.workflow_id]))

    def journals(self, run_ids: Sequence[str]) -> dict[str, Journal | None]:
        """Return the journals of runs so far, of those that are there; None for one that cannot be read. Blocks."""
        found: dict[str, Journal | None] = {}
        statuses, rows = self._statuses(run_ids, with_input=True), self.rows(run_ids)
        for one in statuses:
            try:
                found[one.workflow_id] = _journal(one, rows)
            except (DurableError, JournalError):
                found[one.workflow_id] = None
        return found

    def decided(self, run_id: str) -> tuple[AskedCall, ...]:
        """Return the calls of a run that were decided, in the order in which they were asked. Blocks."""
        self._status(run_id)
        return tuple([call for call in self.tables.calls([run_id]) if call.decision is not None])

    def rows(self, run_ids: Sequence[str]) -> dict[str, list[JournalRow]]:
        """Return what is stored of the journals of runs, or of agents inside of runs. Blocks."""
        return journal_rows(self.workflows, [run_id for run_id in run_ids if can_be_stored(run_id)])

    def outcome(self, run_id: str) -> Mapping[str, Any] | None:
        """Return how a run ended or why it waits, None while it goes on. Blocks."""
        return outcome_of(self._status(run_id))

    def outcomes(self, run_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return how runs ended or why they wait, those of them that do not go on. Blocks.

        One that is not there, such as one that was deleted, failed with `RunNotFound`.
        """
        gone = {"state": "failed", "kind": "RunNotFound"}
        outcomes: dict[str, Any] = {run_id: {**gone, "message": str(RunNotFound(run_id))} for run_id in run_ids}
        outcomes |= {one.workflow_id: outcome_of(one) for one in self._statuses(run_ids)}
        return {run_id: outcome for run_id, outcome in outcomes.items() if outcome is not None}

    def cancel(self, run_id: str) -> None:
        """Cancel a run. Blocks; see `RunHandle.cancel`."""
        if state_of(self._status(run_id)) == "paused":
            self._again(run_id)  # only a run that has not ended can be cancelled
        self.client.cancel_workflow(run_id)

    def go_on(self, run_id: str, *, only_if: RunState | None = None) -> None:
        """Have a run that stopped go on from its journal. Blocks; see `RunHandle.resume`."""
        state = state_of(self._status(run_id))
        if only_if is not None and state != only_if:
            return  # its worker has not stored yet that it pauses, and looks for decisions then
        if state in ("queued", "running"):
            return
        if state == "finished":
            raise DurableError(f"run {run_id!r} has finished: start a new one", name="run_id", value=run_id)
        if state == "paused" and (waiting := [one for one in self.tables.calls([run_id]) if one.decision is None]):
            named = ", ".join(f"{call.tool} ({call.call_id})" for call in waiting)
            raise DurableError(
                f"run {run_id!r} waits for decisions about {named}: approve or deny them", name=str(named), value=run_id
            )
        self._again(run_id)

    def go_on_decided(self) -> None:
        """Have all paused runs go on that wait for no decision any more. Blocks."""
        decided = self.tables.decided()
        for at in range(0, len(decided), _PAGE):
            page = decided[at : at + _PAGE]
            states = {one.workflow_id: state_of(one) for one in self._statuses(page)}
            for run_id in page:
                state = states.get(run_id)
                if state == "paused":
                    try:
                        self._again(run_id)
                    except DurableError as error:  # the others wait as well
                        _log.warning("a run that was decided about does not go on: %s", error)
                elif state not in ("queued", "running"):  # it was cancelled, or is gone: do not look for it again
                    self.tables.take(run_id)

    def _again(self, run_id: str) -> None:
        """Put a run that stopped back into its queue, whole."""
        from dbos import error as dbos_errors

        request = self.request(run_id)
        try:
            self.client.rewind_workflow(
                run_id, start_step=_BEHIND, queue_name=request.queue, queue_partition_key=request.partition
            )
        except dbos_errors.DBOSException as error:
            if state_of(self._status(run_id)) not in ("queued", "running"):  # or another process was first
                raise DurableError(
                    f"run {run_id!r} cannot go on: {error}: see `agentkit runs show`", name="run_id", value=run_id
                ) from error

    @property
    def tables(self) -> RunTables:
        """Workers and approvals."""
        return self._open()[1]

    @property
    def workflows(self) -> WorkflowRows:
        """The rows of DBOS, for what is read of them."""
        return WorkflowRows(self.client)

    @property
    def client(self) -> Any:
        """The `DBOSClient` of the database, for what DBOS has beside runs."""
        return self._open()[0]

    def close(self) -> None:
        """Close the connections; whatever is called next opens them again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].destroy()
            opened[1].close()

    def _open(self) -> tuple[Any, RunTables]:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = opened_database(self.url, APPLICATION)
        return self._opened

    def _status(self, run_id: str, *, with_input: bool = False, is_short: bool = False) -> WorkflowRow:
        one = self._any(run_id, with_input=with_input, is_short=is_short)
        if one.name != WORKFLOW:
            raise RunNotFound(run_id, self._around(one))
        return one

    def _any(self, run_id: str, *, with_input: bool = False, is_short: bool = False) -> WorkflowRow:
        """Return the workflow of a run, or of an agent inside of one."""
        names = [WORKFLOW, INNER]
        for status in self._statuses([run_id], with_input=with_input, is_short=is_short, names=names):
            return status
        raise RunNotFound(run_id)

    def _around(self, one: WorkflowRow) -> str:
        """Return the id of the run that a workflow is inside of."""
        seen = {one.workflow_id}
        while one.name != WORKFLOW and one.parent_id is not None and one.parent_id not in seen:
            one = self._any(one.parent_id)
            seen.add(one.workflow_id)
        return one.workflow_id

    def _statuses(
        self,
        run_ids: Sequence[str],
        *,
        with_input: bool = False,
        is_short: bool = False,
        names: Sequence[str] = (WORKFLOW,),
    ) -> list[WorkflowRow]:
        ids = [run_id for run_id in run_ids if can_be_stored(run_id)]
        if not ids:
            return []
        return self.workflows.listed(names, ids=ids, with_input=with_input, with_output=True, is_short=is_short)

    def _infos(self, found: Sequence[WorkflowRow]) -> list[RunInfo]:
        paused = [status.workflow_id for status in found if state_of(status) == "paused"]
        waiting: dict[str, list[AskedCall]] = {}
        for call in self.tables.calls(paused) if paused else ():
            if call.decision is None:
                waiting.setdefault(call.run_id, []).append(call)
        workers = self.tables.workers() if any(state_of(one) in ("queued", "running") for one in found) else []
        return [info_of(status, tuple(waiting.get(status.workflow_id, ())), workers) for status in found]


def _enqueue_options(run_id: str, request: RunRequest, priority: int, delay: float | None) -> Any:
    from dbos import WorkflowSerializationFormat

    options: dict[str, Any] = {
        "workflow_name": WORKFLOW,
        "queue_name": request.queue,
        "workflow_id": run_id,
        "app_version": VERSION,
        "priority": priority,
        "serialization_type": WorkflowSerializationFormat.PORTABLE,
        "attributes": {
            "agent": request.agent,
            "version": request.version,
            "session": None if request.session is None else request.session.id,
            "tenant": request.tenant,
            "user": request.user,
        },
    }
    if request.partition is not None:
        options["queue_partition_key"] = request.partition
    if delay is not None:
        options["delay_seconds"] = delay
    return options


def _journal(one: WorkflowRow, rows: Mapping[str, Sequence[JournalRow]]) -> Journal:
    head = RunRequest.of_data(one.input).head if one.name == WORKFLOW else ""
    return Journal.loads(journal_text(head, rows.get(one.workflow_id, ())))


def _has(status: WorkflowRow, wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= status.attributes.items()
