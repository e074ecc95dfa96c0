"""`DurableStore`: durable runs in a database, and their DBOS queues.

Tables of agentkit contain the runs: journals, decisions, states. DBOS schedules workers: each time a run must continue,
a new workflow (a leg) is queued, in the transaction that stores the reason. A leg starts an attempt, which has the
fence of the run until the next attempt starts. DBOS stores no data of runs, and only its public API is used.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from agentkit.durable.durable_errors import RunIdTaken
from agentkit.durable.stored.database import OpenedDatabase, check_installed, checked_url, is_created, opened_database
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import JournalError
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal
from agentkit.runs.leg import Leg
from agentkit.runs.run_database import DATABASE_ERRORS, database_error, shown_url
from agentkit.runs.run_errors import DatabaseDamaged, DatabaseUnavailable, DurableError
from agentkit.runs.run_queue import NewRun, RunQueue
from agentkit.runs.run_record import STATES, RunRecord, RunsWanted, WaitingCall
from agentkit.runs.run_store import RunStore
from agentkit.runs.worker_rows import WorkerRow, WorkerRows
from agentkit_prompts.context.prompt_context import UserInput

T = TypeVar("T")

APPLICATION = "agentkit"
"""DBOS application of the workflows: other applications can share the database."""
WORKFLOW = "agentkit.run"
"""Name of the DBOS workflow that executes a leg of a run."""
VERSION = "agentkit-1"
"""Application version for DBOS, independent of the versions of agents."""

_PAGE = 500
"""Number of runs in one query or transaction."""
_SECONDS_AGAIN = 1.0
"""Seconds between two requests to a database that does not respond."""
_SILENT = "it was stopped, or cannot write to the database: see its log"
_log = logging.getLogger("agentkit")


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A new run before it is stored."""

    run_id: str
    request: RunRequest
    head: str
    """First line of the journal, with the input."""
    input: UserInput | None
    """None if the run answers the last message of its session."""
    permissions: tuple[str, ...] = ()
    """Scopes of the token that started the run; empty outside of a server."""
    locale: str | None = None
    """Language tag of the run."""
    tags: tuple[str, ...] = ()
    """Tags of the run."""

    def new(self) -> NewRun:
        """Return the run as `RunQueue.add` stores it."""
        request, now = self.request, time.time()
        session_id = None
        if request.session is not None:
            session_id = request.session.id
        record = RunRecord(
            run_id=self.run_id,
            agent=request.agent,
            version=request.version,
            state="queued",
            created_at=now,
            updated_at=now,
            tenant=request.tenant,
            user=request.user,
            permissions=self.permissions,
            locale=self.locale,
            tags=self.tags,
            session=session_id,
            schedule=request.schedule,
            executor="dbos",
            input=self.input,
        )
        return NewRun(record, self.head, request.dumps())


