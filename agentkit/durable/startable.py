"""What an agent can do that was added to `Runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Unpack

from agentkit.chain import Output
from agentkit.errors import AgentDefinitionError

if TYPE_CHECKING:
    from agentkit.durable.run_handle import RunHandle
    from agentkit.durable.runs import Runs, StartOptions
    from agentkit.run_context import Input

__all__ = ["Startable"]


class Startable(Generic[Output]):
    """The part of an agent that begins durable runs."""

    __slots__ = ()

    name: str
    runs: Runs | None
    """Where `start` begins runs: those that the agent was added to."""

    async def start(self, user_input: Input | None, **options: Unpack[StartOptions]) -> RunHandle[Output]:
        """Begin a run that outlives this process, on the workers of the `Runs` that this agent was added to.

        Args:
            user_input: As `run` takes it.
            **options: See `StartOptions`. The same `run_id` with the same input is the run that there is.

        Raises:
            AgentDefinitionError: The agent was added to no `Runs`.
            RunIdTaken: There is a run of this id, of another agent or input.
            PromptError: Kwargs that the prompts require are missing; nothing was started.
        """
        return await self._runs_of().start(self._self(), user_input, **options)

    def _runs_of(self) -> Runs:
        if self.runs is None:
            raise AgentDefinitionError(
                f"agent {self.name!r} was added to no runs, so that no worker would find it: "
                "runs = Runs('sqlite:///runs.db'); runs.add(agent)"
            )
        return self.runs

    def _self(self) -> Any:
        return self
