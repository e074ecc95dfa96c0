"""BM25 with the scores of `rank_bm25` and the words of NLTK, so that evaluations select the rows of OpenCompass."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add

from agentkit_prompts.ranking.bm25 import BM25

_FLOOR = 0.25
"""Share of the mean IDF that replaces the IDF of terms in more than half of the texts."""

_SINGLE = r"?!;@#$%&*`()\[\]{}<>«»“”‘’„\u2012-\u2015"
"""Characters that are separate terms."""
_TERM = re.compile(
    rf"(?:[^\s.,:'{_SINGLE}-]|[.](?![.])|[,:](?=\d)|-(?!-)|'(?!'))+|[.]{{2,}}|--|''|`+|[,:{_SINGLE}]",
)
_OPENING_QUOTE = re.compile(r'(?:\A|(?<=[ (\[{<]))"')
_OPENING = re.compile(r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
_ENDING = re.compile(r"(?i)(?<=[^'])(?:n't|'(?:s|m|d|ll|re|ve)|')\Z")
_STOP = re.compile(
    r"(?<=[^\s.])(?<!\b[A-Za-z])(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)[.](?=['\"»”’)\]}>]*+(?:\s++[^\sa-z]|\s*+\Z))"
)
"""A full stop that ends a sentence."""


def terms(text: str) -> list[str]:
    """Return the words and punctuation of a text as `nltk.word_tokenize` does; the case of letters is unchanged.

    A rule finds the ends of sentences, instead of the model of abbreviations in NLTK.
    """
    words: list[str] = []
    text = _OPENING.sub("' ", _OPENING_QUOTE.sub("``", text).replace('"', "''"))
    for term in _TERM.findall(_STOP.sub(" . ", text)):
        if "'" in term and (ending := _ENDING.search(term)) is not None:
            words += (term[: ending.start()], ending[0])
        else:
            words.append(term)
    return words


class Okapi(BM25):
    """Index of texts with the parameters of `BM25Okapi`: k1 = 1.5, b = 0.75, epsilon = 0.25.

    Args:
        texts: Texts to rank.
        tokenize: Function that splits text into terms.
    """

    __slots__ = ("_idf_of",)

    k1 = 1.5

    def __init__(self, texts: Iterable[str], tokenize: Callable[[str], Sequence[str]] = terms) -> None:
        super().__init__(texts, tokenize=tokenize)
        counts = {term: len(postings) for term, postings in self._postings.items()}
        idf = {term: math.log(self.size - n + 0.5) - math.log(n + 0.5) for term, n in counts.items()}
        # Not `sum`, which rounds less since Python 3.12: scores that are equal in `rank_bm25` must be equal here.
        total = reduce(add, idf.values(), 0.0)
        floor = _FLOOR * total / len(idf) if idf else 0.0
        self._idf_of = {term: floor if value < 0 else value for term, value in idf.items()}

    def scores(self, query: str) -> list[float]:
        """Return the score of each text; it can be negative."""
        scores = [0.0] * self.size
        # In the order of the terms, so that the sums equal the sums of `rank_bm25` to the last digit.
        for term in self._tokenize(query):
            idf = self._idf_of.get(term, 0.0)
            for position, score in self._postings.get(term, ()):
                scores[position] += idf * score
        return scores
