"""Runs inside of runs: what an agent that a tool calls owes the run it was called from.

Whoever calls it and however (as a tool, or with `run` and `run_sync` in the code of a tool), its tokens and its money
count in the outer run, and it may use no more than what is left there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import replace

from agentkit.errors import AgentDefinitionError, LimitExceeded
from agentkit.models.model import Model, Reply, Usage
from agentkit.models.prices import Price, price_of
from agentkit.run.engine.listening import Emit
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import Keeper
from agentkit.run.parts.decisions import Approver, Decisions
from agentkit.run.parts.limits import Limits
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.tokens.counter import message_tokens

__all__ = ["Nesting", "current_run"]

_ADVICE = "agents call each other deeper than that; allow more, or give the inner ones fewer tools"


_NOTHING = (0, 0.0)


class Nesting:
    """One run, as the runs inside of it see it.

    Raises:
        LimitExceeded: It would be inside of too many runs.
        AgentDefinitionError: It, or a run around it, has a limit of money, and nobody knows what its model costs.
    """

    _token: Token[tuple[Nesting, str] | None]
    _is_limited: bool
    """Whether this run or one around it has a limit of tokens or money."""
    call_id: str
    """Id of the call in the run around this one whose tool this run is; "" where it was started in another way."""
    calls: tuple[ToolCall, ...]
    """The tool calls that are under way."""
    journal: Journal | None
    """What this run is recorded in."""
    keeper: Keeper | None
    """What keeps the journal: nothing is done before all lines are written."""
    stopped: dict[str, Exception]
    """What stopped agents that run as tools, by the ids of their calls: it stops this run too."""
    unfinished: dict[str, Journal]
    """The journals of agents that ran as tools when this run was stopped, by the ids of their calls."""

    def __init__(self, limits: Limits, emit: Emit | None, approve: Approver | Decisions | None, model: Model) -> None:
        self.emit = emit
        self.approve = approve
        self._used = self._reserved = 0
        self._cost = self._reserved_cost = 0.0
        self._inner: list[tuple[str, Usage]] = []  # appending is atomic: a tool may run an agent in another thread
        self.calls = ()
        self.journal = self.keeper = None
        self.stopped, self.unfinished = {}, {}
        outer, self.call_id = _current.get() or _OUTSIDE
        self._around: tuple[Nesting, ...] = () if outer is None else (outer, *outer._around)
        self._deepest = limits.nested_runs
        if outer is not None:
            depth = len(self._around)
            self._deepest = min(outer._deepest, depth + limits.nested_runs)
            if depth > outer._deepest:
                raise LimitExceeded("nested_runs", outer._deepest, _ADVICE)
        self.limits = limits
        self._is_limited = (
            limits.tokens is not None or limits.money is not None or (outer is not None and outer._is_limited)
        )
        self.price = self.checked_price(model)

    def checked_price(self, model: Model) -> Price | None:
        """Return what a model costs; None where it is not known and no limit needs it.

        Raises:
            AgentDefinitionError: This run, or one around it, has a limit of money, and it is not known.
        """
        price = price_of(model)
        if price is None and self._is_limited:
            for run in (self, *self._around):
                if run.limits.money is not None:
                    raise AgentDefinitionError(_no_price(model, run.limits.money), name="price", value=model.name)
        return price

    def begin(self) -> None:
        """Have runs that begin from now on, in this context, be inside of this one."""
        self._token = _current.set((self, ""))

    def end(self) -> None:
        """Have runs that begin from now on be outside of this one again."""
        _current.reset(self._token)

    @contextmanager
    def calling(self, call_id: str) -> Iterator[None]:
        """Have the run that begins in the block be that of an agent that runs as the tool of a call."""
        token = _current.set((self, call_id))
        try:
            yield
        finally:
            _current.reset(token)

    def record(self, journal: Journal, known: Journal | None) -> None:
        """Have this run recorded in a journal, which is part of that of the run around it where this one is a tool."""
        self.journal = journal
        if known is not None:
            self.unfinished = known.unfinished
            self._spent_before(known.usage)
        if self.call_id and (around := self._around[0]).journal is not None:
            around.journal.add_inner(self.call_id, journal, is_new=known is None)
            self.keeper = around.keeper

    def reserve(self, composition: Composition, price: Price | None) -> tuple[int, float]:
        """Set aside what sending a composition takes, here and in all runs around this one; return tokens and money.

        A single prompt may take more than is left, which its reply then says; not while others are on their way. What
        a reply will cost nobody knows: it is taken to be as long as its prompt.

        Raises:
            LimitExceeded: One of these runs has not so much left.
        """
        if not self._is_limited:
            return _NOTHING
        tokens = composition.tokens
        money = 0.0 if price is None else price.of(Usage(tokens, tokens))
        runs = (self, *self._around)
        for run in runs:
            allowed, most = run.limits.tokens, run.limits.money
            if allowed is not None and run._used + (run._reserved and run._reserved + tokens) > allowed:
                advice = f"other runs use what is left, and the next prompt takes about {tokens}; allow more"
                raise LimitExceeded("tokens", allowed, advice)
            if most is not None and run._cost + (run._reserved_cost and run._reserved_cost + money) > most:
                advice = f"other runs use what is left, and the next prompt takes about {money:.2g} of them; allow more"
                raise LimitExceeded("money", most, advice)
        for run in runs:
            run._reserved += tokens
            run._reserved_cost += money
        return tokens, money

    def priced(self, reply: Reply, composition: Composition, price: Price) -> Reply:
        """Return a reply with what it cost, where that can be known.

        Where money is limited and the endpoint counted no tokens, they are estimated.
        """
        usage = reply.usage
        if usage.money is not None:
            return reply
        counted = usage
        if self._is_limited and not (usage.input_tokens or usage.output_tokens):
            counted = Usage(composition.tokens, message_tokens(composition.counter)(reply.message))
        return replace(reply, usage=replace(usage, money=price.of(counted)))

    def spend(self, usage: Usage, reserved: tuple[int, float]) -> None:
        """Count a reply of this run's model, here and in all runs around this one, in place of what was set aside."""
        if self._is_limited:
            used, cost = usage.input_tokens + usage.output_tokens, usage.money or 0.0
            for run in (self, *self._around):
                run._count(used, cost, reserved)
        call_id = self.call_id
        for run in self._around:
            run._inner.append((call_id, usage))
            call_id = run.call_id

    def _spent_before(self, usage: Usage) -> None:
        """Count what this run had used when it was stopped: the run around it has counted that as its own."""
        self._used += usage.input_tokens + usage.output_tokens
        self._cost += usage.money or 0.0
        if self.call_id:
            self._around[0]._inner.append((self.call_id, usage))

    def _count(self, used: int, cost: float, reserved: tuple[int, float]) -> None:
        self._used += used
        self._cost += cost
        self._reserved -= reserved[0]
        # Sums of floats do not come out even, and a rest would stand for a prompt that is on its way.
        self._reserved_cost = self._reserved_cost - reserved[1] if self._reserved else 0.0

    def inner_usage(self, calls: Iterable[ToolCall] = (), ended: str = "") -> Usage | None:
        """Return what the runs inside have spent since this was asked last, or None when there were none.

        What agents spent that run as tools of `calls` is returned when these have ended, as now the call `ended`.
        """
        if not self._inner:
            return None
        later = {call.id for call in calls if call.id != ended}
        fresh = self._inner[:]
        del self._inner[: len(fresh)]
        self._inner += [one for one in fresh if one[0] in later]
        spent = [usage for call_id, usage in fresh if call_id not in later]
        return sum(spent, Usage()) if spent else None


def _no_price(model: Model, allowed: float) -> str:
    kind = type(model).__name__
    return (
        f"limits: money={allowed:g}, and what the model {model.name!r} costs is not known: give it, in US dollars for "
        f"a million tokens, such as {kind}(..., price=Price(input=0.25, output=2.0, cached=0.025)); a class of your "
        "own has an attribute `price`"
    )


_current: ContextVar[tuple[Nesting, str] | None] = ContextVar("agentkit_run", default=None)
"""The run whose tool is running, and the id of its call where an agent is about to run as that tool."""
_OUTSIDE: tuple[None, str] = None, ""


def current_run() -> Nesting | None:
    """Return the run whose tool is running, or None outside of tools."""
    return (_current.get() or _OUTSIDE)[0]
