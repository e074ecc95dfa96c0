"""`Worker`: executes the runs of its agents, and takes over the runs of dead workers.

A worker acts only while it has its lease; the store refuses later writes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import WorkerError
from agentkit.durable.held_runs import HeldRuns
from agentkit.durable.lease import Lease, seconds_now
from agentkit.durable.run_workflow import RunAttempt, TakenOver
from agentkit.durable.schedules import SCHEDULED, pause_corrupt, start_scheduled
from agentkit.durable.stored.database import file_error
from agentkit.durable.stored.durable_store import APPLICATION, VERSION, WORKFLOW, DurableStore, leg_of
from agentkit.durable.takeover import Takeover
from agentkit.errors import named_problems
from agentkit.ground.repeated_lines import RepeatedLines
from agentkit.ground.threads import in_thread
from agentkit.runs.run_database import DATABASE_ERRORS
from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.hints import Hinted
from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.private_files import private_file
from agentkit_prompts.system.threads import Threads

_SECONDS_LISTED = 86_400.0
"""Seconds for which a stopped worker is listed."""
_SECONDS_LEFT = 10.0
"""Seconds for attempts to stop before they are handed over."""
_SECONDS_DBOS = 2
"""Maximum seconds in which DBOS waits for legs when it stops."""
_SECONDS_AGAIN = 1.0
"""Seconds between two attempts to start the run of a schedule."""
_SECONDS_SCHEDULES = 5.0
"""Seconds between two reads of the schedules."""
_MIN_LEASE, _MIN_POLL = 1.0, 0.001
_MAX_SECONDS, _MAX_RUNS = 31_536_000, 1_000_000
"""One year, and more concurrent runs than a process can execute."""
_SECONDS_LOGGED = 10.0
"""Minimum seconds between two warnings of a place in the code while the database does not respond."""
_log = logging.getLogger("agentkit.worker")
_LOGGERS = (_log, logging.getLogger("dbos"))
_current: Worker | None = None
"""The worker of this process: DBOS allows one instance per process."""
_current_lock = threading.Lock()
_is_registered = False


class Worker(metaclass=Hinted):
    """Executes runs until it is stopped: `with runs.worker():`, or `agentkit worker MODULE`.

    Args:
        store: The store of the runs.
        agents: The agents whose runs are executed.
        concurrency: Maximum number of concurrent runs of each agent.
        lease: Seconds after which other workers take over the runs of a dead worker.
        grace: Seconds for runs to finish when the worker is stopped; unfinished runs are handed over.
        poll: Seconds between two reads of a queue.
        tenant_concurrency: Maximum number of concurrent runs of one tenant and one agent, on all workers; runs with a
            session are counted separately. None: no limit.

    Raises:
        WorkerError: No agent was added, a number is out of range, this process has a worker already, or another
            process has a worker on the same SQLite file.
    """

    def __init__(
        self,
        store: DurableStore,
        agents: AddedAgents,
        *,
        concurrency: int = 20,
        lease: float = 15.0,
        grace: float = 30.0,
        poll: float = 0.2,
        tenant_concurrency: int | None = None,
    ) -> None:
        problems: list[str] = []
        if not agents.all:
            problems.append("agents: no agent was added: runs.add(agent)")
        for name, value, minimum in (("lease", lease, _MIN_LEASE), ("grace", grace, 0.0), ("poll", poll, _MIN_POLL)):
            if type(value) not in (int, float) or not minimum <= value <= _MAX_SECONDS:
                problems.append(f"{name}={value!r:.40}: expected {minimum:g} to {_MAX_SECONDS:,} seconds")
        for name, count in (("concurrency", concurrency), ("tenant_concurrency", tenant_concurrency)):
            if count is None and name == "tenant_concurrency":
                continue
            if type(count) is not int or not 1 <= count <= _MAX_RUNS:
                problems.append(f"{name}={count!r:.40}: expected 1 to {_MAX_RUNS:,}")
        if problems:
            raise WorkerError(f"worker: {'; '.join(problems)}", **named_problems(problems))
        self._store, self._agents = store, agents
        self._concurrency, self._tenant_concurrency = concurrency, tenant_concurrency
        self._seconds, self._grace, self._poll = lease, grace, poll
        self.id = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        """Unique id of the worker."""
        self._attempts: dict[str, RunAttempt] = {}
        """Running attempts by run id."""
        self._legs: set[str] = set()
        """Workflow ids of the legs that this worker executes."""
        self._takeover = Takeover(store, self.id, lease)
        self._lease: Lease | None = None
        self._is_stopping, self._has_stopped = threading.Event(), threading.Event()
        self._housekeeping_thread: threading.Thread | None = None
        self._held_runs: HeldRuns | None = None
        self._lock_file: int | None = None
        self._dbos: Any = None
        self._repeated_lines = RepeatedLines(_SECONDS_LOGGED)
        self._was_started = False

    def __del__(self) -> None:
        # A worker whose arguments are invalid has no such attribute.
        if getattr(self, "_was_started", True):
            return
        warn(
            "runs.worker() was not started, so it executes no runs; write `with runs.worker():` around the code that "
            "waits for runs",
            RuntimeWarning,
        )

    @property
    def is_lost(self) -> bool:
        """True if other workers took over the runs of this worker, so that it must not act again."""
        return self._lease is not None and self._lease.is_lost

    # Start and stop

    def start(self) -> None:
        """Start to execute runs, in separate threads.

        Raises:
            WorkerError: This process has a worker, or another process has a worker on the same SQLite file.
            DatabaseUnavailable: The database does not respond.
        """
        global _current
        self._was_started = True
        with _current_lock:
            if _current is not None:
                raise WorkerError(
                    "worker: this process has a worker already, and a process can have only one", name="worker"
                )
            _current = self
        for logger in _LOGGERS:
            logger.addFilter(self._repeated_lines)
        try:
            with self._store.answering("then start the worker again"):
                self._lock()
                _in_plain_thread(self._launch)
        except BaseException:
            if self._lease is not None:
                self._lease.end()
            self._leave()
            raise

    def stop(self) -> None:
        """Take no more runs, wait up to `grace` seconds for running attempts, and hand over unfinished runs."""
        if self._is_stopping.is_set() or self._dbos is None:
            return
        try:
            _in_plain_thread(self._shut_down)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Make room for the next worker of this process and of the SQLite file."""
        global _current
        if self._dbos is not None and not self._has_stopped.is_set():
            # A part of DBOS that was started would execute the runs of the next worker on the database of this worker.
            _in_plain_thread(self._dbos.destroy)
            self._dbos = None
        for logger in _LOGGERS:
            logger.removeFilter(self._repeated_lines)
        with _current_lock:
            _current = None
        file, self._lock_file = self._lock_file, None
        if file is not None:
            unlock(file)
            os.close(file)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self) -> None:
        from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

        _register()
        # Before DBOS starts a leg: attempts are refused without a lease, because they could be executed twice.
        workers, added = self._store.workers, self._agents.all
        workers.add(self.id, [row.key for row in added], self._seconds, socket.gethostname(), os.getpid())
        self._lease = Lease(self._store, self.id, self._seconds, self._leave_attempts)
        self._lease.begin()
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_engine": self._store.engine,
            "executor_id": self.id,
            "application_version": VERSION,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "run_migrations": False,  # the tables of DBOS were created with the database
            "scheduler_polling_interval_sec": _SECONDS_SCHEDULES,
        }
        self._dbos = DBOS(config=config)
        queues = {name: limits for row in added for name, limits in self._queues(row.queue).items()}
        DBOS.listen_queues([*queues])
        for name, limits in queues.items():
            queue = self._store.client.register_queue(name, polling_interval_sec=self._poll, **limits)
            queue.set_worker_concurrency(min(self._concurrency, queue.global_concurrency or self._concurrency))
        # A corrupt row of a schedule would end the scheduler of DBOS.
        pause_corrupt(self._store)
        DBOS.launch()
        if self._store.is_sqlite:  # this process has the lock of the file: earlier workers are dead
            for other in workers.all():
                if other.state == "alive" and other.id != self.id:
                    workers.end(other.id, "dead")
        self._housekeeping_thread = threading.Thread(target=self._housekeeping, name="agentkit-worker", daemon=True)
        self._housekeeping_thread.start()
        self._held_runs = HeldRuns(self._store, [row.key for row in added], self._tenant_concurrency, self._poll)

    def _queues(self, queue: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the queues of an agent, with their limits."""
        tenant_limits: dict[str, Any] = {}
        if self._tenant_concurrency is not None:
            tenant_limits["partition_concurrency"] = self._tenant_concurrency
        return {
            queue: {},
            f"{queue}/session": {"partition_concurrency": 1},
            f"{queue}/tenant": tenant_limits,
            f"{queue}/map": {"on_conflict": "never_update"},  # a map sets its limits
        }

    def _shut_down(self) -> None:
        from dbos import DBOS

        self._is_stopping.set()
        if self._held_runs is not None:
            self._held_runs.stop()
        for event in self._dbos.background_thread_stop_events:  # DBOS takes nothing from the queues any more
            event.set()
        self._wait_for_attempts(self._grace)
        # Cancelled attempts store the results of their tools, which takes a moment.
        self._leave_attempts()
        self._wait_for_attempts(_SECONDS_LEFT)
        # DBOS waits for unfinished legs, and for the threads of its queues.
        seconds = 0
        if self._legs:
            seconds = _SECONDS_DBOS
        DBOS.destroy(workflow_completion_timeout_sec=seconds)
        self._has_stopped.set()
        if self._housekeeping_thread is not None:
            self._housekeeping_thread.join()
        if self._lease is not None:
            self._lease.end()
        # A worker that lost its lease has no runs: other workers execute them already.
        if not self.is_lost:
            try:
                self._takeover.hand_over([self.id])
                self._store.workers.end(self.id, "stopped")
            except DATABASE_ERRORS as error:
                _log.warning(
                    "worker %s: runs are not handed over; other workers wait until its lease expires: %s",
                    self.id,
                    error,
                )

    def _wait_for_attempts(self, seconds: float) -> None:
        """Wait until all attempts have finished."""
        until = seconds_now() + seconds
        while self._legs and seconds_now() < until and not self.is_lost:
            time.sleep(0.02)

    # Attempts

    async def execute(self, workflow_id: str) -> None:
        """Execute a leg of a run, on the event loop of DBOS.

        Raises:
            CancelledError: The run must be started again.
        """
        # After `CancelledError`, the workflow stays pending in DBOS, so that a worker starts it again.
        if self._is_stopping.is_set() or self.is_lost:
            raise asyncio.CancelledError
        self._legs.add(workflow_id)
        try:
            await self._execute_leg(*leg_of(workflow_id))
        finally:
            self._legs.discard(workflow_id)
            if self._held_runs is not None:
                self._held_runs.notify()

    async def _execute_leg(self, run_id: str, leg: int) -> None:
        try:
            row = await in_thread(partial(self._store.rows.begin_attempt, run_id, leg=leg, worker=self.id))
        except DATABASE_ERRORS as error:
            _log.warning("run %s: the database does not respond; the run is started again later: %s", run_id, error)
            raise asyncio.CancelledError from error
        if row is None:
            return  # the run was cancelled, or queued again
        # The run was cancelled and resumed before the next housekeeping: the earlier attempt still runs.
        if run_id in self._attempts:
            self._attempts[run_id].leave(is_taken=True, has_ended=True)
        attempt = RunAttempt(self._store, self._agents, row, self._check_lease)
        self._attempts[run_id] = attempt
        try:
            await attempt.execute()
        finally:
            # A newer attempt at the same run can have replaced this attempt.
            if self._attempts.get(run_id) is attempt:
                del self._attempts[run_id]

    async def scheduled(self, at: str, context: Mapping[str, Any]) -> str:
        """Start the run of a schedule that was due at `at`, and return its id.

        Raises:
            CancelledError: The worker stops: another worker starts the run.
        """
        while not (self._is_stopping.is_set() or self.is_lost):
            try:
                return await in_thread(lambda: start_scheduled(self._store, self._agents, at, context))
            except DATABASE_ERRORS as error:
                _log.warning("the run of a schedule could not be started; this is retried: %s", error)
                await asyncio.sleep(_SECONDS_AGAIN)
        raise asyncio.CancelledError

    def _check_lease(self) -> None:
        """Raise `TakenOver` if another worker can have taken over the runs."""
        if self._lease is None or not self._lease.is_held:
            raise TakenOver

    def _leave_attempts(self) -> None:
        """Abandon all attempts: other workers continue their runs."""
        for attempt in [*self._attempts.values()]:
            attempt.leave(is_taken=True, has_ended=False)

    # Housekeeping

    def _housekeeping(self) -> None:
        """Look for dead workers, orphaned and cancelled runs until the worker stops."""
        while not self.is_lost:
            try:
                self._keep_house()
            except Exception as error:
                _log.warning("worker %s: the database does not respond: %s", self.id, error)
            # Several times per lease, so that the runs of a dead worker continue soon after its lease expires.
            if self._has_stopped.wait(min(1.0, self._seconds / 6)):
                return

    def _keep_house(self) -> None:
        self._leave_cancelled()
        if self._is_stopping.is_set():
            return
        self._takeover.from_dead_workers()
        self._takeover.own_orphans(self._legs)
        pause_corrupt(self._store)
        self._store.queue.expire()
        self._store.workers.forget(_SECONDS_LISTED)

    def _leave_cancelled(self) -> None:
        """Abandon attempts whose run was cancelled or deleted, or is continued by another attempt."""
        attempts = dict(self._attempts)
        if not attempts:
            return
        current_attempts = self._store.rows.attempts([*attempts])
        for run_id, attempt in attempts.items():
            current = current_attempts.get(run_id)
            if current is None:
                attempt.leave(is_taken=True, has_ended=True)
            elif current.fence != attempt.attempt.fence:
                attempt.leave(is_taken=current.state != "cancelled", has_ended=True, reason=current.reason)

    # One worker per SQLite file

    def _lock(self) -> None:
        if not self._store.is_sqlite:
            return
        path = Path(f"{self._store.url.database}-worker")
        try:
            private_file(path)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise file_error(self._store.url, error) from error
        if not locked(file):
            about = path.read_text() or "{}"
            os.close(file)
            pid = json.loads(about).get("pid", "?")
            raise WorkerError(
                f"worker: process {pid} is the worker of {self._store.url.database}, and a SQLite file allows only "
                "one: raise its concurrency, or use PostgreSQL for several workers",
                name="worker",
                value=pid,
            )
        self._lock_file = file
        # The content is for the error of a second worker; on a full disk, the lock works without it.
        with suppress(OSError):
            os.truncate(file, 0)
            os.write(file, json.dumps({"pid": os.getpid()}).encode())


def _in_plain_thread(work: Callable[[], object]) -> None:
    """Call a function in a thread without event loop: DBOS would execute all runs in the event loop of the caller."""
    Threads(1, "agentkit-worker-launch").submit(work).result()


def _register() -> None:
    """Register the workflows, once per process."""
    global _is_registered
    if _is_registered:
        return
    from dbos import DBOS, WorkflowSerializationFormat

    # Runs count attempts themselves, relative to their stored lines: a run with progress is not stopped.
    portable = WorkflowSerializationFormat.PORTABLE

    @DBOS.workflow(name=WORKFLOW, serialization_type=portable, max_recovery_attempts=None)
    async def run(run_id: str) -> None:
        worker, workflow_id = _current, DBOS.workflow_id
        if worker is None or workflow_id is None:
            raise WorkerError(f"run {run_id} started without a worker")
        await worker.execute(workflow_id)

    @DBOS.workflow(name=SCHEDULED, serialization_type=portable)
    async def start(at: Any, context: Any) -> str:
        worker = _current
        if worker is None:
            raise WorkerError("a schedule was due without a worker")
        return await worker.scheduled(str(at), context)

    _is_registered = True
