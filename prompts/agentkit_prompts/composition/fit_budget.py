"""`Fitting`: the composition that remains when a budget, or the `max` of a prompt, says it must be smaller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agentkit_prompts.composition.cut_order import Node, Siblings, UnitBounds, largest, largest_from
from agentkit_prompts.composition.history_cut import History
from agentkit_prompts.composition.prompt_cut import node_of
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.trims import Trim
from agentkit_prompts.errors import BudgetError
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

__all__ = ["Fitting", "without_oldest"]


class _Unit(NamedTuple):
    """Name of a unit in a reason."""

    one: str
    many: str


_UNITS = {
    "turns": _Unit("turn", "turns"),
    "steps": _Unit("step", "steps"),
    "items": _Unit("item", "items"),
    "text": _Unit("piece of text", "pieces of text"),
}


def without_oldest(whole: Composition, limit: int, why: str) -> Composition:
    """Return a composition without the oldest turns of its history, as far as its `tokens` are above a limit.

    What prompts wrote stays, also where it was changed after it was rendered; so the result may be above the limit.
    Tokens are asked for about as much as fits, not of more.

    Args:
        whole: The composition.
        limit: Tokens it may have.
        why: What the limit is from, for the layer table.
    """
    history = History(whole.conversation, whole.counter, whole.layers.history, by_role="user")
    units, least = history.units, min(history.required, history.units)
    earlier = whole.trims.get("conversation")
    turns = units
    if earlier is not None:  # a budget has already dropped some
        turns = earlier.of

    @lru_cache(maxsize=64)
    def keeping(steps: int) -> Composition:
        if steps == units:
            return whole
        share = f"{turns} turns dropped"
        if steps:
            share = f"{steps} of {turns} turns kept"
        trim = Trim(steps, turns, f"{share}: {why}")
        return whole.evolve(conversation=history.keep(steps), trims={**whole.trims, "conversation": trim})

    fixed = whole.own_tokens() - history.tokens(units)
    guess = largest(units, lambda steps: fixed + history.tokens(steps) <= limit, least)
    kept = largest_from(guess, units, lambda steps: keeping(steps).tokens <= limit, least)
    if kept:
        kept = history.steps(kept, whole.layers.history_block, max(1, least))
    return keeping(kept)


class Fitting:
    """The search for how many units the parts of one composition keep."""

    def __init__(self, whole: Composition, budget: Budget | None) -> None:
        self.whole = whole
        self.budget = budget
        layers, counter, ctx = whole.layers, whole.counter, whole.context
        self.history = History(whole.conversation, counter, layers.history, by_role="user")
        self.traffic = History(whole.intermediate, counter, layers.traffic, by_role="assistant", required=1)
        self.leaves = [
            [node_of(prompt, ctx, rendered, counter) for _, prompt, rendered in section.fragments]
            for section in whole.sections
        ]
        system, user, closing = (
            [(fragment[0], node) for fragment, node in zip(section.fragments, leaves, strict=True)]
            for section, leaves in zip(whole.sections, self.leaves, strict=True)
        )
        # In the order they are sent: of layers with equal priority, the first one grows first.
        self.siblings = Siblings(
            [*system, ("conversation", self.history), *user, ("intermediate", self.traffic), *closing]
        )
        self.at_history, self.at_traffic = len(system), len(system) + 1 + len(user)
        tools, schema, _ = whole.declarations.tokens(counter)
        self.fixed = tools + schema
        self._sections: dict[tuple[int, tuple[int, ...]], Section] = {}

    def result(self) -> Composition:
        """Return the composition with as much of the whole as fits: the longest prefix of the order that does.

        Raises:
            BudgetError: The minimums do not fit; names each with its tokens.
        """
        kept, required = len(self.siblings.order), self.siblings.required
        if self.budget is not None:
            limit = self.budget.tokens
            if self.sent_tokens(required) > limit:
                raise self._infeasible(limit)
            if self.tokens(kept) > limit:
                kept = largest(kept, lambda units: self.tokens(units) <= limit, required)
            # To render the text of a chat template is slow, so the search begins at the number that fits without it.
            if self.whole.text_tokens is not None:
                most = len(self.siblings.order)
                kept = largest_from(kept, most, lambda units: self.sent_tokens(units) <= limit, required)
        return self._build(self.siblings.given(kept))

    def sent_tokens(self, units: int) -> int:
        """Return what is sent with the first `units` of the order; where a chat template writes it, its text counts."""
        if self.whole.text_tokens is None:
            return self.tokens(units)
        return self._keeping(self.siblings.given(units), {}).tokens

    def tokens(self, units: int) -> int:
        """Return what the composition costs with the first `units` of the order, whatever chat template writes it."""
        given = self.siblings.given(units)
        counter = self.whole.counter
        traffic = given[self.at_traffic]
        total = self.fixed + self.history.tokens(given[self.at_history]) + self.traffic.tokens(traffic)
        system, user, closing = self.sections(given)
        whole, empty = self.whole, self.whole.layers.empty_messages
        if system.text or (empty and whole.sends_system):
            total += MESSAGE_OVERHEAD + system.tokens(counter)
        if user.text or (empty and whole.sends_user):
            total += MESSAGE_OVERHEAD + user.tokens(counter)
        if traffic and closing.text:
            total += MESSAGE_OVERHEAD + closing.tokens(counter)
        return total

    def sections(self, given: Sequence[int]) -> list[Section]:
        """Return the messages that remain with so many units of each sibling."""
        starts = (0, self.at_history + 1, self.at_traffic + 1)
        return [
            self._section(number, tuple(given[start : start + len(leaves)]))
            for number, (start, leaves) in enumerate(zip(starts, self.leaves, strict=True))
        ]

    def _section(self, number: int, counts: tuple[int, ...]) -> Section:
        known = self._sections.get((number, counts))
        if known is None:
            section, nodes = self.whole.sections[number], self.leaves[number]
            fragments = [
                Fragment(path, prompt, node.render(count))
                for (path, prompt, _), node, count in zip(section.fragments, nodes, counts, strict=True)
            ]
            known = self._sections[number, counts] = Section(fragments, section.label)
        return known

    def _build(self, given: Sequence[int]) -> Composition:
        whole, bounds = self.whole, self.siblings.bounds
        shown = [*given]
        shown[self.at_history] = self.history.steps(
            given[self.at_history], whole.layers.history_block, bounds[self.at_history].least
        )
        trims = {
            path: Trim(kept, bound.whole + node.lost, self._why(node, bound, count, kept))
            for (path, node), bound, count, kept in zip(self.siblings.nodes, bounds, given, shown, strict=True)
            if kept < bound.whole + node.lost
        }
        return self._keeping(shown, trims)

    def _keeping(self, given: Sequence[int], trims: Mapping[str, Trim]) -> Composition:
        """Return the composition with so many units of each sibling."""
        return self.whole.evolve(
            sections=self.sections(given),
            conversation=self.history.keep(given[self.at_history]),
            intermediate=self.traffic.keep(given[self.at_traffic]),
            trims=trims,
            budget=self.budget,
        )

    def _why(self, node: Node, bounds: UnitBounds, given: int, kept: int) -> str:
        unit = _UNITS[self._unit_of(node)]
        whole = bounds.whole + node.lost
        if kept:
            share = f"{kept} of {whole} {unit.many} kept"
        elif whole == 1:
            share = f"1 {unit.one} dropped"
        else:
            share = f"{whole} {unit.many} dropped"
        if given >= bounds.whole:
            return f"{share}: a prompt inside has a max"
        if given >= bounds.most:
            return f"{share}: its max is {node.size.max} tokens"
        assert self.budget is not None
        return f"{share}: the budget is {self.budget.tokens} tokens"

    def _unit_of(self, node: Node) -> str:
        """Return the kind of the units of a node."""
        if node is self.history:
            return "turns"
        if node is self.traffic:
            return "steps"
        if node.size.cut == "items":
            return "items"
        return "text"

    def _infeasible(self, limit: int) -> BudgetError:
        """Return the error that names every minimum with its tokens."""
        required = self.siblings.required
        total = self.sent_tokens(required)
        counts = self.siblings.given(required)
        parts = {path: node.tokens(count) for (path, node), count in zip(self.siblings.nodes, counts, strict=True)}
        parts["tools"] = self.fixed
        overhead = "overhead"
        if self.whole.text_tokens is not None:
            overhead = "chat template"
        parts[overhead] = total - sum(parts.values())
        # A template that shows less than its parts has a negative overhead, which is no part.
        parts = {path: tokens for path, tokens in parts.items() if tokens > 0}
        needs = ", ".join(f"{path} {tokens}" for path, tokens in parts.items())
        return BudgetError(
            f"what must be sent needs {total} tokens and the budget is {limit}: {needs}; "
            "raise the budget, lower a min, or give a prompt a cut that lets it shrink",
            required=total,
            limit=limit,
            parts=parts,
        )
