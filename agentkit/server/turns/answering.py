"""`Turns`: runs of requests that wait for their answer, counted and kept."""

from __future__ import annotations

import asyncio
import logging

from agentkit.ground.threads import in_thread
from agentkit.runs.run_store import RunStore
from agentkit.server.access import Caller
from agentkit.server.served_runs.tenant_limits import TenantLimits
from agentkit.server.server_options import ServerOptions
from agentkit.server.turns.turn import OnEvent, Turn, TurnAnswer

__all__ = ["Turns"]

_log = logging.getLogger("agentkit.server")


class Turns:
    """Answers requests.

    Args:
        store: Where what was asked is kept as runs, which the inspector shows.
        limits: Counts.
        options: What the server allows.
    """

    def __init__(self, store: RunStore, limits: TenantLimits, options: ServerOptions) -> None:
        self._store = store
        self._limits = limits
        self._options = options
        self.is_closing = False
        """Whether the server stops: a run that somebody decided about is left to the next one."""
        self._unkept: list[Turn] = []
        self._keeping: asyncio.Task[None] | None = None

    async def answered(self, turn: Turn, caller: Caller, on_event: OnEvent | None = None) -> TurnAnswer:
        """Run a turn, count what it used, and keep it; see `Turn.answer`."""
        try:
            async with self._limits.running_one(caller), asyncio.timeout(self._options.run_seconds):
                turn.answered = await turn.answer(on_event)
                return turn.answered
        except asyncio.CancelledError:
            if self.is_closing:
                turn.leave()
            raise
        finally:
            if turn.journal is not None:  # it has begun
                self._limits.used(caller.tenant, turn.usage, has_ended=turn.has_ended)
            if turn.journal is not None and turn.is_kept:
                self._unkept.append(turn)
                if self._keeping is None or self._keeping.done():
                    self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def kept(self) -> None:
        """Wait until all that was asked is kept."""
        if self._keeping is not None:
            await asyncio.shield(self._keeping)

    async def _keep(self) -> None:
        """Keep turns that have ended; those that end meanwhile are kept together then."""
        while turns := self._unkept:
            self._unkept = []
            await in_thread(self._keep_all, turns)

    def _keep_all(self, turns: list[Turn]) -> None:
        for turn in turns:
            assert turn.journal is not None
            try:
                if turn.waited is None:
                    self._store.add(turn.record(), turn.journal.dumps())
                elif turn.waited.attempt is not None:
                    self._store.end_attempt(turn.waited.attempt, turn.record())
            except Exception:
                _log.exception("run %s could not be kept", turn.run_id)
