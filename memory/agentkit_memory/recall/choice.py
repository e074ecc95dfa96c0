"""Which of the scored candidates are used: the best, each thing once, not all alike, within the limits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.near_duplicates import SAME_TEXT, Kept, Wording, alike
from agentkit_memory.recall.question import Question, asks
from agentkit_memory.recall.recall_policy import RecallPolicy
from agentkit_memory.store.records import IMAGE, TURN
from agentkit_memory.terms.analysis import split_words
from agentkit_prompts.ranking.mmr import mmr
from agentkit_prompts.tokens.counter import ESTIMATE

__all__ = ["choose", "ranked", "relevance"]

_MAX_DIVERSE = 64
_SCORE = attrgetter("score")


def relevance(score: float) -> float:
    """Return a score as a number between 0 and 1; 0.5 is the average candidate."""
    return 1.0 / (1.0 + math.exp(-max(-700.0, score)))


def ranked(pool: Pool, diversity: float = 0.0) -> list[ScoredItem]:
    """Return the candidates, the best first; equal ones in the order of their places.

    With diversity, those that differ from the ones before them come earlier.
    """
    order: list[ScoredItem] = []
    for _, equal in groupby(sorted(pool.candidates, key=_SCORE, reverse=True), _SCORE):
        some = [*equal]
        if len(some) > 1:
            some.sort(key=lambda each: (each.item.uri, *each.place, each.item.start, each.id))
        order += some
    return _diverse(order, diversity) if diversity else order


def choose(
    question: Question,
    order: Sequence[ScoredItem],
    policy: RecallPolicy,
    limit: int,
    roles: Collection[str] | None = None,
    images: Mapping[str, str] = MappingProxyType({}),
) -> list[ScoredItem]:
    """Choose at most `limit` facts and `limit` others, best first; set on each candidate why it was used or not.

    Of turns, only those of `roles` are used, if there are any. `images` has the hash of each candidate that is an
    image: only the same image is a copy of one.
    """
    shown: dict[str, str] = {}
    left = {True: limit, False: limit}
    tokens = policy.tokens
    used: list[ScoredItem] = []
    asked = Wording(question.words, question.text)
    kept = Kept()
    below = f"below the first {limit}"
    for each in order:
        each.used = False
        is_fact = each.slot == "knowledge"
        if not left[is_fact]:
            each.reason = below
            continue
        if not each.is_of(roles):
            each.reason = f"from the {each.item.role}, and only messages of {', '.join(roles or ())} were asked for"
            continue
        if not each.retrieved and each.score <= 0.0:
            each.reason = "neighbour of a hit, below the average candidate"
            continue
        is_image = each.item.kind == IMAGE
        wording = Wording(split_words(each.item.text) if policy.collapse and not is_image else (), each.item.text)
        if policy.collapse and is_image:
            if (known_as := shown.setdefault(images.get(each.id, each.id), each.id)) != each.id:
                each.reason = f"{SAME_TEXT} {known_as}"
                continue
        elif policy.collapse:
            if each.item.kind == TURN and alike(wording, asked) and asks(each.item.text, question.text):
                each.reason = "repeats the question"
                continue
            if (twin := kept.twin_of(wording)) is not None:
                each.reason = f"{SAME_TEXT} {twin.id}"
                continue
        size = 0 if tokens is None else ESTIMATE.count(each.item.text)
        if tokens is not None and size > tokens:
            each.reason = f"has {size} tokens, {tokens} were left"
            continue
        if tokens is not None:
            tokens -= size
        if not is_image:
            kept.add(wording, each)
        left[is_fact] -= 1
        each.used, each.reason = True, each.why()
        used.append(each)
    return used


def _diverse(order: Sequence[ScoredItem], diversity: float) -> list[ScoredItem]:
    head = order[:_MAX_DIVERSE]
    texts = [frozenset(split_words(each.item.text)) for each in head]

    def similarity(one: int, other: int) -> float:
        return len(texts[one] & texts[other]) / (len(texts[one] | texts[other]) or 1)

    chosen = mmr([relevance(each.score) for each in head], similarity, len(head), diversity=diversity)
    return [head[number] for number in chosen] + list(order[_MAX_DIVERSE:])
