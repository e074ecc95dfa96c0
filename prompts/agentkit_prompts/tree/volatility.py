"""How often a prompt changes: a provider caches a request up to the first prompt that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit_prompts.tree.prompt import BasePrompt, Volatility

__all__ = ["RANKS", "VolatilityWarning", "volatile_before_stable", "volatility_of"]

RANKS: dict[Volatility, int] = {"static": 0, "session": 1, "turn": 2}
"""How volatile each class is, to compare them."""
_SESSION = frozenset({"tools", "examples", "extra"})
"""Context names that usually stay the same for a whole session."""


class VolatilityWarning(UserWarning):
    """A prompt that changes often is before a stable one: no prompt cache can keep what follows it."""


def volatility_of(prompt: BasePrompt) -> Volatility:
    """Return how often the text changes: as declared, or inferred from what the prompt and its children read."""
    if prompt.volatility is not None:
        return prompt.volatility
    worst = _own_volatility(prompt)
    for _, child in prompt.children:
        volatility = volatility_of(child)
        if RANKS[volatility] > RANKS[worst]:
            worst = volatility
    return worst


def _own_volatility(prompt: BasePrompt) -> Volatility:
    """Return how often the text of a prompt changes without its children."""
    reads = prompt.reads
    if prompt.children:  # what they read is theirs
        reads = frozenset(prompt.template.names) - prompt.supplies
    if reads is None:
        return "turn"
    names = reads - {"locale"}
    if not names <= _SESSION:
        return "turn"
    # The nonce of a fence belongs to the session.
    if names or prompt.fence:
        return "session"
    return "static"


def volatile_before_stable(prompts: Iterable[tuple[str, BasePrompt]], *, conversation: bool) -> list[str]:
    """Return advice on the prompts of `system` that change more often than what follows them.

    A prompt cache ends at the first of them.
    """
    advice: list[str] = []
    worst: Volatility = "static"
    culprit = ""
    for path, prompt in _in_order(prompts):
        volatility = volatility_of(prompt)
        if RANKS[volatility] > RANKS[worst]:
            worst, culprit = volatility, f"{path} ({prompt.label})"
        elif RANKS[volatility] < RANKS[worst]:
            advice.append(f"{culprit} changes more often than {path} ({prompt.label}): put it after that one")
    if worst == "turn" and conversation:
        advice.append(
            f"{culprit} changes every turn and is before the conversation, so no cache can keep the conversation: "
            'put it into before_input or, if it stays the same during a session, give it volatility="session"'
        )
    return advice


def _in_order(prompts: Iterable[tuple[str, BasePrompt]]) -> Iterator[tuple[str, BasePrompt]]:
    """Yield the prompts whose volatility counts, in the order they are sent.

    These are leaves, and prompts around others that declare a volatility or change more often than their children.
    """
    for path, prompt in prompts:
        inner = [RANKS[volatility_of(child)] for _, child in prompt.children]
        if not inner or prompt.volatility is not None or RANKS[volatility_of(prompt)] > max(inner):
            yield path, prompt
        else:
            yield from _in_order((f"{path}.{step}", child) for step, child in prompt.children)
