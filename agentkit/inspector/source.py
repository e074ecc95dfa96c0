"""What the inspector shows: the agents, runs, journals and sessions of one caller, wherever they are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_record import RunRecord
from agentkit_prompts.context.prompt_context import PromptContext, UserInput

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["InspectorSource", "SourceOf", "unbegun_journal"]


def unbegun_journal(run: RunRecord) -> Journal:
    """Return the journal of a run that has none yet, as it waits for room, or failed before it began."""
    return Journal(run.agent, run.run_id, PromptContext(user_input=run.input or UserInput()))


class InspectorSource(Protocol):
    """What one caller may see. What belongs to others does not exist here: it is left out of lists, and None."""

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        """Return the agents by name."""
        ...

    async def runs(
        self, *, limit: int, session: str | None = None, ids: Collection[str] | None = None
    ) -> Sequence[RunRecord]:
        """Return the newest runs, newest first, `limit` at most. Their agents are keys of `agents`.

        Args:
            limit: Most runs to return.
            session: Only those on the session of this name.
            ids: Only those of these ids.
        """
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """Return a run with its journal; None when the caller has none of this id."""
        ...

    async def sessions(self, *, limit: int) -> Sequence[str]:
        """Return the names of the sessions used last, newest first, `limit` at most."""
        ...

    async def session(self, name: str) -> SessionProtocol | None:
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
