"""`RunRecord`: the stored description and state of one run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from agentkit.models.model import NO_USAGE, Usage
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.deps_source import RunCaller
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.hints import Hinted

RunState: TypeAlias = Literal["queued", "running", "waiting", "finished", "failed", "cancelled"]
"""State of a run; `waiting`: the run is paused until tool calls are decided."""
STATES: tuple[RunState, ...] = get_args(RunState)
ENDED: frozenset[RunState] = frozenset({"finished", "failed", "cancelled"})
"""Final states of a run, unless it is resumed."""
_MAX_SEARCHED = 2_000
"""Maximum characters of an input that a search of runs reads."""
ExecutorName: TypeAlias = Literal["process", "dbos"]
"""Executor of a run. `process`: a task of one server. `dbos`: any worker on the database."""


class RunError(NamedTuple):
    """The error that ended a run."""

    type: str
    """Name of the class of the error."""
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A tool call that waits or waited for a decision."""

    call_id: str
    tool: str
    arguments: str
    """JSON text: of a call that needs approval, the arguments that its tool receives."""
    agent: str = ""
    """Name of the tool whose agent makes the call; empty if the agent of the run makes it. See `Paused.agents`."""
    asked_at: float = 0.0
    """Seconds since 1970, by the clock of the database."""
    expires_at: float | None = None
    """Time at which the call is denied without a decision; None: never."""
    decision: Decision | None = None
    """None while the call waits."""
    decided_by: str = ""
    decided_at: float | None = None

    @classmethod
    def of(cls, call: ToolCall, agent: str = "") -> WaitingCall:
        """Return a call that starts to wait."""
        return cls(call.id, call.name, call.arguments, agent)

    @property
    def call(self) -> ToolCall:
        """The call, as a `ToolCall`."""
        return ToolCall(self.call_id, self.tool, self.arguments)

    def is_late(self, now: float) -> bool:
        """True if the time to decide is over at `now`, in seconds since 1970 by the clock of the database."""
        return self.decision is None and self.expires_at is not None and self.expires_at < now


class RunEvent(NamedTuple):
    """An event of a run."""

    seq: int
    """From 1, ascending, unique within the run; gaps are possible.

    A client resumes after the last event that it received.
    """
    kind: str
    """Name of the class of the event in lower case, such as `text_delta`."""
    data: Mapping[str, Any]
    """JSON data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(metaclass=Hinted):
    """One run. Times are seconds since 1970."""

    run_id: str
    agent: str
    """Name of the agent."""
    state: RunState
    created_at: float
    updated_at: float
    tenant: str = ""
    user: str = ""
    """The user for whom the run acts, within the tenant."""
    permissions: tuple[str, ...] = ()
    """Scopes of the token that started the run; empty outside of a server."""
    locale: str | None = None
    """Language tag of the run, which selects the texts of templates; None for the first text."""
    tags: tuple[str, ...] = ()
    """Tags, by which lists of runs are filtered."""
    key: str | None = None
    """Idempotency key, unique for the tenant and the user; None also for a run that was read from a store."""
    session: str | None = None
    """Id of the conversation that the run continues."""
    executor: ExecutorName = "process"
    version: str = ""
    """Version of the agent."""
    schedule: str | None = None
    """Name of the schedule that started the run."""
    parent: str | None = None
    """Id of the run or agent that calls this agent as a tool; None for a run that is no agent inside of a run."""
    worker: str | None = None
    """Id of the worker that executes the run or executed it last."""
    problem: str | None = None
    """Reason why the run does not continue, such as that no worker has the agent; None without a reason."""
    attempts: int = 0
    """Number of attempts."""
    input: UserInput | None = None
    """None if the run continues a session without an input."""
    usage: Usage = NO_USAGE
    steps: int = 0
    """Model calls."""
    output: Any = None
    """The answer, as JSON data."""
    finish_reason: str | None = None
    response: Mapping[str, Any] | None = None
    """The answer in the form of the endpoint that started the run, as JSON data; None if the endpoint stores none."""
    citations: Sequence[Mapping[str, Any]] = ()
    """The documents that the answer names by their labels; see `citation_form`."""
    unknown_labels: Sequence[str] = ()
    """Labels of the answer that no document has."""
    tool_errors: int = 0
    """Number of tool calls that failed, stored if the run ends or pauses; see `RunResult.tool_errors`."""
    error: RunError | None = None
    reason: str = ""
    """Reason of the cancellation; empty without a reason."""
    unread: int = 0
    """Number of messages to the run that it has not received."""
    waiting: tuple[WaitingCall, ...] = ()
    """The calls without a decision; if the run has ended, the calls that its client must execute."""
    journal: Journal | None = field(default=None, repr=False, compare=False)
    """None if the journal was not requested."""

    @property
    def caller(self) -> RunCaller:
        """Tenant and user for whom the run acts, for the function that creates its deps."""
        kwargs: Mapping[str, Any] = {}
        if self.input is not None:
            kwargs = self.input.additional_kwargs
        return RunCaller(
            tenant=self.tenant or "local",
            user=self.user,
            permissions=frozenset(self.permissions),
            session=self.session or "",
            additional_kwargs=kwargs,
            agent=self.agent,
            run_id=self.run_id,
        )

    @property
    def has_ended(self) -> bool:
        """True if the run finished, failed or was cancelled."""
        return self.state in ENDED

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages that the run added to the conversation, the message of the user first; empty without the journal."""
        if self.journal is None:
            return ()
        return self.journal.messages

    @property
    def cost(self) -> float | None:
        """US dollars of all model calls; None if a price is unknown."""
        return self.usage.money


