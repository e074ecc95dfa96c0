"""`Worker`: does the runs of its agents, and goes on with those of workers that died.

It acts while it has its lease; DBOS refuses what it stores after that.
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
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy.exc import SQLAlchemyError

from agentkit.durable.added_agents import AddedAgents
from agentkit.durable.durable_errors import WorkerError
from agentkit.durable.lease import Lease, seconds_now
from agentkit.durable.run_workflow import RunAttempt, TakenOver
from agentkit.durable.schedules import SCHEDULED, begin_scheduled, pause_damaged
from agentkit.durable.stored.durable_store import APPLICATION, VERSION, WORKFLOW, DurableStore, leg_of
from agentkit.durable.takeover import Takeover
from agentkit.errors import named_problems
from agentkit.ground.threads import in_thread
from agentkit_prompts.system.file_locks import locked, unlock
from agentkit_prompts.system.private_files import private_file
from agentkit_prompts.system.threads import Threads

__all__ = ["Worker"]

_SECONDS_KEPT = 86_400.0
"""How long a worker that ended is listed."""
_SECONDS_LEFT = 10.0
"""How long attempts have to end that are handed over."""
_SECONDS_DBOS = 2
"""How long DBOS may wait for legs when it stops."""
_SECONDS_AGAIN = 1.0
"""Between two attempts to begin the run of a schedule."""
_SECONDS_SCHEDULES = 5.0
"""Between two looks for schedules that are new or have changed."""
_MIN_LEASE, _MIN_POLL = 1.0, 0.001
_MAX_SECONDS, _MAX_RUNS = 31_536_000, 1_000_000
"""A year, and more runs at once than a process can do."""
_log = logging.getLogger("agentkit")
_current: Worker | None = None
"""DBOS is one instance per process, and so is a worker."""
_current_lock = threading.Lock()
_is_registered = False


class Worker:
    """Does runs until it is stopped: `with runs.worker():`, or `agentkit worker MODULE`.

    Args:
        store: Where the runs are.
        agents: The agents whose runs it does.
        concurrency: How many runs it does at once, of each agent.
        lease: Seconds after which the others go on with its runs when it dies.
        grace: Seconds that runs have to end when it is stopped; what has not ended then is handed over.
        poll: Seconds between two looks into a queue.
        tenant_concurrency: How many runs of one tenant are done at once, on all workers; None for no limit.

    Raises:
        WorkerError: There is no agent, a number makes no sense, this process has a worker, or another process has one
            on the same SQLite file.
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
            problems.append("agents: none was added: runs.add(agent)")
        for name, value, least in (("lease", lease, _MIN_LEASE), ("grace", grace, 0.0), ("poll", poll, _MIN_POLL)):
            if type(value) not in (int, float) or not least <= value <= _MAX_SECONDS:
                problems.append(f"{name}={value!r:.40}: expected {least:g} to {_MAX_SECONDS:,} seconds")
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
        """Unique: no two workers ever have the same."""
        self._attempts: dict[str, RunAttempt] = {}
        """By the ids of the runs."""
        self._legs: set[str] = set()
        """Those that it executes, by the ids of their workflows."""
        self._takeover = Takeover(store, self.id, lease)
        self._lease: Lease | None = None
        self._is_stopping, self._has_stopped = threading.Event(), threading.Event()
        self._caring: threading.Thread | None = None
        self._lock_file: int | None = None
        self._dbos: Any = None

    @property
    def is_lost(self) -> bool:
        """Whether the others took it for dead: it does nothing any more."""
        return self._lease is not None and self._lease.is_lost

    # Start and stop

    def start(self) -> None:
        """Begin to do runs, in threads of its own.

        Raises:
            WorkerError: This process has a worker, or another one has one on the same SQLite file.
            DatabaseUnavailable: The database does not answer.
        """
        global _current
        with _current_lock:
            if _current is not None:
                raise WorkerError("worker: this process has one already: one process, one worker", name="worker")
            _current = self
        try:
            with self._store.answering("then start the worker again"):
                self._lock()
                _elsewhere(self._launch)
        except BaseException:
            if self._lease is not None:
                self._lease.end()
            with _current_lock:
                _current = None
            self._unlock()
            raise

    def stop(self) -> None:
        """Take no more runs, let those under way end within `grace` seconds, and hand over what has not ended."""
        global _current
        if self._is_stopping.is_set() or self._dbos is None:
            return
        try:
            _elsewhere(self._shut_down)
        finally:
            with _current_lock:
                _current = None
            self._unlock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self) -> None:
        from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

        _register()
        workers, added = self._store.workers, self._agents.all
        workers.add(self.id, [one.key for one in added], self._seconds, socket.gethostname(), os.getpid())
        self._lease = Lease(self._store, self.id, self._seconds, self._leave_all)
        self._lease.begin()
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_engine": self._store.engine,
            "executor_id": self.id,
            "application_version": VERSION,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "run_migrations": False,
            "scheduler_polling_interval_sec": _SECONDS_SCHEDULES,
        }
        self._dbos = DBOS(config=config)
        queues = {name: limits for one in added for name, limits in self._queues(one.queue).items()}
        DBOS.listen_queues([*queues])
        for name, limits in queues.items():
            queue = self._store.client.register_queue(name, polling_interval_sec=self._poll, **limits)
            queue.set_worker_concurrency(min(self._concurrency, queue.global_concurrency or self._concurrency))
        pause_damaged(self._store)
        DBOS.launch()
        if self._store.is_sqlite:  # this process has the lock of the file: the process that had it is dead
            for other in workers.all():
                if other.state == "alive" and other.id != self.id:
                    workers.end(other.id, "dead")
        self._caring = threading.Thread(target=self._care, name="agentkit-worker", daemon=True)
        self._caring.start()

    def _queues(self, queue: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the queues of an agent, with their limits."""
        tenants = {} if self._tenant_concurrency is None else {"partition_concurrency": self._tenant_concurrency}
        return {
            queue: {},
            f"{queue}/session": {"partition_concurrency": 1},
            f"{queue}/tenant": tenants,
            f"{queue}/map": {"on_conflict": "never_update"},  # a map sets its limits
        }

    def _shut_down(self) -> None:
        from dbos import DBOS

        self._is_stopping.set()
        for event in self._dbos.background_thread_stop_events:  # nothing is taken from the queues any more
            event.set()
        self._wait_for_attempts(self._grace)
        self._leave_all()
        self._wait_for_attempts(_SECONDS_LEFT)
        # DBOS waits for the legs that have not ended yet, and for the threads that take from queues.
        DBOS.destroy(workflow_completion_timeout_sec=_SECONDS_DBOS if self._legs else 0)
        self._has_stopped.set()
        if self._caring is not None:
            self._caring.join()
        if self._lease is not None:
            self._lease.end()
        if not self.is_lost:
            try:
                self._takeover.hand_over([self.id])
                self._store.workers.end(self.id, "stopped")
            except SQLAlchemyError as error:
                _log.warning("worker %s: nothing is handed over, others wait for its lease to end: %s", self.id, error)

    def _wait_for_attempts(self, seconds: float) -> None:
        """Wait until all attempts have ended."""
        until = seconds_now() + seconds
        while self._legs and seconds_now() < until and not self.is_lost:
            time.sleep(0.02)

    # Attempts

    async def execute(self, workflow_id: str) -> None:
        """Execute a leg of a run, on the event loop of DBOS.

        Raises:
            CancelledError: The run is to be begun with again.
        """
        if self._is_stopping.is_set() or self.is_lost:
            raise asyncio.CancelledError
        self._legs.add(workflow_id)
        try:
            await self._attempted(*leg_of(workflow_id))
        finally:
            self._legs.discard(workflow_id)

    async def _attempted(self, run_id: str, leg: int) -> None:
        try:
            begin = partial(self._store.rows.begin_attempt, run_id, leg=leg, worker=self.id)
            begun = await in_thread(begin)
        except SQLAlchemyError as error:
            _log.warning("run %s: its database does not answer, it is begun with again later: %s", run_id, error)
            raise asyncio.CancelledError from error
        if begun is None:
            return  # it was cancelled, or queued again
        if (before := self._attempts.get(run_id)) is not None:  # cancelled and resumed before anybody looked
            before.leave(is_taken=True, has_ended=True)
        attempt = RunAttempt(self._store, self._agents, begun, self._check_lease)
        self._attempts[run_id] = attempt
        try:
            await attempt.execute()
        finally:
            if self._attempts.get(run_id) is attempt:
                del self._attempts[run_id]

    async def scheduled(self, at: str, context: Mapping[str, Any]) -> str:
        """Begin the run of a schedule that was due at `at`, and return its id.

        Raises:
            CancelledError: The worker stops, and the database does not answer: another one begins it.
        """
        while not (self._is_stopping.is_set() or self.is_lost):
            try:
                return await in_thread(lambda: begin_scheduled(self._store, self._agents, at, context))
            except SQLAlchemyError as error:
                _log.warning("the run of a schedule could not be begun, it is tried again: %s", error)
                await asyncio.sleep(_SECONDS_AGAIN)
        raise asyncio.CancelledError

    def _check_lease(self) -> None:
        """Refuse to act where another worker may go on with the runs of this one."""
        if self._lease is None or not self._lease.is_held:
            raise TakenOver

    def _leave_all(self) -> None:
        """End all attempts: others go on with their runs."""
        for attempt in [*self._attempts.values()]:
            attempt.leave(is_taken=True, has_ended=False)

    # Who looks after the runs of others

    def _care(self) -> None:
        """Look after runs until the worker has stopped."""
        while not self.is_lost:
            try:
                self._look_after()
            except Exception as error:
                _log.warning("worker %s: the database does not answer: %s", self.id, error)
            if self._has_stopped.wait(min(1.0, self._seconds / 6)):
                return

    def _look_after(self) -> None:
        self._leave_cancelled()
        if self._is_stopping.is_set():
            return
        self._takeover.from_dead_workers()
        self._takeover.own_orphans(self._legs)
        pause_damaged(self._store)
        self._store.queue.expire()
        self._store.workers.forget(_SECONDS_KEPT)

    def _leave_cancelled(self) -> None:
        """Leave attempts at runs that were cancelled, or deleted after that, or that others go on with."""
        attempts = dict(self._attempts)
        known = self._store.rows.fences([*attempts]) if attempts else {}
        for run_id, attempt in attempts.items():
            state, fence = known.get(run_id, (None, None))
            if fence != attempt.attempt.fence:
                attempt.leave(is_taken=state != "cancelled", has_ended=True)

    # One worker per SQLite file

    def _lock(self) -> None:
        if not self._store.is_sqlite:
            return
        path = Path(f"{self._store.url.database}-worker")
        private_file(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not locked(file):
            about = path.read_text() or "{}"
            os.close(file)
            pid = json.loads(about).get("pid", "?")
            raise WorkerError(
                f"worker: process {pid} works on {self._store.url.database}, and a SQLite file takes one worker: "
                "raise its concurrency, or use PostgreSQL for several",
                name="worker",
                value=pid,
            )
        os.truncate(file, 0)
        os.write(file, json.dumps({"pid": os.getpid()}).encode())
        self._lock_file = file

    def _unlock(self) -> None:
        file, self._lock_file = self._lock_file, None
        if file is not None:
            unlock(file)
            os.close(file)


def _elsewhere(work: Callable[[], object]) -> None:
    """Work in a thread that has no event loop: DBOS would do all runs on that of whoever launches it."""
    Threads(1, "agentkit-worker-launch").submit(work).result()


def _register() -> None:
    """Register the workflow, once per process."""
    global _is_registered
    if _is_registered:
        return
    from dbos import DBOS, WorkflowSerializationFormat

    # An attempt counts by itself how many there were: a run that gets on is not what ends its workers.
    portable = WorkflowSerializationFormat.PORTABLE

    @DBOS.workflow(name=WORKFLOW, serialization_type=portable, max_recovery_attempts=None)
    async def run(run_id: str) -> None:
        worker, workflow_id = _current, DBOS.workflow_id
        if worker is None or workflow_id is None:
            raise WorkerError(f"the run {run_id} began without a worker")
        await worker.execute(workflow_id)

    @DBOS.workflow(name=SCHEDULED, serialization_type=portable)
    async def start(at: Any, context: Any) -> str:
        worker = _current
        if worker is None:
            raise WorkerError("a schedule was due without a worker")
        return await worker.scheduled(str(at), context)

    _is_registered = True
