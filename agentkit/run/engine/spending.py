"""`Spending`: counter of the tokens and the money of a run, shared with its outer runs.

A run that a tool starts, of an agent as a tool or by `agent.run`, also counts in the outer run, and can use only the
rest of the limits of the outer run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from agentkit.errors import AgentDefinitionError, LimitExceeded
from agentkit.models.model import Model, Reply, Usage
from agentkit.models.prices import Price, price_of, price_problem
from agentkit.run.parts.limits import Limits
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.tokens.counter import message_tokens


class Reserved(NamedTuple):
    """Tokens and money that are reserved for a prompt until its reply."""

    tokens: int = 0
    money: float = 0.0


_NOTHING = Reserved()


class Spending:
    """Counts the usage of a run, in the run and in all outer runs.

    Args:
        limits: The limits of the run.
        model: The model of the agent.
        call_id: Id of the call in the outer run, if this run is an agent as a tool; otherwise empty.
        outer: Counters of the outer runs, innermost first.

    Raises:
        AgentDefinitionError: This run, or an outer run, limits money, but the price of the model is unknown.
    """

    __slots__ = ("_call_id", "_inner", "_is_limited", "_limits", "_money", "_outer", "_reserved", "_tokens", "price")

    def __init__(self, limits: Limits, model: Model, call_id: str, outer: tuple[Spending, ...]) -> None:
        self._limits = limits
        self._call_id = call_id
        self._outer = outer
        self._tokens = 0
        self._money = 0.0
        self._reserved = _NOTHING
        # Usage of inner runs, with call ids. Changed only by atomic operations of lists, because a tool can run an
        # agent
        # in another thread.
        self._inner: list[tuple[str, Usage]] = []
        self._is_limited = limits.tokens is not None or limits.money is not None
        if outer and outer[0]._is_limited:
            self._is_limited = True
        self.price = self.checked_price(model)

    def checked_price(self, model: Model) -> Price | None:
        """Return the price of a model; None if the price is unknown and no limit requires it.

        Raises:
            AgentDefinitionError: The price is unknown, but this run, or an outer run, limits money.
        """
        price = price_of(model)
        if price is None and self._is_limited:
            for run in (self, *self._outer):
                if run._limits.money is not None:
                    problem = f"limits: money={run._limits.money:g}, but {price_problem(model)}"
                    raise AgentDefinitionError(problem, name="price", value=model.name)
        return price

    def reserve(self, composition: Composition, price: Price | None) -> Reserved:
        """Reserve the cost of a prompt, in this run and all outer runs.

        One prompt can exceed the limit, because only its reply reports the cost. For concurrent prompts, the costs are
        estimated and must fit the limit together.

        Raises:
            LimitExceeded: The rest of a limit of one of these runs is too small.
        """
        if not self._is_limited:
            return _NOTHING
        tokens = composition.tokens
        money = 0.0
        if price is not None:
            # The length of the reply is unknown: it is estimated as the length of the prompt.
            money = price.of(Usage(tokens, tokens))
        runs = (self, *self._outer)
        for run in runs:
            run._check_room(tokens, money)
        for run in runs:
            run._reserved = Reserved(run._reserved.tokens + tokens, run._reserved.money + money)
        return Reserved(tokens, money)

    def _check_room(self, tokens: int, money: float) -> None:
        """Refuse a prompt that would exceed a limit, together with the usage so far and the reservations."""
        limits, reserved = self._limits, self._reserved
        if limits.tokens is not None:
            needed = 0
            if reserved.tokens:
                needed = reserved.tokens + tokens
            if self._tokens + needed > limits.tokens:
                advice = f"concurrent runs use the rest, and the next prompt has about {tokens} tokens; raise the limit"
                raise LimitExceeded("tokens", limits.tokens, advice)
        if limits.money is not None:
            cost = 0.0
            if reserved.money:
                cost = reserved.money + money
            if self._money + cost > limits.money:
                price = f"{money:.2g} US dollars"
                advice = f"concurrent runs use the rest, and the next prompt costs about {price}; raise the limit"
                raise LimitExceeded("money", limits.money, advice)

    def priced(self, reply: Reply, composition: Composition, price: Price) -> Reply:
        """Return a reply with its cost.

        If money is limited and the endpoint counted no tokens, they are estimated.
        """
        usage = reply.usage
        if usage.money is not None:
            return reply
        counted = usage
        if self._is_limited and not (usage.input_tokens or usage.output_tokens):
            counted = Usage(composition.tokens, message_tokens(composition.counter)(reply.message))
        return replace(reply, usage=replace(usage, money=price.of(counted)))

    def spend(self, usage: Usage, reserved: Reserved) -> None:
        """Count the usage of a reply in this run and all outer runs, and release its reservation."""
        if self._is_limited:
            for run in (self, *self._outer):
                run._count(usage)
                tokens = run._reserved.tokens - reserved.tokens
                # Sums of floats are not exact: a remainder of money would count as a prompt that waits for its reply.
                money = 0.0
                if tokens:
                    money = run._reserved.money - reserved.money
                run._reserved = Reserved(tokens, money)
        call_id = self._call_id
        for run in self._outer:
            run._inner.append((call_id, usage))
            call_id = run._call_id

    def resume(self, usage: Usage) -> None:
        """Count the usage of earlier attempts in this run, and as usage of its call in the outer run.

        The limits of the outer runs count this usage already: an outer run is resumed first, from its own journal.
        """
        self._count(usage)
        if self._call_id:
            self._outer[0]._inner.append((self._call_id, usage))

    def _count(self, usage: Usage) -> None:
        self._tokens += usage.input_tokens + usage.output_tokens
        self._money += usage.money or 0.0

    def inner_usage(self, calls: Iterable[ToolCall] = (), finished: str = "") -> Usage | None:
        """Return the usage of inner runs since the last call of this method; None without usage.

        The usage of an agent as a tool is returned when its call finishes.

        Args:
            calls: The pending calls.
            finished: Id of the call in `calls` that has just finished.
        """
        if not self._inner:
            return None
        pending = {call.id for call in calls if call.id != finished}
        rows = self._inner[:]
        del self._inner[: len(rows)]
        self._inner += [row for row in rows if row[0] in pending]
        usages = [usage for call_id, usage in rows if call_id not in pending]
        if not usages:
            return None
        return sum(usages, Usage())
