"""What the inspector shows: the agents, runs, journals and sessions of one caller, wherever they are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import Session
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["InspectedRun", "InspectorSource", "RunStatus", "RunSummary", "SourceOf"]

RunStatus: TypeAlias = Literal["running", "waiting", "finished", "failed", "cancelled", "unfinished"]
"""`waiting` for decisions about tool calls; `unfinished` where a journal ends and nobody knows why."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list."""

    id: str
    agent: str
    """Name of the agent, a key of `InspectorSource.agents`."""
    session: str | None
    """Name of the session, as `InspectorSource.session` takes it; None without one."""
    status: RunStatus
    input: str = ""
    """The beginning of what was asked."""
    started_at: float | None = None
    """Seconds since 1970; None where it is not known."""


@dataclass(frozen=True, slots=True)
class InspectedRun:
    """A run, with all that is known of it."""

    summary: RunSummary
    journal: Journal
    """As far as the run got."""
    error: str = ""
    """Why it failed, in the words of the error."""
    waiting: tuple[ToolCall, ...] = ()
    """The calls that wait for a decision, as `Paused.calls` has them."""

    @classmethod
    def unbegun(cls, summary: RunSummary, user_input: UserInput, error: str = "") -> InspectedRun:
        """Return a run that has no journal yet, as it waits for room, or failed before it began."""
        return cls(summary, Journal(summary.agent, summary.id, PromptContext(user_input=user_input)), error)


class InspectorSource(Protocol):
    """What one caller may see. What belongs to others does not exist here: it is left out of lists, and None."""

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        """Return the agents by name."""
        ...

    async def runs(
        self, *, limit: int, session: str | None = None, ids: Collection[str] | None = None
    ) -> Sequence[RunSummary]:
        """Return the newest runs, newest first, `limit` at most.

        Args:
            limit: Most runs to return.
            session: Only those on the session of this name.
            ids: Only those of these ids.
        """
        ...

    async def run(self, run_id: str) -> InspectedRun | None:
        """Return a run; None when the caller has none of this id."""
        ...

    async def sessions(self, *, limit: int) -> Sequence[str]:
        """Return the names of the sessions used last, newest first, `limit` at most."""
        ...

    async def session(self, name: str) -> Session | None:
        """Return a session; None when the caller has none of this name. It is only read."""
        ...

    async def memory(self, agent: str) -> RecallSource | None:
        """Return the memory of an agent in the scope of the caller, never wider; None without one."""
        ...

    async def start(self, agent: str, user_input: UserInput, session: str | None) -> str:
        """Begin a run in the background and return its id. `session` is a name; one that is new begins a session.

        Raises:
            AgentError: It cannot begin, such as when another run uses the session.
        """
        ...

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        """Go on in the background with a run that waits, with decisions by the ids of its calls.

        Raises:
            ApprovalError: The run does not wait for these.
        """
        ...


SourceOf: TypeAlias = Callable[["Request"], "InspectorSource | Awaitable[InspectorSource]"]
"""Returns what the caller of a request may see. It raises `starlette.exceptions.HTTPException` with status 401 for a
caller it does not know: the page then asks for a token, which it sends as `Authorization: Bearer TOKEN`."""
