"""`InspectorSource`: the agents, runs and sessions that one caller may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from agentkit.agent.agent import Agent
from agentkit.inspector.evaluation_view import StoredEvaluation
from agentkit.inspector.played_prompt import PlayedPrompt
from agentkit.models.model import Reply
from agentkit.observing.redaction import Redact
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import SessionProtocol
from agentkit.runs.run_record import RunFigures, RunList, RunRecord, RunsWanted
from agentkit_prompts.context.prompt_context import PromptContext, UserInput

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_FIGURES = 5_000
"""Maximum number of runs in the statistics of an agent."""


def empty_journal(run: RunRecord) -> Journal:
    """Return an empty journal for a run without a journal: a queued run, or a run that failed before its first step."""
    return Journal(run.agent, run.run_id, PromptContext(user_input=run.input or UserInput()))


def beginning(journal: Journal, lines: int) -> Journal:
    """Return a journal with at most `lines` lines: its head, and its first entries."""
    if len(journal.entries) < lines:
        return journal
    journal = journal.copy()
    del journal.entries[lines - 1 :]
    return journal


class OutlinedRun(NamedTuple):
    """A run with the outline of its journal."""

    record: RunRecord
    outline: JournalOutline


class InspectorSource(Protocol):
    """The objects that one caller may see. Lists omit the objects of other callers, and other methods return None."""

    async def agents(self) -> Mapping[str, Agent[Any, Any]]:
        """Return the agents by name."""
        ...

    async def evaluations(self) -> Mapping[str, StoredEvaluation]:
        """Return the evaluations by name, in the order of their files."""
        ...

    async def runs(self, wanted: RunsWanted) -> RunList:
        """Return a part of the list of runs. Their agents are keys of `agents`.

        The tenant of the filters is ignored: the tenant is the tenant of the caller, and the user is the user of the
        caller, if the caller has a user.
        """
        ...

    async def figures(self, agent: str) -> Sequence[RunFigures]:
        """Return figures of the newest runs of an agent, newest first, at most `MAX_FIGURES`."""
        ...

    async def run(self, run_id: str, *, lines: int | None = None) -> RunRecord | None:
        """Return a run with its journal; None if the caller has no run with this id.

        `lines` is the maximum number of lines of the journal, from its first line on; None for the whole journal.
        """
        ...

    async def outlined(self, run_id: str, *, lines: int | None = None) -> OutlinedRun | None:
        """Return a run with the outline of its journal; None if the caller has no run with this id.

        `lines` as for `run`; `JournalOutline.is_whole` is False if the journal has further lines.
        """
        ...

    async def sessions(self, *, limit: int) -> Sequence[str]:
        """Return the names of the latest sessions, newest first, at most `limit`."""
        ...

    async def session(self, name: str) -> SessionProtocol | None:
        """Return a session for reading; None if the caller has no session with this name."""
        ...

    async def memory(self, agent: str, user: str | None) -> RecallSource | None:
        """Return the memory of an agent in the scope of the caller, never in a wider scope; None without a memory.

        `user` is the user whose memory is read; None for no user, or for the user of the caller.

        Raises:
            AgentError: The caller may not name a user.
        """
        ...

    @property
    def names_users(self) -> bool:
        """True if the caller may name the user of a new run, and of a search in the memory."""
        ...

    @property
    def can_play(self) -> bool:
        """True if the caller may send changed prompts to models."""
        ...

    @property
    def cases_file(self) -> str | None:
        """Name of the file of test cases; None without a file: the page then downloads test cases."""
        ...

    @property
    def redact(self) -> Redact | None:
        """Function that removes secrets and personal data from test cases; None without a function."""
        ...

    async def ask(self, agent: Agent[Any, Any], prompt: PlayedPrompt) -> Reply:
        """Send a prompt once, within the permissions, limits and quotas of the caller, and return the reply.

        Raises:
            ModelError: The model returned no reply.
        """
        ...

    async def save_case(self, line: str) -> str:
        """Add a line of JSON to the file of test cases, and return the name of the file.

        Raises:
            AgentError: The source has no file, or the file cannot be written.
        """
        ...

    async def start(
        self, agent: str, user_input: UserInput, session: str | None, user: str | None, tags: Sequence[str]
    ) -> str:
        """Start a run in the background and return its id. A new name of a session creates the session.

        `user` is the user for whom the run acts; None for a run without a user, or for the user of the caller.

        Raises:
            AgentError: The run cannot start, such as when another run uses the session.
        """
        ...

    async def decide(self, run_id: str, decisions: Mapping[str, Decision]) -> None:
        """Resume a paused run in the background, with decisions by the ids of its calls.

        Raises:
            ApprovalError: The run does not wait for these decisions.
        """
        ...


SourceOf: TypeAlias = Callable[["Request"], "InspectorSource | Awaitable[InspectorSource]"]
"""Returns the source of the caller of a request. It raises `starlette.exceptions.HTTPException` with status 401 for an
unknown caller: the page then requests a token, and sends it as `Authorization: Bearer TOKEN`."""
