"""Selectors that read the query: by length, by keywords, by embeddings, and by maximal marginal relevance."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.errors import PromptError, brief
from agentkit_prompts.limits import MAX_CACHED_PER_OBJECT
from agentkit_prompts.ranking.bm25 import BM25, words
from agentkit_prompts.ranking.embedder import Embedder, Vectors, cosine, drive
from agentkit_prompts.ranking.mmr import mmr
from agentkit_prompts.tokens.counter import ESTIMATE, TokenCounter

_Selection: TypeAlias = tuple[Example, ...]
_Similarity: TypeAlias = Callable[[int, int], float]


class LengthSelector:
    """Selector of the first examples that fit `max_tokens` together with the query.

    Args:
        max_tokens: Maximum tokens of the query and of the inputs and outputs of the examples.
        counter: Token counter; a fast estimate by default.
    """

    __slots__ = ("counter", "max_tokens")

    def __init__(self, max_tokens: int, counter: TokenCounter = ESTIMATE) -> None:
        self.max_tokens = checked_count("LengthSelector: max_tokens", max_tokens)
        if not callable(getattr(counter, "count", None)):
            raise PromptError(
                f"LengthSelector: counter: expected an object with a method `count`, got {brief(counter)}",
                name="counter",
            )
        self.counter = counter

    def select(self, query: str, examples: Sequence[Example]) -> _Selection:
        """Return the examples up to the first example that does not fit, without this example."""
        count = self.counter.count
        remaining = self.max_tokens - count(query)
        for number, example in enumerate(examples):
            remaining -= count(example.input) + count(example.output)
            if remaining < 0:
                return tuple(examples[:number])
        return tuple(examples)


class KeywordSelector:
    """Selector of the `k` examples with the highest BM25 scores for the query, best first; equal scores keep their
    order.

    Args:
        k: Number of examples. If fewer examples have a word of the query, others follow in order, with score 0.
        tokenize: Function that splits text into terms; by default Unicode words, and pairs of characters for CJK.
    """

    __slots__ = ("_pools", "k", "tokenize")

    _index_class: ClassVar[type[BM25]] = BM25
    _error_class: ClassVar[type[PromptError]] = PromptError

    def __init__(self, k: int = 4, *, tokenize: Callable[[str], Sequence[str]] = words) -> None:
        name = type(self).__name__
        self.k = checked_count(f"{name}: k", k, self._error_class)
        if not callable(tokenize):
            raise self._error_class(f"{name}: tokenize: expected a function, got {brief(tokenize)}", name="tokenize")
        self.tokenize = tokenize
        self._pools: dict[tuple[str, ...], BM25] = {}

    def index(self, examples: Sequence[Example]) -> BM25:
        """Return the index of the inputs of the examples; it is created once and cached."""
        texts = tuple([example.input for example in examples])
        index = self._pools.get(texts)
        if index is None:
            if len(self._pools) >= MAX_CACHED_PER_OBJECT:
                self._pools.clear()
            index = self._pools[texts] = self._index_class(texts, tokenize=self.tokenize)
        return index

    def select(self, query: str, examples: Sequence[Example]) -> _Selection:
        """Return the best examples with their scores."""
        return _best(examples, self.index(examples).scores(query), self.k)


class VectorSelector:
    """Selector of the `k` examples with the highest cosine to the query, best first; equal scores keep their order.

    Vectors of examples are cached. An async embedder requires `select_examples`, which awaits the selection.

    Args:
        embedder: Embedder of queries and examples. `select_examples` calls a sync embedder in a thread.
        k: Number of examples.
    """

    __slots__ = ("_vectors", "blocking", "k")

    blocking: bool
    """True if `select` can block its thread, as a sync embedder does."""

    def __init__(self, embedder: Embedder, k: int = 4) -> None:
        self.k = checked_count(f"{type(self).__name__}: k", k)
        if isinstance(embedder, type) or not callable(getattr(embedder, "embed", None)):
            name = type(self).__name__
            raise PromptError(
                f"{name}: embedder: expected an object with a method `embed`, got {brief(embedder)}", name="embedder"
            )
        self._vectors = Vectors(embedder)
        self.blocking = not inspect.iscoroutinefunction(embedder.embed)

    def select(self, query: str, examples: Sequence[Example]) -> _Selection | Awaitable[_Selection]:
        """Return the nearest examples with their cosines; for a blank query the first examples, without scores.

        Raises:
            PromptError: The embedder failed, or returned invalid vectors.
        """
        # The vector of a blank query has no meaning, and an embedder can refuse blank text.
        if not self.k or not query.strip():
            return tuple(examples[: self.k])
        return self._found(query, tuple(examples))

    def _found(self, query: str, examples: _Selection) -> _Selection | Awaitable[_Selection]:
        return drive(self._steps(query, examples))

    def _steps(self, query: str, examples: _Selection) -> Generator[Any, Any, _Selection]:
        if not examples:
            return ()
        query_vector, vectors = yield from self._vectors.steps(query, [example.input for example in examples])
        scores = [cosine(query_vector, vector) for vector in vectors]
        return self._chosen(examples, scores, lambda first, second: cosine(vectors[first], vectors[second]))

    def _chosen(self, examples: _Selection, scores: Sequence[float], similarity: _Similarity) -> _Selection:
        return _best(examples, scores, self.k)


class MMRSelector(VectorSelector):
    """Selector of `k` relevant and different examples by maximal marginal relevance, in the order of their selection.

    The score of an example is its relevance. An async embedder requires `select_examples`, which awaits the selection.

    Args:
        embedder: Embedder; relevance and similarity are cosines of its vectors. None uses keywords instead: relevance
            is BM25 relative to the best score, similarity is the cosine of weighted terms.
        k: Number of examples.
        diversity: 0.0 ranks by relevance only, 1.0 by difference only.
    """

    __slots__ = ("_keywords", "diversity")

    def __init__(self, embedder: Embedder | None = None, k: int = 4, *, diversity: float = 0.5) -> None:
        if not isinstance(diversity, int | float) or not 0 <= diversity <= 1:
            raise PromptError(
                f"MMRSelector: diversity must be from 0.0 to 1.0, got {brief(diversity)}", name="diversity"
            )
        if embedder is not None:
            super().__init__(embedder, k)
        else:
            self.k = checked_count("MMRSelector: k", k)
            self.blocking = False
        self.diversity = diversity
        self._keywords = KeywordSelector(k) if embedder is None else None

    def _found(self, query: str, examples: _Selection) -> _Selection | Awaitable[_Selection]:
        if self._keywords is None:
            return super()._found(query, examples)
        index = self._keywords.index(examples)
        scores = index.scores(query)
        return self._chosen(examples, scores, index.similarity, max(scores, default=0.0) or 1.0)

    def _chosen(
        self, examples: _Selection, scores: Sequence[float], similarity: _Similarity, top: float = 1.0
    ) -> _Selection:
        order = mmr([score / top for score in scores], similarity, self.k, diversity=self.diversity)
        return _scored(examples, scores, order)


def _best(examples: Sequence[Example], scores: Sequence[float], k: int) -> _Selection:
    return _scored(examples, scores, sorted(range(len(examples)), key=lambda position: -scores[position])[:k])


def _scored(examples: Sequence[Example], scores: Sequence[float], order: Iterable[int]) -> _Selection:
    return tuple([examples[position].scored(scores[position]) for position in order])


def checked_count(place: str, number: int, error_class: type[PromptError] = PromptError) -> int:
    """Return `number` if it is a non-negative integer, else raise `error_class`; `place` ends with the name of the
    argument.
    """
    if type(number) is not int or number < 0:
        argument = place.rpartition(": ")[2]
        raise error_class(f"{place} must be a whole number of 0 or more, got {brief(number)}", name=argument)
    return number
