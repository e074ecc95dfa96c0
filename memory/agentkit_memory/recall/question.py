"""`Question`: the terms of a question, and the speakers, dates and kind of answer that it names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentkit_memory.recall.dates import When, find_dates
from agentkit_memory.terms.analysis import STOP_TERMS, count_terms, split_words
from agentkit_memory.terms.bm25_vectors import indexed_text, weights_of_terms

if TYPE_CHECKING:
    from agentkit_memory.store.stored_item import StoredItem

MAX_CHARACTERS = 4_000
"""Maximum characters of a question. Of a longer question, the start and the end are used, because pasted text is
usually in the middle."""

_ROLES = {"user": frozenset({"i", "me", "my", "mine", "myself"}), "assistant": frozenset({"you", "your", "yours"})}

_ASKS_TIME = re.compile(
    r"\b(?:when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long ago)\b", re.I
)
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|often|old|long|far|big|tall|high|hot)\b", re.I)
QUESTION_MARKS = ("?", "？", "؟", "⸮", "\u037e")
"""Question marks of all scripts."""
_INTERROGATIVE = re.compile(
    r"\A\W*+(?:who|whom|whose|where|which|why|what(?! an?\b)|(?:how|when)\s++(?:is|are|was|were|do|does|did|can|could"
    r"|will|would|should|has|have|had|many|much|long|often|old|far|big|tall))\b",
    re.IGNORECASE,
)
_AUXILIARY = re.compile(
    r"\A\W*+(?:am|is|are|was|were|do|does|did|can|could|will|would|shall|should|has|have|had|how|when)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, analysed."""

    text: str
    """Text to embed; after `among`, without the names of speakers."""
    all_terms: Mapping[int, float]
    """Count of each term."""
    terms: Mapping[int, float]
    """Count of each term; after `among`, without the names of speakers."""
    words: tuple[str, ...]
    """The words of the question, each once, in order."""
    now: float
    """Time of the question, in seconds since 1970."""
    dates: tuple[When, ...] = ()
    asks_time: bool = False
    asks_number: bool = False
    speakers: frozenset[str] = frozenset()
    """Speakers of hits, if the question names them."""
    cached_weights: dict[str, Mapping[int, float]] = field(default_factory=dict, repr=False, compare=False)
    """Cache of `weights_in`, by the id of the item."""

    @classmethod
    def of(cls, text: str, now: float) -> Question:
        """Analyse a question; names of speakers are ordinary terms until `among` is called."""
        if len(text) > MAX_CHARACTERS:
            half = MAX_CHARACTERS // 2
            text = f"{text[:half]} {text[-half:]}"
        dates = find_dates(text, now)
        all_terms, words = count_terms(text)[0], split_words(text)
        return cls(
            text,
            all_terms,
            all_terms,
            tuple(dict.fromkeys(words)),
            now,
            dates,
            _ASKS_TIME.search(text) is not None,
            _ASKS_NUMBER.search(text) is not None,
        )

    @property
    def has_only_stop_words(self) -> bool:
        """True if no term of the question is in the index."""
        return {*STOP_TERMS.values()} >= self.all_terms.keys()

    def weights_in(self, item: StoredItem) -> Mapping[int, float]:
        """Return the BM25 weights of the question's terms in an item, times their counts in the question."""
        weights = self.cached_weights.get(item.id)
        if weights is None:
            weights = self.cached_weights[item.id] = weights_of_terms(
                indexed_text(item.title, item.text), self.all_terms
            )
        return weights

    def learn(self, weights: Mapping[str, Mapping[int, float]]) -> None:
        """Add weights of the question's terms to the cache, by item id, so that texts need not be analysed."""
        all_terms = self.all_terms
        if all(times == 1.0 for times in all_terms.values()):
            self.cached_weights.update(weights)
            return
        for item, terms in weights.items():
            self.cached_weights[item] = {term: all_terms[term] * weight for term, weight in terms.items()}

    def among(self, speakers: Iterable[str]) -> Question:
        """Return the question with the speakers that it names, and without their names among its terms.

        A speaker is named by all words of the name, the user by "I" and "my", the assistant by "you". A question that
        consists of names is not changed. A question that names all of these speakers prefers no speaker.
        """
        all_speakers = set(speakers)
        named = {each for each in all_speakers if self._names(each)}
        if not named:
            return self
        names = {word for each in named - _ROLES.keys() for word in split_words(each)}
        name_terms = {term for word in names for term in count_terms(word)[0]}
        terms = {term: times for term, times in self.terms.items() if term not in name_terms}
        # A question that consists of names is about the persons.
        if not terms:
            return self
        preferred = frozenset(named)
        if named == all_speakers:
            preferred = frozenset()
        return replace(self, text=_without_names(self.text, names), terms=terms, speakers=preferred)

    def _names(self, speaker: str) -> bool:
        pronouns = _ROLES.get(speaker)
        if pronouns is not None:
            return not pronouns.isdisjoint(self.words)
        name = split_words(speaker)
        return bool(name) and all(word in self.words for word in name)


def _without_names(text: str, names: Collection[str]) -> str:
    """Return a text without names, which would move its vector towards every message that addresses the person."""
    if not names:
        return text
    longest_first = sorted(map(re.escape, names), key=lambda name: (-len(name), name))
    rest = re.sub(rf"\b(?:{'|'.join(longest_first)})(?:['’]s)?\b", " ", text, flags=re.I)
    return " ".join(rest.split()) or text


def asks(text: str, question: str) -> bool:
    """Return True if a text with the words of the question is a question too, and not a statement."""
    if text.rstrip().endswith(QUESTION_MARKS):
        return True
    marked = question.rstrip().endswith(QUESTION_MARKS)
    return bool(_INTERROGATIVE.match(text) or (marked and _AUXILIARY.match(text)))
