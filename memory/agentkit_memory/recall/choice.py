"""Which of the scored candidates are used: the best, each thing once, not all alike, within the limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentkit_memory.recall.candidates import Considered, Pool
from agentkit_memory.recall.policy import RecallPolicy
from agentkit_memory.recall.question import Question
from agentkit_memory.records import TURN
from agentkit_prompts.bm25 import words
from agentkit_prompts.diversity import mmr
from agentkit_prompts.tokens import ESTIMATE

__all__ = ["choose", "ranked", "relevance"]

_ALIKE = 0.9
"""Of two texts that share this part of their words, one will do."""
_TELLING = frozenset({"no", "not", "never", "nor", "none", "without", "cannot", "t"})
"""Words that turn a meaning around, however alike the rest is."""
_MOST_DIVERSE = 64


def relevance(score: float) -> float:
    """Return a score as a number between 0 and 1; 0.5 is the average candidate."""
    return 1.0 / (1.0 + math.exp(-max(-700.0, score)))


def ranked(pool: Pool) -> list[Considered]:
    """Return the candidates, the best first; equal ones in the order of their places."""
    return sorted(pool.candidates, key=lambda each: (-each.score, each.item.uri, *each.place, each.id))


def choose(question: Question, order: Sequence[Considered], policy: RecallPolicy, limit: int) -> list[Considered]:
    """Choose at most `limit` facts and `limit` others, best first, and say of each candidate why it was used or not."""
    if policy.diversity:
        order = _diverse(order, policy.diversity)
    left = {True: limit, False: limit}
    tokens = policy.tokens
    used: list[Considered] = []
    said: list[tuple[frozenset[str], Considered]] = []
    for each in order:
        is_fact = each.slot == "knowledge"
        if not left[is_fact]:
            each.reason = f"below the first {limit}"
            continue
        if not each.arms and each.score <= 0.0:
            each.reason = "stands next to a hit, and says less than the average candidate"
            continue
        its_words = frozenset(words(each.item.text)) if policy.collapse else frozenset()
        if policy.collapse:
            if each.item.kind == TURN and _alike(its_words, question.words):
                each.reason = "says what is asked, and no more"
                continue
            twin = next((other for there, other in said if _alike(its_words, there)), None)
            if twin is not None:
                each.reason = f"says the same as {twin.id}"
                continue
        size = 0 if tokens is None else ESTIMATE.count(each.item.text)
        if tokens is not None and size > tokens:
            each.reason = f"has {size} tokens, {tokens} were left"
            continue
        if tokens is not None:
            tokens -= size
        said.append((its_words, each))
        left[is_fact] -= 1
        each.used, each.reason = True, each.why()
        used.append(each)
    return used


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    if one == other:
        return True
    if min(len(one), len(other)) < _ALIKE * max(len(one), len(other)):
        return False
    apart = one ^ other
    if len(one & other) < _ALIKE * len(one | other):
        return False
    return apart.isdisjoint(_TELLING) and not any(char.isdigit() for word in apart for char in word)


def _diverse(order: Sequence[Considered], diversity: float) -> list[Considered]:
    head = order[:_MOST_DIVERSE]
    texts = [frozenset(words(each.item.text)) for each in head]

    def similarity(one: int, other: int) -> float:
        return len(texts[one] & texts[other]) / (len(texts[one] | texts[other]) or 1)

    chosen = mmr([relevance(each.score) for each in head], similarity, len(head), diversity=diversity)
    return [head[number] for number in chosen] + list(order[_MOST_DIVERSE:])
