"""What an agent can do that was added to `Runs`: begin runs that outlive the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Unpack

from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.chain import Output

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentkit.durable.mapping import MapReport
    from agentkit.durable.run_handle import RunHandle
    from agentkit.durable.runs_facade import Runs
    from agentkit.run.engine.run_options import RunOptions
    from agentkit.run.parts.run_context import Input

__all__ = ["Startable"]


class Startable(Generic[Output]):
    """The part of an agent that begins durable runs."""

    __slots__ = ()

    name: str
    runs: Runs | None
    """Where `start` begins runs: those that the agent was added to."""

    async def start(self, user_input: Input | None, **options: Unpack[RunOptions[Any, Any]]) -> RunHandle[Output]:
        """Begin a run that outlives this process, on the workers of the `Runs` that this agent was added to.

        Args:
            user_input: As `run` takes it.
            **options: See `RunOptions`. The same `run_id` with the same input is the run that there is.

        Raises:
            AgentDefinitionError: The agent was added to no `Runs`.
            RunIdTaken: There is a run of this id, of another agent or input.
            PromptError: Kwargs that the prompts require are missing; nothing was started.
        """
        return await self._runs_of().start(self._self(), user_input, **options)

    async def map(
        self, inputs: Iterable[Input], *, name: str, out: Path | str, **options: Unpack[RunOptions[Any, Any]]
    ) -> MapReport:
        """Begin a durable run for each of many inputs, and write how they end, in the order of the inputs.

        It may be stopped and asked for again, with the same name, inputs and file: runs that there are go on, and
        answers that are written stay.

        Args:
            inputs: Each as `run` takes it; 10,000 are no problem. The run of input 7 is `name/7`.
            name: Unique in the database.
            out: The file: a line of JSON for each input.
            **options: See `RunOptions`.

        Raises:
            DurableError: Inputs that cannot be run, by their numbers, or a file that is that of something else, cannot
                be written, or is being written by a map; nothing was started. Or the disk is full meanwhile.
            RunIdTaken: There is a map of this name with other inputs; nothing was started.
        """
        return await self._runs_of().map(self._self(), inputs, name=name, out=out, **options)

    def _runs_of(self) -> Runs:
        if self.runs is None:
            raise AgentDefinitionError(
                f"agent {self.name!r} was added to no runs, so that no worker would find it: "
                "runs = Runs('sqlite:///runs.db'); runs.add(agent)",
                name=self.name,
            )
        return self.runs

    def _self(self) -> Any:
        return self
