"""`fit`: the composition that remains when a budget, or the `max` of a prompt, says it must be smaller."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.explain import Trim
from agentkit_prompts.composition.sections import Fragment, Section
from agentkit_prompts.composition.units import Bounds, History, Node, largest, node_of, unit_order
from agentkit_prompts.errors import BudgetError
from agentkit_prompts.tokens.counter import MESSAGE_OVERHEAD
from agentkit_prompts.tokens.size import Budget

__all__ = ["fit"]


def fit(whole: Composition, budget: Budget | None) -> Composition:
    """Return the composition with as much of `whole` as fits.

    Raises:
        BudgetError: The minimums do not fit; names each with its tokens.
    """
    return _Fitting(whole, budget).result()


class _Fitting:
    """The siblings of one composition, the order in which they receive units, and the search for how many."""

    def __init__(self, whole: Composition, budget: Budget | None) -> None:
        self.whole = whole
        self.budget = budget
        layers, counter, ctx = whole.layers, whole.counter, whole.context
        self.history = History(whole.conversation, counter, layers.history, by_role="user")
        self.traffic = History(whole.intermediate, counter, layers.traffic, by_role="assistant", required=1)
        self.leaves = [
            (fragment, node_of(fragment.prompt, ctx, fragment.rendered, counter))
            for section in whole.sections
            for fragment in section.fragments
        ]
        sent: list[list[tuple[str, Node]]] = []  # in the order they are sent, which is the order equal ones grow in
        first = 0
        for section in whole.sections:
            last = first + len(section.fragments)
            sent.append([(fragment.path, node) for fragment, node in self.leaves[first:last]])
            first = last
        system, user, closing = sent
        ordered = [*system, ("conversation", self.history), *user, ("intermediate", self.traffic), *closing]
        order, self.required, bounds = unit_order(ordered)
        # From here on the leaves come first and the two histories last, so that sections can be sliced.
        places = [at for at, (_, node) in enumerate(ordered) if not isinstance(node, History)]
        places += [len(system), len(system) + 1 + len(user)]
        moved = {at: index for index, at in enumerate(places)}
        self.nodes = [ordered[at] for at in places]
        self.bounds = [bounds[at] for at in places]
        self.order = [moved[at] for at in order]
        tools, schema, _ = whole.declarations.tokens(counter)
        self.fixed = tools + schema
        self._sections: dict[tuple[int, tuple[int, ...]], Section] = {}

    def result(self) -> Composition:
        """Search for the longest prefix of the order that fits, and build what it stands for."""
        kept = len(self.order)
        if self.budget is not None:
            limit = self.budget.tokens
            if self.tokens(self.required) > limit:
                raise BudgetError(self._infeasible(limit))
            if self.tokens(kept) > limit:
                kept = largest(kept, lambda units: self.tokens(units) <= limit, self.required)
        given = self.given(kept)
        return self._build(given)

    def given(self, units: int) -> list[int]:
        """Return how many units each sibling has among the first `units` of the order."""
        counts = [0] * len(self.nodes)
        for index in self.order[:units]:
            counts[index] += 1
        return [bounds.held(count) for bounds, count in zip(self.bounds, counts, strict=True)]

    def tokens(self, units: int) -> int:
        """Return what the composition costs with the first `units` of the order, exactly as it would be sent."""
        given = self.given(units)
        counter = self.whole.counter
        total = self.fixed + self.history.tokens(given[-2]) + self.traffic.tokens(given[-1])
        system, user, closing = self.sections(given)
        whole, empty = self.whole, self.whole.layers.empty_messages
        if system.text or (empty and whole.sends_system):
            total += MESSAGE_OVERHEAD + system.tokens(counter)
        if user.text or (empty and whole.sends_user):
            total += MESSAGE_OVERHEAD + user.tokens(counter)
        if given[-1] and closing.text:
            total += MESSAGE_OVERHEAD + closing.tokens(counter)
        return total

    def sections(self, given: Sequence[int]) -> list[Section]:
        """Return the messages that remain with so many units of each sibling."""
        sections: list[Section] = []
        first = 0
        for number, section in enumerate(self.whole.sections):
            size = len(section.fragments)
            counts = tuple(given[first : first + size])
            key = (number, counts)
            known = self._sections.get(key)
            if known is None:
                fragments = [
                    Fragment(fragment.path, fragment.prompt, node.render(count), None)
                    for (fragment, node), count in zip(self.leaves[first : first + size], counts, strict=True)
                ]
                known = self._sections[key] = Section(fragments, section.label)
            sections.append(known)
            first += size
        return sections

    def _build(self, given: Sequence[int]) -> Composition:
        whole = self.whole
        shown = [
            *given[:-2],
            self.history.steps(given[-2], whole.layers.history_block, self.bounds[-2].least),
            given[-1],
        ]
        trims = {
            path: Trim(kept, bounds.whole + node.lost, self._why(path, node, bounds, count, kept))
            for (path, node), bounds, count, kept in zip(self.nodes, self.bounds, given, shown, strict=True)
            if kept < bounds.whole + node.lost
        }
        conversation, intermediate = self.history.keep(shown[-2]), self.traffic.keep(shown[-1])
        return Composition(
            whole.context,
            whole.layers,
            self.sections(given),
            whole.counter,
            whole.declarations,
            conversation=conversation,
            intermediate=intermediate,
            trims=trims,
            budget=self.budget,
            skipped=(len(whole.conversation) - len(conversation), len(whole.intermediate) - len(intermediate)),
        )

    def _why(self, path: str, node: Node, bounds: Bounds, given: int, kept: int) -> str:
        cut = node.size.cut
        unit = "steps" if path in ("conversation", "intermediate") else "items" if cut == "items" else "pieces of text"
        whole = bounds.whole + node.lost
        share = f"{kept} of {whole} {unit} kept" if kept else f"{whole} {unit} dropped"
        if given >= bounds.whole:
            return f"{share}: a prompt inside has a max"
        if given >= bounds.most:
            return f"{share}: its max is {node.size.max} tokens"
        assert self.budget is not None
        return f"{share}: the budget is {self.budget.tokens} tokens"

    def _infeasible(self, limit: int) -> str:
        given = self.given(self.required)
        least = [(path, node.tokens(count)) for (path, node), count in zip(self.nodes, given, strict=True)]
        needs = [f"{path} {tokens}" for path, tokens in least if tokens]  # text around children that may go needs some
        if self.fixed:
            needs.append(f"tools {self.fixed}")
        return (
            f"what must be sent needs {self.tokens(self.required)} tokens and the budget is {limit}: "
            f"{', '.join(needs)}; "
            "raise the budget, lower a min, or give a prompt a cut that lets it shrink"
        )
