"""`DurableStore`: the durable runs in a database, and the queues of DBOS that workers take them from.

The runs are in tables of agentkit: journals, decisions, states. DBOS decides when a worker executes a run: each time a
run is to continue, a new workflow, a leg, is queued in the transaction that stores the reason. A leg begins an attempt,
which has the fence of the run until another attempt begins. So DBOS needs no data of runs, only its public API is used.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from agentkit.durable.durable_errors import DatabaseUnavailable, RunIdTaken
from agentkit.durable.stored.database import OpenedDatabase, checked_url, is_made, opened_database, shown_url
from agentkit.durable.stored.run_request import RunRequest
from agentkit.errors import JournalError
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import DurableError
from agentkit.runs.run_queue import Leg, NewRun, RunQueue
from agentkit.runs.run_record import STATES, RunRecord, RunsWanted, WaitingCall
from agentkit.runs.run_store import RunStore
from agentkit.runs.worker_rows import WorkerRow, WorkerRows
from agentkit_prompts.context.prompt_context import UserInput

__all__ = ["APPLICATION", "VERSION", "WORKFLOW", "DurableStore", "StartedRun", "leg_id", "leg_of"]

T = TypeVar("T")

APPLICATION = "agentkit"
"""The application that the workflows belong to: others may share the database."""
WORKFLOW = "agentkit.run"
VERSION = "agentkit-1"
"""The version that DBOS knows; agents have versions of their own."""

_PAGE = 500
_SECONDS_AGAIN = 1.0
"""Between two questions to a database that does not answer."""
_MAX_SHOWN = 300
_log = logging.getLogger("agentkit")


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that is to be stored."""

    run_id: str
    request: RunRequest
    head: str
    """The first line of its journal: what it was asked."""
    input: UserInput | None

    def new(self) -> NewRun:
        """Return the run as the store takes it."""
        request, now = self.request, time.time()
        record = RunRecord(
            run_id=self.run_id,
            agent=request.agent,
            version=request.version,
            state="queued",
            created_at=now,
            updated_at=now,
            tenant=request.tenant,
            user=request.user,
            session=None if request.session is None else request.session.id,
            schedule=request.schedule,
            executor="dbos",
            input=self.input,
        )
        return NewRun(record, self.head, request.dumps())


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
        self._opened: OpenedDatabase | None = None

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

    def enqueue(self, wanted: Sequence[StartedRun], *, delay: float | None = None) -> None:
        """Store runs that are to begin. One that is there already stays as it is.

        Raises:
            RunIdTaken: It is another one; nothing was stored.
        """
        if len(wanted) > 1:  # one is stored, or it is not
            for at in range(0, len(wanted), _PAGE):
                self._check_same(wanted[at : at + _PAGE])
        queue = self.queue if delay is None else RunQueue(self.rows.database, partial(self.queue_leg, delay=delay))
        for at in range(0, len(wanted), _PAGE):
            page = {one.run_id: one for one in wanted[at : at + _PAGE]}
            known = queue.add([one.new() for one in page.values()])
            self._check_same([page[one.record.run_id] for one in known])

    def _check_same(self, wanted: Sequence[StartedRun]) -> None:
        """Check that runs that are there already are these.

        Raises:
            RunIdTaken: One is another one.
        """
        known = {one.run_id: one for one in self.rows.page(RunsWanted(ids=[one.run_id for one in wanted], limit=_PAGE))}
        for one in wanted:
            if one.run_id in known:
                stored = self.queue.request(one.run_id)
                what = "agent" if stored is None else one.request.differs(RunRequest.loads(stored))
                if what is None and self.rows.first_line(one.run_id) != one.head:
                    what = "input"
                if what is not None:
                    raise RunIdTaken(one.run_id, what)
            elif self.rows.has(one.run_id):
                raise RunIdTaken(one.run_id, "agent")

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
        """Return what is known of a run. Blocks.

        Raises:
            RunNotFound: The run is unknown.
        """
        short = self.rows.page(RunsWanted(ids=[run_id], is_short=True, limit=1))
        return self._with_problems(short or [self.rows.get(run_id)])[0]

    def any_info(self, run_id: str) -> RunRecord:
        """Return what is known of a run, or of an agent inside of one. Blocks."""
        short = self.rows.page(RunsWanted(ids=[run_id], is_short=True, limit=1))
        return self._with_problems(short or [self.rows.any(run_id)])[0]

    def listed(self, wanted: RunsWanted) -> list[RunRecord]:
        """Return runs, the latest first. Blocks.

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
        """Return the journal of a run, or of an agent inside of one, so far. Blocks.

        Raises:
            JournalError: It cannot be read.
            RunNotFound: The run is unknown.
        """
        journal = self.rows.journal(run_id)
        if journal is None:
            self.rows.any(run_id)
            raise JournalError(f"what is stored of the journal of {run_id!r} is damaged", name="journal")
        return journal

    def decided(self, run_id: str) -> tuple[WaitingCall, ...]:
        """Return the calls of a run that were decided, in the order in which they were asked. Blocks."""
        self.rows.get(run_id)
        return tuple([call for call in self.rows.calls(run_id) if call.decision is not None])

    def go_on(self, run_id: str) -> None:
        """Have a run that stopped go on from its journal. Blocks; see `RunHandle.resume`."""
        record = self.rows.get(run_id)
        if record.state == "finished":
            raise DurableError(f"run {run_id!r} has finished: start a new one", name="run_id", value=run_id)
        if record.state == "waiting":
            named = ", ".join(f"{call.tool} ({call.call_id})" for call in record.waiting)
            raise DurableError(
                f"run {run_id!r} waits for decisions about {named}: approve or deny them", name=named, value=run_id
            )
        self.queue.again(run_id, ("failed", "cancelled"))

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete runs with all that is stored of them. Blocks."""
        for at in range(0, len(run_ids), _PAGE):
            page = run_ids[at : at + _PAGE]
            legs = self.queue.legs(page)
            self.rows.delete(*page)
            every = [leg._replace(number=number) for leg in legs for number in range(leg.number + 1)]
            self.client.delete_workflows([leg_id(leg) for leg in every])

    def _with_problems(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Return runs with the reason why they do not continue by themselves."""
        if not any(one.state in ("queued", "running") and one.executor == "dbos" for one in records):
            return [*records]
        workers = self.workers.all()
        return [replace(one, problem=_problem(one, workers)) for one in records]

    @property
    def rows(self) -> RunStore:
        """The runs."""
        return self._open().rows

    @property
    def queue(self) -> RunQueue:
        """What queues runs."""
        return RunQueue(self.rows.database, self.queue_leg)

    @property
    def workers(self) -> WorkerRows:
        """The workers."""
        opened = self._open()
        return WorkerRows(opened.rows.database, opened.leases)

    @property
    def engine(self) -> sa.Engine:
        """The connections, which DBOS uses too."""
        return self._open().engine

    @property
    def is_sqlite(self) -> bool:
        """True if the database is a SQLite file."""
        return self.url.get_backend_name() == "sqlite"

    @property
    def client(self) -> Any:
        """The `DBOSClient` of the database, for what DBOS has beside runs."""
        return self._open().client

    def close(self) -> None:
        """Close the connections; whatever is called next opens them again."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> OpenedDatabase:
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = opened_database(self.url, APPLICATION)
        return self._opened


def leg_id(leg: Leg) -> str:
    """Return the id of the workflow of a leg.

    DBOS takes the runs of a session in the order in which they were queued, by a clock of seconds on SQLite, and of the
    same time in the order of these ids.
    """
    return f"{leg.order:016d}/{leg.run_id}/{leg.number}"


def leg_of(workflow_id: str) -> tuple[str, int]:
    """Return the run of a workflow, and the number of its leg."""
    run_id, _, number = workflow_id.partition("/")[2].rpartition("/")
    return run_id, int(number)


def _problem(record: RunRecord, workers: Sequence[WorkerRow]) -> str | None:
    """Return why a run does not continue by itself; None if it does, or has ended."""
    alive = [one for one in workers if one.is_alive]
    key = record.agent, record.version
    if record.state == "queued" and record.parent is None and not any(key in one.serves for one in alive):
        if silent := [one.id for one in workers if one.state == "alive" and key in one.serves]:
            return f"worker {silent[-1]} is silent: it was stopped, or cannot write to the database: see its log"
        others = sorted({version for one in alive for name, version in one.serves if name == key[0]})
        have = f"; those that run have {', '.join(map(repr, others))}" if others else ""
        return f"no worker has version {key[1]!r} of agent {key[0]!r}{have}: start one, or cancel the run"
    if record.state == "running" and record.parent is None and record.worker not in {one.id for one in alive}:
        cause = "it was stopped, or cannot write to the database: see its log"
        return f"its worker is silent: {cause}; another worker continues it when its lease has ended"
    return None
