"""Volatility of prompts: how often their text changes. A provider caches a request up to the first changed text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentkit_prompts.tree.prompt import BasePrompt, Volatility

RANKS: dict[Volatility, int] = {"static": 0, "session": 1, "turn": 2}
"""Rank of each volatility; a higher rank changes more often."""
_SESSION = frozenset({"tools", "skills", "examples", "extra"})
"""Context names that usually do not change during a session."""


class VolatilityWarning(UserWarning):
    """A prompt that changes often is before stable text, so that no prompt cache can store the stable text."""


def volatility_of(prompt: BasePrompt) -> Volatility:
    """Return the declared volatility of a prompt, else the volatility inferred from the names that it and its children
    read.
    """
    if prompt.volatility is not None:
        return prompt.volatility
    worst = _own_volatility(prompt)
    for _, child in prompt.children:
        volatility = volatility_of(child)
        if RANKS[volatility] > RANKS[worst]:
            worst = volatility
    return worst


def _own_volatility(prompt: BasePrompt) -> Volatility:
    """Return the volatility of the text of a prompt without its children."""
    reads = prompt.reads
    # The names that the children read determine the volatility of the children.
    if prompt.children:
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
    """Return advice on the prompts of `system` that change more often than the text after them.

    A prompt cache ends at the first such prompt.
    """
    advice: list[str] = []
    worst: Volatility = "static"
    culprit = ""
    for path, prompt in _in_order(prompts):
        volatility = volatility_of(prompt)
        if RANKS[volatility] > RANKS[worst]:
            worst, culprit = volatility, f"{path} ({prompt.label})"
        elif RANKS[volatility] < RANKS[worst]:
            advice.append(f"{culprit} changes more often than {path} ({prompt.label}): move it after that prompt")
    if worst == "turn" and conversation:
        advice.append(
            f"{culprit} changes every turn and is before the conversation, so no cache can store the conversation: "
            'put it into before_input or, if it does not change during a session, set volatility="session"'
        )
    return advice


def _in_order(prompts: Iterable[tuple[str, BasePrompt]]) -> Iterator[tuple[str, BasePrompt]]:
    """Yield the prompts to compare, in the order they are sent.

    These prompts are leaves, and wrappers that declare a volatility or change more often than their children.
    """
    for path, prompt in prompts:
        inner = [RANKS[volatility_of(child)] for _, child in prompt.children]
        if not inner or prompt.volatility is not None or RANKS[volatility_of(prompt)] > max(inner):
            yield path, prompt
        else:
            yield from _in_order((f"{path}.{step}", child) for step, child in prompt.children)
