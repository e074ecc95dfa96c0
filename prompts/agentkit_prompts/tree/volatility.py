"""How often a prompt changes: a provider caches a request up to the first prompt that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit_prompts.tree.prompt import RANKS, BasePrompt

__all__ = ["VolatilityWarning", "volatile_before_stable"]


class VolatilityWarning(UserWarning):
    """A prompt that changes often stands before one that does not: no prompt cache can keep what follows it."""


def volatile_before_stable(prompts: Iterable[tuple[str, BasePrompt]], *, conversation: bool) -> list[str]:
    """Say which prompts of `system` change more often than what is sent after them, which breaks prompt caches."""
    found: list[str] = []
    worst = 0
    culprit = ""
    for path, prompt in _in_order(prompts):
        rank = RANKS[prompt.changes]
        if rank > worst:
            worst, culprit = rank, f"{path} ({prompt.label})"
        elif rank < worst:
            found.append(f"{culprit} changes more often than {path} ({prompt.label}): put it after that one")
    if worst == RANKS["turn"] and conversation:
        found.append(
            f"{culprit} changes every turn and stands before the conversation, so no cache can keep the "
            "conversation: put it into before_input, or, where it stays the same through a session, give it "
            'volatility="session"'
        )
    return found


def _in_order(prompts: Iterable[tuple[str, BasePrompt]]) -> Iterator[tuple[str, BasePrompt]]:
    """Yield the prompts whose volatility counts, in the order they are sent: leaves, and prompts around others that
    declare a volatility or change more often than their children.
    """
    for path, prompt in prompts:
        inner = max((RANKS[child.changes] for _, child in prompt.children), default=-1)
        if prompt.volatility is not None or RANKS[prompt.changes] > inner:
            yield path, prompt
        else:
            yield from _in_order((f"{path}.{name}", child) for name, child in prompt.children)