RunOrder: TypeAlias = Literal["newest", "longest", "tokens", "cost"]
"""Order of a list of runs. All orders are descending, and the newest of equal runs is first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsWanted:
    """Filter of runs: a run must have each value that is not None."""

    tenant: str | None = None
    agent: str | None = None
    session: str | None = None
    user: str | None = None
    state: RunState | None = None
    error: str | None = None
    """Name of the class of the error."""
    tag: str | None = None
    """A tag of the run."""
    text: str | None = None
    """Words that the run contains in its input, its id, its tags, or the name of its agent, its session or its user."""
    order: RunOrder = "newest"
    before: str | None = None
    """Only runs that are after the run with this id in the order; older runs, in the order `newest`."""
    ids: Collection[str] | None = None
    """Only runs with one of these ids."""
    schedule: str | None = None
    is_short: bool = False
    """True if long outcomes are left out, such as long answers."""
    limit: int = 50
    """Maximum number of runs."""
    offset: int = 0


class RunList(NamedTuple):
    """A part of a list of runs."""

    runs: Sequence[RunRecord]
    older: str | None
    """The value of `RunsWanted.before` for the next part; None for the last part.

    A part can be shorter than its limit, or empty: a search examines a maximum of runs.
    """


class RunFigures(NamedTuple):
    """Time, cost and result of one run, for statistics."""

    created_at: float
    """Seconds since 1970."""
    seconds: float
    """Duration until the end; 0 before the end."""
    state: RunState
    tokens: int
    cost: float
    """US dollars; 0 if a price is unknown."""


def searched_words(record: RunRecord) -> str:
    """Return the text of a run that a search reads: the start of its input, its names, tags and id, in lower case."""
    text = ""
    if record.input is not None:
        text = record.input.text[:_MAX_SEARCHED]
    session = record.session or ""
    return "\n".join([text, record.agent, f"{record.user}/{session}", record.run_id, *record.tags]).casefold()


def tokens_of(usage: Usage) -> int:
    """Return the tokens of all prompts and replies."""
    return usage.input_tokens + usage.output_tokens


def usage_since(before: Usage, now: Usage) -> Usage:
    """Return the usage between two states of a run."""
    money = None
    if now.money is not None:
        money = now.money - (before.money or 0.0)
    return Usage(
        max(0, now.input_tokens - before.input_tokens),
        max(0, now.output_tokens - before.output_tokens),
        max(0, now.cached_tokens - before.cached_tokens),
        money,
        max(0, now.reasoning_tokens - before.reasoning_tokens),
    )
