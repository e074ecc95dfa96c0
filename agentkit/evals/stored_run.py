"""`StoredRun`: the id and the journal of a run of an evaluation, from which an interrupted run continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agentkit.agent.agent import Agent
from agentkit.run.engine.run_options import RESUME
from agentkit.run.engine.run_result import RunResult

Output = TypeVar("Output")


class StoredRun(NamedTuple):
    """A run whose journal is a file."""

    run_id: str
    """Id of the run: the same after a restart."""
    journal: Path

    @property
    def has_journal(self) -> bool:
        """True if the journal has at least one line."""
        return self.journal.exists() and self.journal.stat().st_size > 0


async def run_or_resume(
    agent: Agent[Any, Output], user_input: Any, stored: StoredRun | None, options: dict[str, Any]
) -> RunResult[Output]:
    """Run an agent, or continue the run if its journal exists.

    Args:
        agent: The agent.
        user_input: Input of a new run.
        stored: Id and journal of the run; None for a run that is not stored.
        options: Options of the run.
    """
    if stored is None:
        return await agent.run(user_input, **options)
    journal = stored.journal
    if stored.has_journal:
        # The journal contains the other options, such as the user.
        resume_options: Any = {name: value for name, value in options.items() if name in RESUME}
        return await agent.resume(journal, **resume_options, journal=journal)
    return await agent.run(user_input, **options, journal=journal, run_id=stored.run_id)
