"""Selectors that look at the query: by length, by keywords, by meaning, and by meaning with variety."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias

from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.errors import PromptError
from agentkit_prompts.ranking.bm25 import BM25, words
from agentkit_prompts.ranking.embedder import Embedder, Vectors, cosine, drive
from agentkit_prompts.ranking.mmr import mmr
from agentkit_prompts.tokens.counter import ESTIMATE, TokenCounter

__all__ = ["KeywordSelector", "LengthSelector", "MMRSelector", "VectorSelector"]

_Selection: TypeAlias = tuple[Example, ...]
_MOST_INDEXES = 16


class LengthSelector:
    """As many whole examples, in order, as fit `max_tokens` less the tokens of the query.

    Args:
        max_tokens: What the query and the inputs and outputs of the examples may take together.
        counter: Counts them; a fast estimate when not given.
    """

    __slots__ = ("counter", "max_tokens")

    def __init__(self, max_tokens: int, counter: TokenCounter = ESTIMATE) -> None:
        self.max_tokens = _whole("LengthSelector: max_tokens", max_tokens)
        self.counter = counter

    def select(self, query: str, examples: Sequence[Example]) -> _Selection:
        """Return the first examples, up to the first that does not fit."""
        count = self.counter.count
        left = self.max_tokens - count(query)
        for number, example in enumerate(examples):
            left -= count(example.input) + count(example.output)
            if left < 0:
                return tuple(examples[:number])
        return tuple(examples)


class KeywordSelector:
    """The `k` examples whose input shares most with the query by BM25, best first; ties stay in order.

    Args:
        k: How many; all, when there are fewer. Examples without a common word fill up in order, scored 0.
        tokenize: Cuts text into terms; Unicode words, and pairs of characters for CJK.
    """

    __slots__ = ("_pools", "k", "tokenize")

    def __init__(self, k: int = 4, *, tokenize: Callable[[str], Sequence[str]] = words) -> None:
        self.k = _whole("KeywordSelector: k", k)
        self.tokenize = tokenize
        self._pools: dict[tuple[str, ...], BM25] = {}

    def index(self, examples: Sequence[Example]) -> BM25:
        """Return the index of a pool, made when its texts are first seen."""
        texts = tuple([example.input for example in examples])
        index = self._pools.get(texts)
        if index is None:
            if len(self._pools) >= _MOST_INDEXES:
                self._pools.clear()
            index = self._pools[texts] = BM25(texts, tokenize=self.tokenize)
        return index

    def select(self, query: str, examples: Sequence[Example]) -> _Selection:
        """Return the best examples with their scores."""
        return _best(examples, self.index(examples).scores(query), self.k)


class VectorSelector:
    """The `k` examples whose input is nearest to the query by cosine, best first; ties stay in order.

    Each example is embedded once. With an async embedder the selection has to be awaited: see `prepare`.

    Args:
        embedder: Makes the vectors. A sync one is called in a thread by `prepare`.
        k: How many; all, when there are fewer.
    """

    __slots__ = ("_vectors", "blocking", "k")

    blocking: bool
    """Whether selecting may wait for something without awaiting it."""

    def __init__(self, embedder: Embedder, k: int = 4) -> None:
        self.k = _whole("VectorSelector: k", k)
        self._vectors = Vectors(embedder)
        self.blocking = not inspect.iscoroutinefunction(embedder.embed)

    def select(self, query: str, examples: Sequence[Example]) -> _Selection | Awaitable[_Selection]:
        """Return the nearest examples with their cosines; the first ones, unscored, for a query without text.

        Raises:
            PromptError: The embedder failed, or returned something that cannot be compared.
        """
        if not self.k or not query.strip():
            return tuple(examples[: self.k])
        return drive(self._steps(query, tuple(examples)))

    def _steps(self, query: str, examples: _Selection) -> Generator[Any, Any, _Selection]:
        if not examples:
            return ()
        asked, vectors = yield from self._vectors.steps(query, [example.input for example in examples])
        return _best(examples, [cosine(asked, vector) for vector in vectors], self.k)


class MMRSelector:
    """`k` examples that are relevant and differ from each other, by maximal marginal relevance, in the order chosen.

    Examples keep the score of their relevance. With an async embedder the selection has to be awaited: see `prepare`.

    Args:
        embedder: Relevance and likeness are cosines of its vectors; None takes keywords instead (BM25, relative to the
            best, and the cosine of weighted terms).
        k: How many; all, when there are fewer.
        diversity: 0.0 looks at relevance alone, 1.0 at being different alone.
    """

    __slots__ = ("_keywords", "_vectors", "blocking", "diversity", "k")

    blocking: bool
    """Whether selecting may wait for something without awaiting it."""

    def __init__(self, embedder: Embedder | None = None, k: int = 4, *, diversity: float = 0.5) -> None:
        if not 0 <= diversity <= 1:
            raise PromptError(f"MMRSelector: diversity must be from 0.0 to 1.0, got {diversity}")
        self.k = _whole("MMRSelector: k", k)
        self.diversity = diversity
        self._keywords = KeywordSelector(k)
        self._vectors = Vectors(embedder) if embedder is not None else None
        self.blocking = embedder is not None and not inspect.iscoroutinefunction(embedder.embed)

    def select(self, query: str, examples: Sequence[Example]) -> _Selection | Awaitable[_Selection]:
        """Return the chosen examples with their relevance; the first ones, unscored, for a query without text.

        Raises:
            PromptError: The embedder failed, or returned something that cannot be compared.
        """
        if not self.k or not query.strip():
            return tuple(examples[: self.k])
        if self._vectors is None:
            index = self._keywords.index(examples)
            scores = index.scores(query)
            top = max(scores, default=0.0) or 1.0
            chosen = mmr([score / top for score in scores], index.similarity, self.k, diversity=self.diversity)
            return tuple([examples[position].scored(scores[position]) for position in chosen])
        return drive(self._steps(self._vectors, query, tuple(examples)))

    def _steps(self, known: Vectors, query: str, examples: _Selection) -> Generator[Any, Any, _Selection]:
        if not examples:
            return ()
        asked, vectors = yield from known.steps(query, [example.input for example in examples])
        scores = [cosine(asked, vector) for vector in vectors]

        def similarity(one: int, other: int) -> float:
            return cosine(vectors[one], vectors[other])

        chosen = mmr(scores, similarity, self.k, diversity=self.diversity)
        return tuple([examples[position].scored(scores[position]) for position in chosen])


def _best(examples: Sequence[Example], scores: Sequence[float], k: int) -> _Selection:
    order = sorted(range(len(examples)), key=lambda position: -scores[position])[:k]
    return tuple([examples[position].scored(scores[position]) for position in order])


def _whole(what: str, number: int) -> int:
    if type(number) is not int or number < 0:
        raise PromptError(f"{what} must be a whole number of 0 or more, got {number!r}")
    return number
