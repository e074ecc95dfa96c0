"""`RequestRunner`: executes the runs of requests, counts their usage and stores them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from agentkit.ground.threads import in_thread
from agentkit.run.parts.run_inbox import Inbox
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore
from agentkit.runs.stored_attempt import Attempt
from agentkit.server.access import Caller
from agentkit.server.request_runs.request_run import OnEvent, RequestAnswer, RequestRun
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_errors import ServerError
from agentkit.server.server_options import ServerOptions

_log = logging.getLogger("agentkit.server")


class RequestRunner:
    """Executes, counts and stores the runs of requests.

    Args:
        store: Store of the runs, which the inspector shows.
        limits: Counts of requests and usage per tenant.
        options: Limits of the server.
    """

    def __init__(self, store: RunStore, limits: TenantLimits, options: ServerOptions) -> None:
        self._store = store
        self._limits = limits
        self._options = options
        self.is_closing = False
        """True if the server stops: a decided run is left to the next server."""
        self._live: dict[str, RequestRun] = {}
        """Runs with an inbox, by id."""
        self._unstored: list[RequestRun] = []
        self._storing: asyncio.Task[None] | None = None

    async def execute(self, run: RequestRun, caller: Caller, on_event: OnEvent | None = None) -> RequestAnswer:
        """Execute a run, count its usage and store it; see `RequestRun.answer`.

        Raises:
            ServerError: The request is over a limit, or the run took longer than `run_seconds`.
            Exception: The error that ended the run.
        """
        timeout = asyncio.timeout(self._options.run_seconds)
        if run.inbox is not None:
            self._live[run.run_id] = run
        try:
            # The limits come first, so that the wait for them is no part of the time of the run.
            async with self._limits.running_one(caller), timeout:
                run.result = await run.answer(on_event)
                return run.result
        except TimeoutError as error:
            # A tool or a model can raise TimeoutError too.
            if not timeout.expired():
                raise
            raise ServerError(
                f"the run took longer than {self._options.run_seconds:g} seconds", code="timeout"
            ) from error
        except asyncio.CancelledError:
            if self.is_closing:
                run.requeue()
            raise
        finally:
            self._live.pop(run.run_id, None)
            # Without a journal the run was refused before it started: only its error is counted.
            record = run.record()
            if run.journal is not None:
                self._limits.add_run(record, run.usage)
            elif record.error is not None:
                self._limits.measures.count_error(record.agent, record.error.type)
            if run.journal is not None and run.is_stored:
                self._unstored.append(run)
                if self._storing is None or self._storing.done():
                    self._storing = asyncio.get_running_loop().create_task(self._store_pending())

    def live(self, run_id: str, caller: Caller) -> Inbox | None:
        """Return the inbox of a run in progress that is not stored yet; None if the caller has no such run."""
        run = self._live.get(run_id)
        if run is None or run.owner.tenant != caller.tenant or caller.user not in ("", run.owner.user):
            return None
        if caller.agents is not None and run.name not in caller.agents:
            return None
        return run.inbox

    async def wait_stored(self) -> None:
        """Wait until all finished runs are stored."""
        if self._storing is not None:
            await asyncio.shield(self._storing)

    async def _store_pending(self) -> None:
        # Runs that finish during a write are written together by the next one.
        while runs := self._unstored:
            self._unstored = []
            await in_thread(self._store_all, runs)

    def _store_all(self, runs: list[RequestRun]) -> None:
        for run in runs:
            assert run.journal is not None
            try:
                self._store.versions.store(run.version)
                if run.paused is None:
                    self._store.add(run.record(), run.journal.dumps())
                elif run.paused.attempt is not None:
                    self._end(run.paused.attempt, run.record())
            except Exception:
                _log.exception("run %s could not be stored", run.run_id)

    def _end(self, attempt: Attempt, record: RunRecord) -> None:
        # A message arrived after the answer was sent: the next server, or a worker, continues the run with it.
        if not self._store.end_attempt(attempt, record):
            self._store.end_attempt(attempt, replace(record, state="queued"))
