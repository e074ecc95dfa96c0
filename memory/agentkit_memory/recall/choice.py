"""Which of the scored candidates are used: the best, each thing once, not all alike, within the limits."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.recall.question import Question
from agentkit_memory.recall.recall_policy import RecallPolicy
from agentkit_memory.store.records import IMAGE, TURN
from agentkit_memory.terms.analysis import split_words
from agentkit_prompts.ranking.mmr import mmr
from agentkit_prompts.tokens.counter import ESTIMATE

__all__ = ["choose", "copies", "ranked", "relevance"]

_MIN_SHARED = 0.9
"""Share of their words that two texts have in common when one of them is enough."""
_NEGATIONS = frozenset({"no", "not", "never", "nor", "none", "without", "cannot", "t"})
"""Words that reverse a meaning, however alike the rest is."""
_MAX_DIVERSE = 64
_SCORE = attrgetter("score")
_TWIN = "same text as"
_QUESTION_MARKS = ("?", "？", "؟", "⸮", "\u037e")
_INTERROGATIVE = re.compile(
    r"\W*(?:who|whom|whose|where|which|why|what(?! an?\b)|(?:how|when)\s+(?:is|are|was|were|do|does|did|can|could"
    r"|will|would|should|has|have|had|many|much|long|often|old|far|big|tall))\b",
    re.IGNORECASE,
)
_AUXILIARY = re.compile(
    r"\W*(?:am|is|are|was|were|do|does|did|can|could|will|would|shall|should|has|have|had|how|when)\b", re.IGNORECASE
)
_SIGNS = re.compile(
    r"(?<=\w)[#%+]+|(?<!\w)-(?=\d)|(?<=\d)\s?[-*/]\s?(?=\d)|!=|(?<!^)[<>+]|[$=]|[^\x00-\x7f\w\s]", re.MULTILINE
)
"""Signs that are part of a statement; `#`, `-`, `+` and `>` at the beginning of a line are Markdown."""
_SYMBOLS = frozenset({"Sm", "Sc", "So"})  # of mathematics, of currencies, and others, such as emoji
_DASHES = {ord("−"): "-", ord("–"): "-"}


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
    asked = _Wording(question.words, question.text)
    kept: list[tuple[_Wording, ScoredItem]] = []
    known: set[str] = set()  # the words of all that are kept: a text with many others is like none of them
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
        wording = _Wording(split_words(each.item.text) if policy.collapse and not is_image else (), each.item.text)
        if policy.collapse and is_image:
            if (known_as := shown.setdefault(images.get(each.id, each.id), each.id)) != each.id:
                each.reason = f"{_TWIN} {known_as}"
                continue
        elif policy.collapse:
            if each.item.kind == TURN and _alike(wording, asked) and _asks(each.item.text, question.text):
                each.reason = "repeats the question"
                continue
            if len(known & wording.words) >= _MIN_SHARED * len(wording.words):
                twin = next((other for there, other in kept if _alike(wording, there)), None)
                if twin is not None:
                    each.reason = f"{_TWIN} {twin.id}"
                    continue
        size = 0 if tokens is None else ESTIMATE.count(each.item.text)
        if tokens is not None and size > tokens:
            each.reason = f"has {size} tokens, {tokens} were left"
            continue
        if tokens is not None:
            tokens -= size
        if not is_image:
            kept.append((wording, each))
        known |= wording.words
        left[is_fact] -= 1
        each.used, each.reason = True, each.why()
        used.append(each)
    return used


def copies(order: Iterable[ScoredItem]) -> int:
    """Return how many candidates were not used because a better one has the same text."""
    return sum(each.reason.startswith(_TWIN) for each in order)


def _asks(text: str, question: str) -> bool:
    """Return whether a text with the words of the question asks it, too, rather than stating it."""
    if text.rstrip().endswith(_QUESTION_MARKS):
        return True
    marked = question.rstrip().endswith(_QUESTION_MARKS)
    return bool(_INTERROGATIVE.match(text) or (marked and _AUXILIARY.match(text)))


class _Wording:
    """The words of a text."""

    __slots__ = ("_all", "text", "words")

    def __init__(self, words: Sequence[str], text: str = "") -> None:
        self._all = words
        self.words = frozenset(words)
        self.text = text

    @property
    def ordered(self) -> list[str]:
        """Each word once, in the order in which they stand first."""
        return [*dict.fromkeys(self._all)]

    def signs(self) -> list[str]:
        """Return what is no word and yet says something, in order: of `C++ costs -5 €` it is `++`, `-` and `€`."""
        found = _SIGNS.findall(unicodedata.normalize("NFKC", self.text).translate(_DASHES))
        return [each.strip() for each in found if each.isascii() or unicodedata.category(each) in _SYMBOLS]


def _alike(one: _Wording, other: _Wording) -> bool:
    """Return whether two texts have the same words but for a few, in the same order."""
    one_size, other_size = len(one.words), len(other.words)
    if min(one_size, other_size) < _MIN_SHARED * max(one_size, other_size):
        return False
    shared = one.words & other.words
    if len(shared) < _MIN_SHARED * (one_size + other_size - len(shared)):
        return False
    if one.text != other.text and one.signs() != other.signs():
        return False
    if len(shared) == one_size == other_size:
        return one.ordered == other.ordered
    apart = one.words ^ other.words
    if not apart.isdisjoint(_NEGATIONS) or any(char.isdigit() for word in apart for char in word):
        return False
    # "Alice lent Bob" and "Bob lent Alice" differ by the order alone.
    return [word for word in one.ordered if word in shared] == [word for word in other.ordered if word in shared]


def _diverse(order: Sequence[ScoredItem], diversity: float) -> list[ScoredItem]:
    head = order[:_MAX_DIVERSE]
    texts = [frozenset(split_words(each.item.text)) for each in head]

    def similarity(one: int, other: int) -> float:
        return len(texts[one] & texts[other]) / (len(texts[one] | texts[other]) or 1)

    chosen = mmr([relevance(each.score) for each in head], similarity, len(head), diversity=diversity)
    return [head[number] for number in chosen] + list(order[_MAX_DIVERSE:])
