"""`CurrentRun`: a run in progress, as its steps and the runs inside of it see it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import replace
from typing import NamedTuple

from agentkit.errors import ApprovalError, JournalError, LimitExceeded, Paused
from agentkit.models.model import Model
from agentkit.run.engine.events import Nested
from agentkit.run.engine.listening import Listener, Listening
from agentkit.run.engine.spending import Spending
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.journal.journal_file import Keeper
from agentkit.run.parts.decisions import Approver, Decision, Decisions
from agentkit.run.parts.limits import Limits
from agentkit_prompts.context.messages import ToolCall

__all__ = ["CurrentRun", "InnerRun", "current_run"]

_ADVICE = "agents call each other deeper than that; allow more, or give the inner ones fewer tools"


class _Place(NamedTuple):
    """The place of code that may start a run."""

    run: CurrentRun
    """The run whose tool runs the code."""
    call_id: str = ""
    """Id of the call, if an agent is about to run as its tool."""


class CurrentRun:
    """A run in progress.

    Args:
        limits: The limits of the run.
        listening: The listener; None without one.
        approve: Decides about calls.
        model: The model of its agent.

    Attributes:
        spending: Counts its tokens and its money.
        keeper: Writes its journal; None if the journal is not kept.

    Raises:
        LimitExceeded: The run would be inside of too many runs.
        AgentDefinitionError: The run, or a run around it, has a limit of money, and the price of its model is unknown.
    """

    __slots__ = (
        "_around",
        "_calls",
        "_deepest",
        "_journal",
        "_place",
        "_stopped",
        "_token",
        "_unfinished",
        "approve",
        "keeper",
        "listening",
        "spending",
    )

    spending: Spending
    _token: Token[_Place | None]
    _deepest: int
    """The number of runs that may be around a run inside of this one."""

    def __init__(
        self, limits: Limits, listening: Listening | None, approve: Approver | Decisions | None, model: Model
    ) -> None:
        self.listening = listening
        self.approve = approve
        self.keeper: Keeper | None = None
        self._journal: Journal | None = None
        self._calls: Sequence[ToolCall] = ()
        self._stopped: dict[str, Exception] = {}
        self._unfinished: dict[str, Journal] = {}
        self._place = _current_place.get()
        self._around: tuple[CurrentRun, ...] = ()
        # The strictest run around this one decides: an inner agent cannot allow itself more.
        self._deepest = limits.nested_runs
        if self._place is not None:
            outer = self._place.run
            self._around = (outer, *outer._around)
            self._deepest = min(outer._deepest, len(self._around) + limits.nested_runs)
            if len(self._around) > outer._deepest:
                raise LimitExceeded("nested_runs", outer._deepest, _ADVICE)
        self.spending = Spending(limits, model, self._call_id, tuple([run.spending for run in self._around]))

    @property
    def _call_id(self) -> str:
        """Id of the call in the run around this one, if this agent runs as its tool."""
        return "" if self._place is None else self._place.call_id

    def begin(self, journal: Journal, known: Journal | None) -> None:
        """Make this the current run of the context, with its journal.

        Args:
            journal: The journal of this run. If its agent runs as a tool, it is part of the outer journal.
            known: The journal of earlier attempts.
        """
        self._token = _current_place.set(_Place(self))
        self._journal = journal
        if known is not None:
            self._unfinished = known.unfinished
            self.spending.resume(known.usage)
        if self._call_id:
            # The outer journal has the lines of this run, so that both are resumed from one file.
            outer = self._around[0]
            if outer._journal is not None:
                outer._journal.add_inner(self._call_id, journal, is_new=known is None)
                self.keeper = outer.keeper

    def keep(self, keeper: Keeper) -> None:
        """Set the keeper that writes the journal."""
        self.keeper = keeper

    def end(self) -> None:
        """Make the run around this one the current run again."""
        _current_place.reset(self._token)

    # Tool calls

    def begin_calls(self, calls: Sequence[ToolCall]) -> None:
        """Note the calls of a round: agents that run as their tools are resumed with this run."""
        self._calls = calls

    @property
    def stopped(self) -> Mapping[str, Exception]:
        """The errors that stopped agents as tools, and this run with them, by the ids of the calls."""
        return self._stopped

    def stop(self, call_id: str, error: Exception) -> None:
        """Stop this run at the end of the round, because the agent of a call was stopped. The first error counts."""
        self._stopped.setdefault(call_id, error)

    @property
    def unfinished(self) -> Mapping[str, Journal]:
        """The journals of agents as tools that an earlier attempt began, and that have not been resumed yet."""
        return self._unfinished

    @property
    def decided(self) -> Mapping[str, Decision]:
        """The decisions of earlier attempts, by the ids of the calls."""
        return {} if self._journal is None else self._journal.decisions

    # Runs inside

    def nested_listener(self, call_id: str, name: str) -> Listener | None:
        """Return the listener of a run inside of a call; None if this run has none. `name`: name of the tool."""
        listening = self.listening
        if listening is None:
            return None
        return lambda event: listening.emit(Nested(call_id, name, event))

    def inner_run(self, call_id: str) -> InnerRun | None:
        """Return the run of an agent as the tool of a call; None if the call is not one of the round.

        A tool that calls a tool itself, for example, cannot be resumed in the middle.
        """
        if all(call.id != call_id for call in self._calls):
            return None
        return InnerRun(self, call_id, self._unfinished.pop(call_id, None))


class InnerRun:
    """The run of an agent as the tool of a call. It pauses and is resumed with the run around it.

    Attributes:
        known: The journal of an earlier attempt; None at the first attempt.
    """

    __slots__ = ("_call_id", "_outer", "known")

    def __init__(self, outer: CurrentRun, call_id: str, known: Journal | None) -> None:
        self._outer = outer
        self._call_id = call_id
        self.known = known

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Make the run that starts in the block this one."""
        token = _current_place.set(_Place(self._outer, self._call_id))
        try:
            yield
        finally:
            _current_place.reset(token)

    def stops(self, error: Exception) -> bool:
        """Return True if an error stops the run around this one too; other errors are a result for the model."""
        if isinstance(error, Paused | ApprovalError | JournalError):
            self._outer.stop(self._call_id, error)
        return self._call_id in self._outer.stopped

    @property
    def approve(self) -> Approver | Decisions | None:
        """The approver of the outer run, which sees the ids of the inner calls with the id of this call in front."""
        approve = self._outer.approve
        if not callable(approve):
            start = inner_id(self._call_id, "")
            # The mapping is the caller's: a key of another type is no id of a call.
            return {
                call.removeprefix(start): decision
                for call, decision in (approve or {}).items()
                if isinstance(call, str) and call.startswith(start)
            }

        async def ask(call: ToolCall) -> Decision | bool:
            try:
                answer = approve(replace(call, id=inner_id(self._call_id, call.id)))
                if isinstance(answer, Awaitable):
                    answer = await answer
                return answer
            except Exception as error:  # it ends the run that it was given to
                self._outer.stop(self._call_id, error)
                raise

        return ask


_current_place: ContextVar[_Place | None] = ContextVar("agentkit_run", default=None)


def current_run() -> CurrentRun | None:
    """Return the run whose tool is running, or None outside of tools."""
    place = _current_place.get()
    return None if place is None else place.run