class DurableStore:
    """The runs in a database.

    Methods block, and raise one of `DATABASE_ERRORS` if the database does not respond. `RunHandle` and `Runs` call
    these methods by `ask` or `wait_for`.

    Args:
        url: Address of the database.

    Raises:
        DurableError: The address is invalid, or DBOS is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url = checked_url(url)
        check_installed()
        self._lock = threading.Lock()
        self._opened: OpenedDatabase | None = None

    @contextmanager
    def answering(self, again: str = "then try again") -> Iterator[None]:
        """Convert errors of the database to `DatabaseUnavailable`.

        Args:
            again: Advice in the error for the time after the database responds again.
        """
        try:
            yield
        except DATABASE_ERRORS as error:
            # Without a cause of the database, the error contains its advice already.
            if isinstance(error, DatabaseUnavailable) and not isinstance(error.__cause__, DATABASE_ERRORS):
                raise
            address = shown_url(self.url)
            raise database_error(error, f"the database of the runs, {address},", address, again) from error

    async def check_created(self) -> None:
        """Check that the database contains runs, for callers that only read and must not create a database.

        Raises:
            DurableError: The database is missing, or has other content.
            DatabaseUnavailable: The database does not respond.
        """
        if not await self.ask(lambda: is_created(self.url)):
            raise DurableError(
                f"{shown_url(self.url)} has no runs: check the address; the first started run creates the database",
                name="url",
            )

    async def ask(self, work: Callable[[], T]) -> T:
        """Return the result of a database function, called in a thread.

        Raises:
            DatabaseUnavailable: The database does not respond.
        """

        def call() -> T:
            with self.answering():
                return work()

        return await in_thread(call)

    async def wait_for(self, work: Callable[[], T]) -> T:
        """Return the result of a function that only reads; repeat the call while the database does not respond."""
        is_logged = False  # one line in the log for the whole time without a database
        while True:
            try:
                return await self.ask(work)
            except DatabaseDamaged:
                raise  # no retry repairs it
            except DatabaseUnavailable as error:
                if not is_logged:
                    _log.warning("%s; the request is repeated every second", error)
                is_logged = True
                await asyncio.sleep(_SECONDS_AGAIN)

    def enqueue(self, runs: Sequence[StartedRun], *, delay: float | None = None) -> None:
        """Store new runs. Existing runs stay unchanged.

        Raises:
            RunIdTaken: An id belongs to a run with another request; nothing was stored.
        """
        # Several runs are stored in several transactions: all runs are checked before the first transaction.
        if len(runs) > 1:
            for at in range(0, len(runs), _PAGE):
                self._check_existing(runs[at : at + _PAGE])
        queue = self.queue
        if delay is not None:
            queue = RunQueue(self.rows.database, partial(self.queue_leg, delay=delay))
        # One transaction per page: a transaction for all runs would block other writers for too long.
        for at in range(0, len(runs), _PAGE):
            page = {run.run_id: run for run in runs[at : at + _PAGE]}
            existing = queue.add([run.new() for run in page.values()], delay or 0.0)
            self._check_existing([page[row.record.run_id] for row in existing])

    def _check_existing(self, runs: Sequence[StartedRun]) -> None:
        """Check that existing runs with these ids have the same requests.

        Raises:
            RunIdTaken: A run has another request.
        """
        ids = [run.run_id for run in runs]
        existing = {record.run_id for record in self.rows.page(RunsWanted(ids=ids, limit=_PAGE))}
        for run in runs:
            difference = None
            if run.run_id in existing:
                difference = self._difference(run)
            elif self.rows.has(run.run_id):  # an inner agent
                difference = "agent"
            if difference is not None:
                raise RunIdTaken(run.run_id, difference)

    def _difference(self, run: StartedRun) -> str | None:
        """Return the first difference between a new run and the stored run with its id; None if they are equal."""
        stored = self.queue.request(run.run_id)
        if stored is None:
            return "agent"
        difference = run.request.differs(RunRequest.loads(stored))
        if difference is not None:
            return difference
        head = self.rows.first_line(run.run_id)
        if head == run.head:
            return None
        data = _input_data(run.head)
        try:
            stored_data = _input_data(head or "")
        except (ValueError, LookupError, TypeError, AttributeError):  # a corrupt line
            return "input"
        if stored_data.pop("tags", []) != data.pop("tags", []):
            return "list of tags"
        if stored_data != data:
            return "input"
        return None

    def queue_leg(self, connection: sa.Connection, leg: Leg, delay: float | None = None) -> None:
        """Queue a leg of a run as a workflow of DBOS, in a transaction."""
        from dbos import WorkflowSerializationFormat

        request = RunRequest.loads(leg.request)
        options: Any = {
            "workflow_name": WORKFLOW,
            "queue_name": request.queue,
            "workflow_id": leg_id(leg),
            "app_version": VERSION,
            "priority": request.priority,
            "serialization_type": WorkflowSerializationFormat.PORTABLE,
        }
        if request.partition is not None:
            options["queue_partition_key"] = request.partition
        if delay is not None:
            options["delay_seconds"] = delay
        self.client.enqueue_in_transaction(connection, options, leg.run_id)

    def info(self, run_id: str) -> RunRecord:
        """Return the record of a run. Blocks.

        Raises:
            RunNotFound: The run is unknown.
        """
        short = self.rows.page(RunsWanted(ids=[run_id], is_short=True, limit=1))
        return self._with_problems(short or [self.rows.get(run_id)])[0]

    def any_info(self, run_id: str) -> RunRecord:
        """Return the record of a run, or of an inner agent. Blocks."""
        short = self.rows.page(RunsWanted(ids=[run_id], is_short=True, limit=1))
        return self._with_problems(short or [self.rows.any(run_id)])[0]

    def listed(self, wanted: RunsWanted) -> list[RunRecord]:
        """Return runs, latest first. Blocks.

        Raises:
            DurableError: The state is unknown.
        """
        if wanted.state is not None and wanted.state not in STATES:
            raise DurableError(
                f"state={wanted.state!r}: expected one of {', '.join(map(repr, sorted(STATES)))}",
                name="state",
                value=str(wanted.state),
            )
        return self._with_problems(self.rows.page(wanted))

    def journal(self, run_id: str) -> Journal:
        """Return the journal of a run, or of an inner agent. Blocks.

        Raises:
            JournalError: The journal is corrupt.
            RunNotFound: The run is unknown.
        """
        journal = self.rows.journal(run_id)
        if journal is None:
            self.rows.any(run_id)
            raise JournalError(f"the stored journal of run {run_id!r} is corrupt", name="journal")
        return journal

    def decided(self, run_id: str) -> tuple[WaitingCall, ...]:
        """Return the decided calls of a run, in the order of the calls. Blocks."""
        self.rows.get(run_id)
        return tuple([call for call in self.rows.calls(run_id) if call.decision is not None])

    def resume(self, run_id: str) -> None:
        """Queue a failed or cancelled run again. Blocks; see `RunHandle.resume`."""
        record = self.rows.get(run_id)
        if record.state == "finished":
            raise DurableError(f"run {run_id!r} has finished: start a new one", name="run_id", value=run_id)
        if record.state == "waiting":
            calls = ", ".join(f"{call.tool} ({call.call_id})" for call in record.waiting)
            raise DurableError(
                f"run {run_id!r} waits for decisions about {calls}: approve or deny them", name=calls, value=run_id
            )
        self.queue.again(run_id, ("failed", "cancelled"))

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all their data. Blocks."""
        for at in range(0, len(run_ids), _PAGE):
            page = run_ids[at : at + _PAGE]
            legs = self.queue.legs(page)
            # Runs before their workflows: a workflow without its run ends at once, a run without its workflow would
            # stay queued.
            self.rows.delete(*page)
            all_legs = [leg._replace(number=number) for leg in legs for number in range(leg.number + 1)]
            self.client.delete_workflows([leg_id(leg) for leg in all_legs])

    def _with_problems(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Return records with the reasons why runs do not continue."""
        if not any(record.state in ("queued", "running") and record.executor == "dbos" for record in records):
            return [*records]
        workers = self.workers.all()
        return [replace(record, problem=_problem(record, workers)) for record in records]

    @property
    def rows(self) -> RunStore:
        """Rows of the runs."""
        return self._open().rows

    @property
    def queue(self) -> RunQueue:
        """Queue of the runs."""
        return RunQueue(self.rows.database, self.queue_leg)

    @property
    def workers(self) -> WorkerRows:
        """Rows of the workers."""
        opened = self._open()
        return WorkerRows(opened.rows.database, opened.leases)

    @property
    def engine(self) -> sa.Engine:
        """Connections, shared with DBOS."""
        return self._open().engine

    @property
    def is_sqlite(self) -> bool:
        """True if the database is a SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def client(self) -> Any:
        """`DBOSClient` of the database."""
        return self._open().client

    def close(self) -> None:
        """Close the connections. The next request opens them again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> OpenedDatabase:
        if self._opened is None:
            # Checked again under the lock: another thread can have opened the database.
            with self._lock:
                if self._opened is None:
                    self._opened = opened_database(self.url, APPLICATION)
        return self._opened


def leg_id(leg: Leg) -> str:
    """Return the id of the workflow of a leg.

    DBOS executes the runs of a session in the order of their queue time (in seconds on SQLite), and then of these ids.
    """
    return f"{leg.order:016d}/{leg.run_id}/{leg.number}"


def leg_of(workflow_id: str) -> tuple[str, int]:
    """Return the run id of a workflow, and the number of its leg."""
    run_id, _, number = workflow_id.partition("/")[2].rpartition("/")
    return run_id, int(number)


def _input_data(head: str) -> dict[str, Any]:
    """Return the first line of a journal without the parts of the agent: a new version of the agent is no new input."""
    data: dict[str, Any] = json.loads(head)
    for name in ("version", "parts"):
        data.pop(name, None)
    data["context"].pop("tools", None)
    return data


def _problem(record: RunRecord, workers: Sequence[WorkerRow]) -> str | None:
    """Return the reason why a run does not continue; None if it continues or has finished."""
    if record.parent is not None:
        return None
    if record.state == "running":
        if any(worker.id == record.worker and worker.is_alive for worker in workers):
            return None
        return f"its worker is silent: {_SILENT}; another worker continues the run when the lease expires"
    if record.state == "queued":
        return _queue_problem(record, workers)
    return None


def _queue_problem(record: RunRecord, workers: Sequence[WorkerRow]) -> str | None:
    """Return the reason why no worker starts a queued run; None if a live worker has the agent in this version."""
    key = record.agent, record.version
    able = [worker for worker in workers if key in worker.serves]
    if any(worker.is_alive for worker in able):
        return None
    # The row of a worker that crashed has the state `alive` until another worker marks it as dead.
    silent = [worker.id for worker in able if worker.state == "alive"]
    if silent:
        return f"worker {silent[-1]} is silent: {_SILENT}"
    served = [pair for worker in workers if worker.is_alive for pair in worker.serves]
    versions = sorted({version for name, version in served if name == record.agent})
    available = ""
    if versions:
        available = f"; running workers have {', '.join(map(repr, versions))}"
    return (
        f"no worker has version {record.version!r} of agent {record.agent!r}{available}: start a worker with "
        "`with runs.worker():` or `agentkit worker MODULE`, or cancel the run"
    )
