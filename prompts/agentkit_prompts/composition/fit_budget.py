"""Cuts of a composition, so that it fits a budget and the `max` of each prompt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from agentkit_prompts.composition.cut_order import Node, Siblings, UnitBounds, largest, largest_from
from agentkit_prompts.composition.history_cut import HistoryNode
from agentkit_prompts.composition.prompt_cut import PromptNode, node_of
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.trims import Trim
from agentkit_prompts.errors import BudgetError
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition


class _Unit(NamedTuple):
    """Names of a kind of units in the reason of a cut."""

    singular: str
    plural: str


_TURN = _Unit("turn", "turns")
_STEP = _Unit("step", "steps")
_ITEM = _Unit("item", "items")
_PIECE = _Unit("piece of text", "pieces of text")


def without_oldest(whole: Composition, limit: int, why: str) -> Composition:
    """Return a composition without the oldest turns of its history, so that its `tokens` fit a limit.

    Text of prompts is not cut, so the result can exceed the limit.

    Args:
        whole: The composition.
        limit: Maximum number of tokens.
        why: Origin of the limit, for the layer table.
    """
    history = HistoryNode(whole.conversation, whole.counter, whole.layers.history, by_role="user")
    units = history.units
    earlier = whole.trims.get("conversation")
    turns = units
    if earlier is not None:
        # A budget has already dropped some turns.
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

    # `Composition.tokens` can render a chat template, which is slow. The guess from token counts of messages leaves
    # only a few compositions to count.
    fixed = whole.own_tokens() - history.tokens(units)
    guess = largest(units, lambda steps: fixed + history.tokens(steps) <= limit, history.required)
    count = largest_from(guess, units, lambda steps: keeping(steps).tokens <= limit, history.required)
    if count:
        count = history.steps(count, whole.layers.history_block, max(1, history.required))
    return keeping(count)


class Fitting:
    """Search for the number of units of each prompt and history of a composition."""

    def __init__(self, whole: Composition, budget: Budget | None) -> None:
        self.whole = whole
        self.budget = budget
        layers, counter = whole.layers, whole.counter
        self.history = HistoryNode(whole.conversation, counter, layers.history, by_role="user")
        self.traffic = HistoryNode(whole.intermediate, counter, layers.traffic, by_role="assistant", required=1)
        self.prompts: dict[str, PromptNode] = {}
        system, user, closing = (self._nodes_of(section) for section in whole.sections)
        # In the order they are sent: of layers with equal priority, the first layer receives units first.
        self.siblings = Siblings(
            {**system, "conversation": self.history, **user, "intermediate": self.traffic, **closing}
        )
        tools, schema, _ = whole.tools_and_output.tokens(counter)
        self.fixed = tools + schema
        self._sections: dict[tuple[int, tuple[int, ...]], Section] = {}

    def _nodes_of(self, section: Section) -> dict[str, PromptNode]:
        ctx, counter = self.whole.context, self.whole.counter
        nodes = {path: node_of(prompt, ctx, rendered, counter) for path, prompt, rendered in section.fragments}
        self.prompts |= nodes
        return nodes

    def result(self) -> Composition:
        """Return the composition with the longest prefix of `Siblings.order` that fits the budget.

        Raises:
            BudgetError: The minimums do not fit; names each minimum with its tokens.
        """
        units = len(self.siblings.order)
        fitting, required = units, self.siblings.required
        if self.budget is not None:
            limit = self.budget.tokens
            if self.sent_tokens(required) > limit:
                raise self._infeasible(limit)
            if self.tokens(units) > limit:
                fitting = largest(units, lambda units: self.tokens(units) <= limit, required)
            # A chat template is slow to render, so the search starts at the number of units that fits without it.
            if self.whole.text_tokens is not None:
                fitting = largest_from(fitting, units, lambda units: self.sent_tokens(units) <= limit, required)
        return self._build(fitting)

    def sent_tokens(self, units: int) -> int:
        """Count the tokens of the first `units` of the order in the form that is sent: the text of a chat template, if
        any.
        """
        if self.whole.text_tokens is None:
            return self.tokens(units)
        return self._keeping(self.siblings.counts(units), {}).tokens

    def tokens(self, units: int) -> int:
        """Count the tokens of the first `units` of the order, without the chat template."""
        counts = self.siblings.counts(units)
        system, user, closing = self.sections(counts)
        whole, empty = self.whole, self.whole.layers.empty_messages
        total = self.fixed + self.history.tokens(counts["conversation"]) + self.traffic.tokens(counts["intermediate"])
        total += self._message_tokens(system, empty and whole.sends_system)
        total += self._message_tokens(user, empty and whole.sends_user)
        # The closing message follows tool traffic only.
        if counts["intermediate"]:
            total += self._message_tokens(closing, False)
        return total

    def _message_tokens(self, section: Section, may_be_empty: bool) -> int:
        if not section.text and not may_be_empty:
            return 0
        return MESSAGE_OVERHEAD + section.tokens(self.whole.counter)

    def sections(self, counts: Mapping[str, int]) -> list[Section]:
        """Return the sections, each prompt cut to its number of units."""
        return [self._section(slot, section, counts) for slot, section in enumerate(self.whole.sections)]

    def _section(self, slot: int, whole: Section, counts: Mapping[str, int]) -> Section:
        key = slot, tuple([counts[fragment.path] for fragment in whole.fragments])
        section = self._sections.get(key)
        if section is None:
            fragments = [
                Fragment(path, prompt, self.prompts[path].render(counts[path])) for path, prompt, _ in whole.fragments
            ]
            section = self._sections[key] = Section(fragments, whole.label)
        return section

    def _build(self, fitting: int) -> Composition:
        """Return the composition with the first `fitting` units of the order."""
        counts = self.siblings.counts(fitting)
        bounds = self.siblings.bounds
        block, minimum = self.whole.layers.history_block, bounds["conversation"].minimum
        final_counts = {**counts, "conversation": self.history.steps(counts["conversation"], block, minimum)}
        trims: dict[str, Trim] = {}
        for path, node in self.siblings.nodes.items():
            units = node.units + node.lost
            remaining = final_counts[path]
            if remaining < units:
                cause = self._cause(node, bounds[path], counts[path]) + self._obstacle(path, counts, fitting)
                why = f"{self._share(node, remaining, units)}: {cause}"
                trims[path] = Trim(remaining, units, why, node.item_after(counts[path]))
        return self._keeping(final_counts, trims)

    def _keeping(self, counts: Mapping[str, int], trims: Mapping[str, Trim]) -> Composition:
        """Return the composition, each prompt and history cut to its number of units."""
        return self.whole.evolve(
            sections=self.sections(counts),
            conversation=self.history.keep(counts["conversation"]),
            intermediate=self.traffic.keep(counts["intermediate"]),
            trims=trims,
            budget=self.budget,
        )

    def _share(self, node: Node, count: int, whole: int) -> str:
        # The units of a custom cut are shares of its limit: its text can be of any length below the limit.
        if callable(node.size.cut):
            return f"{node.tokens(count)} of {node.tokens(whole)} tokens kept"
        unit = self._unit_of(node)
        if count:
            return f"{count} of {whole} {unit.plural} kept"
        if whole == 1:
            return f"1 {unit.singular} dropped"
        return f"{whole} {unit.plural} dropped"

    def _cause(self, node: Node, bounds: UnitBounds, count: int) -> str:
        if count >= bounds.whole:
            return "a prompt inside has a max"
        if count >= bounds.maximum:
            return f"its max is {node.size.max} tokens"
        assert self.budget is not None
        return f"the budget is {self.budget.tokens} tokens"

    def _obstacle(self, path: str, counts: Mapping[str, int], fitting: int) -> str:
        """Return the end of the reason of a cut: the item that does not fit; empty if it is no item of the context."""
        first = path
        # A node can lose units because a unit of another node, which is earlier in the order, does not fit.
        if counts[path] < self.siblings.bounds[path].maximum and fitting < len(self.siblings.order):
            first = self.siblings.order[fitting]
        item = self.siblings.nodes[first].item_after(counts[first])
        if not item:
            return ""
        if first != path:
            item += f" of {first}, which is filled first,"
        return f", and {item} does not fit"

    def _unit_of(self, node: Node) -> _Unit:
        if node is self.history:
            return _TURN
        if node is self.traffic:
            return _STEP
        if node.size.cut == "items":
            return _ITEM
        return _PIECE

    def _infeasible(self, limit: int) -> BudgetError:
        """Return the error that names every minimum with its tokens."""
        required = self.siblings.required
        total = self.sent_tokens(required)
        counts = self.siblings.counts(required)
        parts = {path: node.tokens(counts[path]) for path, node in self.siblings.nodes.items()}
        parts["tools"] = self.fixed
        overhead = "overhead"
        if self.whole.text_tokens is not None:
            overhead = "chat template"
        parts[overhead] = total - sum(parts.values())
        # The overhead is negative if a template omits text of its messages; negative numbers are not listed.
        parts = {path: tokens for path, tokens in parts.items() if tokens > 0}
        needs = ", ".join(f"{path} {tokens}" for path, tokens in parts.items())
        return BudgetError(
            f"the required parts need {total} tokens, and the budget is {limit}: {needs}; "
            "raise the budget, lower a min, or set a cut for a prompt",
            required=total,
            limit=limit,
            parts=parts,
        )
