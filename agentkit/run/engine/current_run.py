"""`CurrentRun`: state of a run in progress, shared with its steps and its inner runs."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import replace
from typing import NamedTuple

from agentkit.errors import ApprovalError, JournalError, LimitExceeded, Paused
from agentkit.models.model import Model
from agentkit.run.engine.event_sink import EventSink, Listener
from agentkit.run.engine.events import Nested
from agentkit.run.engine.spending import Spending
from agentkit.run.journal.code_runs import code_calls
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.journal.journal_file import JournalWriter
from agentkit.run.parts.decisions import Approver, Decision, Decisions
from agentkit.run.parts.limits import Limits
from agentkit_prompts.context.messages import ToolCall

_ADVICE = (
    "agents call each other in a circle, or are nested deeper; raise the limit, or pass fewer tools to inner agents"
)


class _Parent(NamedTuple):
    """Parent of the runs that start in a `contextvars` context."""

    run: CurrentRun
    """The outer run."""
    call_id: str = ""
    """Id of the tool call, if the inner run is an agent as a tool."""


class CurrentRun:
    """A run in progress.

    Args:
        limits: The limits of the run.
        sink: Receives the events; None without a listener.
        approve: Approver, or decisions about calls.
        model: The model of the agent.

    Attributes:
        spending: Counter of tokens and money.
        writer: Writer of the journal; None if the journal is not written.
        code_calls: Number of tool calls that code of the model made so far.

    Raises:
        LimitExceeded: The run exceeds the maximum depth of inner runs.
        AgentDefinitionError: The run, or an outer run, limits money, but the price of the model is unknown.
    """

    __slots__ = (
        "_calls",
        "_journal",
        "_limits",
        "_max_depth",
        "_outer_runs",
        "_parent",
        "_stopped",
        "_token",
        "_unfinished",
        "approve",
        "code_calls",
        "sink",
        "spending",
        "writer",
    )

    spending: Spending
    _token: Token[_Parent | None]
    _max_depth: int
    """Maximum number of outer runs of an inner run."""

    def __init__(
        self, limits: Limits, sink: EventSink | None, approve: Approver | Decisions | None, model: Model
    ) -> None:
        self.sink = sink
        self.approve = approve
        self.writer: JournalWriter | None = None
        self.code_calls = 0
        self._limits = limits
        self._journal: Journal | None = None
        self._calls: Sequence[ToolCall] = ()
        self._stopped: dict[str, Exception] = {}
        self._unfinished: dict[str, Journal] = {}
        self._parent = _current_parent.get()
        self._outer_runs: tuple[CurrentRun, ...] = ()
        # The strictest outer run decides: an inner agent cannot raise the limit.
        self._max_depth = limits.nested_runs
        if self._parent is not None:
            outer = self._parent.run
            self._outer_runs = (outer, *outer._outer_runs)
            self._max_depth = min(outer._max_depth, len(self._outer_runs) + limits.nested_runs)
            if len(self._outer_runs) > outer._max_depth:
                raise LimitExceeded("nested_runs", outer._max_depth, _ADVICE)
        self.spending = Spending(limits, model, self._call_id, tuple([run.spending for run in self._outer_runs]))

    @property
    def _call_id(self) -> str:
        """Id of the call in the outer run, if this agent runs as a tool; otherwise empty."""
        if self._parent is None:
            return ""
        return self._parent.call_id

    def begin(self, journal: Journal, earlier: Journal | None) -> None:
        """Make this run the parent of runs that start in this context.

        Args:
            journal: The journal of this run. If the agent runs as a tool, the journal is added to the outer journal.
            earlier: The journal of earlier attempts; None for a new run.
        """
        self._token = _current_parent.set(_Parent(self))
        self._journal = journal
        if earlier is not None:
            self._unfinished = earlier.unfinished_agents
            self.spending.resume(earlier.usage)
            self.code_calls = code_calls(earlier)
        if self._call_id:
            # The writer of the outer run also writes the lines of this run, so that one file resumes both runs.
            outer = self._outer_runs[0]
            if outer._journal is not None:
                outer._journal.add_inner(self._call_id, journal, is_new=earlier is None)
                self.writer = outer.writer

    def set_writer(self, writer: JournalWriter) -> None:
        """Set the writer of the journal, if the run has a file or function for its journal."""
        self.writer = writer

    def end(self) -> None:
        """Restore the outer run as the parent of runs that start in this context."""
        _current_parent.reset(self._token)

    # Tool calls

    def begin_calls(self, calls: Sequence[ToolCall]) -> None:
        """Set the calls of the current round: only agents of these calls can be resumed with this run."""
        self._calls = calls
        if self.code_calls:
            self.count_code_calls(0)

    def count_code_calls(self, count: int) -> None:
        """Count tool calls that code of the model makes.

        Raises:
            LimitExceeded: The run has more tool calls than allowed, with the calls of code.
        """
        self.code_calls += count
        allowed = self._limits.tool_calls
        if allowed is None:
            return
        direct = {call.id for call in self._calls}
        if self._journal is not None:
            direct |= {result.call_id for result in self._journal.tool_results}
        if len(direct) + self.code_calls > allowed:
            raise LimitExceeded("tool_calls", allowed, "raise the limit, or pass fewer tools")

    @property
    def stopped(self) -> Mapping[str, Exception]:
        """Errors that stopped agents as tools, and therefore this run, by call id."""
        return self._stopped

    def stop(self, call_id: str, error: Exception) -> None:
        """Stop this run after the round, because an agent as a tool stopped."""
        self._stopped.setdefault(call_id, error)  # later errors of the call are consequences of the first error

    @property
    def unfinished(self) -> Mapping[str, Journal]:
        """Journals of agents as tools that an earlier attempt started and this attempt has not resumed yet."""
        return self._unfinished

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """Decisions of earlier attempts, by call id."""
        if self._journal is None:
            return {}
        return self._journal.decisions

    # Inner runs

    def inner_listener(self, call_id: str, name: str) -> Listener | None:
        """Return the listener of an inner run of a call; None without a listener. `name`: name of the tool."""
        sink = self.sink
        if sink is None:
            return None
        return lambda event: sink.emit(Nested(call_id, name, event))

    def inner_run(self, call_id: str) -> InnerRun | None:
        """Return the inner run of a tool call.

        None if the call is not part of the current round, such as a call that a tool made: it cannot be resumed.
        """
        if all(call.id != call_id for call in self._calls):
            return None
        return InnerRun(self, call_id, self._unfinished.pop(call_id, None))


class InnerRun:
    """The run of an agent as a tool. It is paused and resumed with the outer run.

    Attributes:
        earlier: The journal of an earlier attempt; None at the first attempt.
    """

    __slots__ = ("_call_id", "_outer", "earlier")

    def __init__(self, outer: CurrentRun, call_id: str, earlier: Journal | None) -> None:
        self._outer = outer
        self._call_id = call_id
        self.earlier = earlier

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Make the outer run, with this call, the parent of the run that starts in a `with` block."""
        token = _current_parent.set(_Parent(self._outer, self._call_id))
        try:
            yield
        finally:
            _current_parent.reset(token)

    def stops(self, error: Exception) -> bool:
        """Record an error of the inner run; return True if the outer run stops.

        If the outer run continues, the error becomes a tool result for the model.
        """
        if isinstance(error, Paused | ApprovalError | JournalError):
            self._outer.stop(self._call_id, error)
        return self._call_id in self._outer.stopped

    @property
    def approve(self) -> Approver | Decisions | None:
        """Approver of the outer run. It receives the ids of inner calls prefixed with the id of this call."""
        approve = self._outer.approve
        if not callable(approve):
            prefix = inner_id(self._call_id, "")
            # The caller can pass keys of other types: they are ignored here and refused later.
            return {
                call.removeprefix(prefix): decision
                for call, decision in (approve or {}).items()
                if isinstance(call, str) and call.startswith(prefix)
            }

        async def ask(call: ToolCall) -> Decision | bool:
            try:
                answer = approve(replace(call, id=inner_id(self._call_id, call.id)))
                if isinstance(answer, Awaitable):
                    answer = await answer
                return answer
            except Exception as error:  # the error ends the outer run, which has the approver
                self._outer.stop(self._call_id, error)
                raise

        return ask


_current_parent: ContextVar[_Parent | None] = ContextVar("agentkit_run", default=None)


def current_run() -> CurrentRun | None:
    """Return the innermost run of the current `contextvars` context; None outside of runs."""
    parent = _current_parent.get()
    if parent is None:
        return None
    return parent.run
