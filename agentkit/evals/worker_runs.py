"""`WorkerRuns`: runs of an evaluation that workers of a database execute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentkit.agent.agent import Agent
from agentkit.errors import AgentError
from agentkit.evals.stored_run import StoredRun
from agentkit.ground.threads import in_thread
from agentkit.run.journal.journal import Journal
from agentkit.runs.run_errors import RunNotFound
from agentkit_prompts.system.flushed_files import whole_file

if TYPE_CHECKING:
    from agentkit.durable.runs_facade import Runs

_START = frozenset(("scope", "tenant", "user", "locale"))
"""Options of the start of a durable run."""
WORKER_OPTIONS = _START | {"deps"}
"""Options of runs that an evaluation with a database accepts."""


class WorkerRuns:
    """Runs of one agent in a database.

    Args:
        database: The database; or runs to which the agent was added, such as with `deps=`.
        agent: The agent.
        deps: The deps of the agent; only with an address of a database.
    """

    def __init__(self, database: Runs | str, agent: Agent[Any, Any], deps: Any) -> None:
        self._agent = agent
        self._owned: Runs | None = None
        if not isinstance(database, str):
            self._runs = database
            return
        # Here, because the extra `durable` may be missing.
        from agentkit.durable.runs_facade import Runs

        self._runs = self._owned = Runs(database)
        self._runs.add(agent, deps=deps)

    async def run(self, user_input: Any, stored: StoredRun, options: dict[str, Any]) -> None:
        """Wait until workers have finished a run, and write its journal. The run is started if it does not exist.

        A run that failed in an earlier evaluation continues after its last stored step.

        Raises:
            Paused: The run waits for decisions.
            RunFailed: The run failed.
            RunCancelled: The run was cancelled.
            DurableError: The database does not respond, or the agent was not added.
        """
        handle = self._runs.handle(stored.run_id)
        try:
            record = await handle.info()
        except RunNotFound:
            start: Any = {name: value for name, value in options.items() if name in _START}
            await self._runs.start(self._agent, user_input, **start, run_id=stored.run_id)
        else:
            if record.state in ("failed", "cancelled"):
                await handle.resume()
        # Another name, because a run with a journal continues in this process.
        failed = stored.journal.with_suffix(".failed.jsonl")
        try:
            ended = await handle.result()
        except AgentError as error:
            journal = getattr(error, "journal", None)
            if isinstance(journal, Journal):
                await in_thread(_write, failed, journal)
            raise
        if ended.journal is not None:
            await in_thread(_write, stored.journal, ended.journal)
            failed.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connections of a database that this object opened."""
        if self._owned is not None:
            self._owned.close()


def _write(path: Path, journal: Journal) -> None:
    """Write a whole journal or nothing: a part of a journal would be continued in this process."""
    with whole_file(path) as draft:
        draft.write_text(journal.dumps(), "utf-8")
