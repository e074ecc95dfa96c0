"""`Spending`: the tokens and the money of a run, shared with the runs around it.

A run that the code of a tool starts counts in the run of that tool, whether it is an agent as a tool or a call of
`run`, and it may use no more than is left there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from agentkit.errors import AgentDefinitionError, LimitExceeded
from agentkit.models.model import Model, Reply, Usage
from agentkit.models.prices import Price, price_of
from agentkit.run.parts.limits import Limits
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.tokens.counter import message_tokens

__all__ = ["Reserved", "Spending"]


class Reserved(NamedTuple):
    """Tokens and money that are set aside for a prompt until its reply."""

    tokens: int = 0
    money: float = 0.0


_NOTHING = Reserved()


class Spending:
    """Counts what one run uses, in it and in all runs around it.

    Args:
        limits: The limits of the run.
        model: The model of its agent.
        call_id: Id of the call in the run around this one whose tool this run is; "" for another run.
        around: The runs around this one, the nearest first.

    Raises:
        AgentDefinitionError: This run, or a run around it, has a limit of money, and the price of the model is unknown.
    """

    __slots__ = ("_around", "_call_id", "_inner", "_is_limited", "_limits", "_money", "_reserved", "_tokens", "price")

    def __init__(self, limits: Limits, model: Model, call_id: str, around: tuple[Spending, ...]) -> None:
        self._limits = limits
        self._call_id = call_id
        self._around = around
        self._tokens = 0
        self._money = 0.0
        self._reserved = _NOTHING
        # Usage of runs inside, each with the id of its call. A tool may run an agent in another thread: only methods of
        # lists that are atomic change it.
        self._inner: list[tuple[str, Usage]] = []
        self._is_limited = limits.tokens is not None or limits.money is not None
        if around and around[0]._is_limited:
            self._is_limited = True
        self.price = self.checked_price(model)

    def checked_price(self, model: Model) -> Price | None:
        """Return the price of a model; None if it is unknown and no limit needs it.

        Raises:
            AgentDefinitionError: The price is unknown, and this run, or a run around it, has a limit of money.
        """
        price = price_of(model)
        if price is None and self._is_limited:
            for run in (self, *self._around):
                if run._limits.money is not None:
                    raise AgentDefinitionError(_no_price(model, run._limits.money), name="price", value=model.name)
        return price

    def reserve(self, composition: Composition, price: Price | None) -> Reserved:
        """Set aside the cost of a prompt, in this run and all runs around it.

        A single prompt may take more than is left: its reply reports how much it took. It may not while other prompts
        are in progress. The cost of a reply is unknown: it is estimated to be as long as its prompt.

        Raises:
            LimitExceeded: One of these runs has too little left.
        """
        if not self._is_limited:
            return _NOTHING
        tokens = composition.tokens
        money = 0.0
        if price is not None:
            # The cost of the reply is unknown: it is estimated to be as long as the prompt.
            money = price.of(Usage(tokens, tokens))
        runs = (self, *self._around)
        for run in runs:
            run._check_room(tokens, money)
        for run in runs:
            run._reserved = Reserved(run._reserved.tokens + tokens, run._reserved.money + money)
        return Reserved(tokens, money)

    def _check_room(self, tokens: int, money: float) -> None:
        """Refuse a prompt if what is used, and reserved by other prompts, leaves no room for it."""
        limits, reserved = self._limits, self._reserved
        if limits.tokens is not None:
            wanted = 0
            if reserved.tokens:
                wanted = reserved.tokens + tokens
            if self._tokens + wanted > limits.tokens:
                advice = f"other runs use what is left, and the next prompt takes about {tokens}; allow more"
                raise LimitExceeded("tokens", limits.tokens, advice)
        if limits.money is not None:
            cost = 0.0
            if reserved.money:
                cost = reserved.money + money
            if self._money + cost > limits.money:
                advice = f"other runs use what is left, and the next prompt takes about {money:.2g} of them; allow more"
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
        """Count a reply in this run and all runs around it, in place of what was reserved for it."""
        if self._is_limited:
            for run in (self, *self._around):
                run._count(usage)
                run._release(reserved)
        call_id = self._call_id
        for run in self._around:
            run._inner.append((call_id, usage))
            call_id = run._call_id

    def resume(self, usage: Usage) -> None:
        """Count what this run used in earlier attempts; the runs around the nearest one have counted it."""
        self._count(usage)
        if self._call_id:
            self._around[0]._inner.append((self._call_id, usage))

    def _count(self, usage: Usage) -> None:
        self._tokens += usage.input_tokens + usage.output_tokens
        self._money += usage.money or 0.0

    def _release(self, reserved: Reserved) -> None:
        tokens = self._reserved.tokens - reserved.tokens
        # Sums of floats are not exact: a rest would count as a prompt that is under way.
        money = self._reserved.money - reserved.money if tokens else 0.0
        self._reserved = Reserved(tokens, money)

    def inner_usage(self, calls: Iterable[ToolCall] = (), ended: str = "") -> Usage | None:
        """Return the usage of runs inside since the last call of this method; None without such runs.

        The usage of agents that run as tools of `calls` is returned when these calls end, such as now the call `ended`.
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
