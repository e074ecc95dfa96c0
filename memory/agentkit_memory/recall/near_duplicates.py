"""Near-duplicates: texts with the same words but for a few, in the same order, of which a recall uses one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from agentkit_memory.recall.candidates import ScoredItem

__all__ = ["SAME_TEXT", "Kept", "Wording", "alike", "count_copies"]

SAME_TEXT = "same text as"
"""How the reason begins for which a copy is not used."""
_MIN_SHARED = 0.9
"""Share of their words that two texts have in common when one of them is enough."""
_NEGATIONS = frozenset({"no", "not", "never", "nor", "none", "without", "cannot", "t"})
"""Words that reverse a meaning, however alike the rest is."""
_SIGNS = re.compile(
    r"(?<=\w)[#%+]+|(?<!\w)-(?=\d)|(?<=\d)\s?[-*/]\s?(?=\d)|!=|(?<!^)[<>+]|[$=]|[^\x00-\x7f\w\s]", re.MULTILINE
)
"""Signs that are part of a statement; `#`, `-`, `+` and `>` at the beginning of a line are Markdown."""
_SYMBOLS = frozenset({"Sm", "Sc", "So"})  # of mathematics, of currencies, and others, such as emoji
_DASHES = {ord("−"): "-", ord("–"): "-"}


class Wording:
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


def alike(one: Wording, other: Wording) -> bool:
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


class Kept:
    """The texts that are used already."""

    def __init__(self) -> None:
        self._kept: list[tuple[Wording, ScoredItem]] = []
        self._words: set[str] = set()
        """Those of all of them: a text with many others is like none of them."""

    def add(self, wording: Wording, item: ScoredItem) -> None:
        self._kept.append((wording, item))
        self._words |= wording.words

    def twin_of(self, wording: Wording) -> ScoredItem | None:
        """Return the first of them that a text is a copy of."""
        if len(self._words & wording.words) < _MIN_SHARED * len(wording.words):
            return None
        return next((item for there, item in self._kept if alike(wording, there)), None)


def count_copies(order: Iterable[ScoredItem]) -> int:
    """Return how many candidates were not used because a better one has the same text."""
    return sum(each.reason.startswith(SAME_TEXT) for each in order)
