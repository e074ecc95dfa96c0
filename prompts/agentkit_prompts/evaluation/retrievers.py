"""Selectors of rows as worked examples, and `retrieve`, which selects for all rows of a split."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from random import Random
from typing import Any

from agentkit_prompts.context.prompt_context import Example
from agentkit_prompts.errors import InContextError, PromptError
from agentkit_prompts.evaluation.okapi import Okapi, terms
from agentkit_prompts.ranking.embedder import give_up
from agentkit_prompts.tree.example_selectors import KeywordSelector, checked_count
from agentkit_prompts.tree.examples import ExampleSelector, StaticSelector

_SEED = 43
_STATE_WORDS = 624
"""Number of words in the state of a Mersenne Twister."""
_WORD = 0xFFFFFFFF
"""Largest word: 32 bits."""


class BM25Selector(KeywordSelector):
    """Selects the `k` examples with the highest BM25 scores for the query, best first.

    The scores equal the scores of `rank_bm25`, and the examples are the same as in OpenCompass. Examples with equal
    scores have the order of NumPy's sort on this machine, as in `rank_bm25`; without NumPy, the last one is first.

    Args:
        k: Number of examples.
        tokenize: Function that splits text into terms. The default is similar to `nltk.word_tokenize`, which you can
            pass for exactly the same results.
    """

    __slots__ = ()

    _index_class = Okapi
    _error_class = InContextError

    def __init__(self, k: int = 1, *, tokenize: Callable[[str], Sequence[str]] = terms) -> None:
        super().__init__(k, tokenize=tokenize)

    def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
        """Return the `k` examples with the highest scores."""
        order = _rising(self.index(examples).scores(query))
        return tuple([examples[position] for position in order[::-1][: self.k]])


def _rising(scores: Sequence[float]) -> list[int]:
    """Return the positions of scores in rising order, equal scores in the order of `numpy.argsort`."""
    # The sort of NumPy is not stable and depends on the processor, so only NumPy itself has the order of the original.
    if len(set(scores)) < len(scores):
        # No extra needs NumPy for this order only: it is used if another package has installed it.
        try:
            numpy: Any = import_module("numpy")
        except ImportError:
            pass
        else:
            order: list[int] = numpy.argsort(numpy.array(scores)).tolist()
            return order
    return sorted(range(len(scores)), key=scores.__getitem__)


class RandomSelector:
    """Draws `k` examples without replacement; the seed and the position of the query determine the draw.

    The random numbers equal the numbers of NumPy's legacy generator, so the examples are the same as in OpenCompass and
    AISBench.

    Args:
        k: Number of examples.
        seed: A whole number from 0 to 2**32 - 1.
    """

    __slots__ = ("k", "seed")

    def __init__(self, k: int = 1, *, seed: int = _SEED) -> None:
        self.k = checked_count("RandomSelector: k", k, InContextError)
        self.seed = checked_count("RandomSelector: seed", seed, InContextError)
        if seed > _WORD:
            raise InContextError(f"RandomSelector: seed must be at most {_WORD}, got {seed}", name="seed", value=seed)

    def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
        """Return the first draw."""
        return self.select_all([query], examples)[0]

    def select_all(self, queries: Sequence[str], examples: Sequence[Example]) -> list[tuple[Example, ...]]:
        """Return one draw for each query, in order.

        Raises:
            InContextError: The pool has fewer than `k` examples.
        """
        _check_pool("RandomSelector", self.k, len(examples))
        generator = _legacy_generator(self.seed)
        return [
            tuple([examples[position] for position in _shuffled(generator, len(examples))[: self.k]]) for _ in queries
        ]


class WindowSelector:
    """Selects the `k` examples before the position of the query, in order; the first query gets the last examples.

    Args:
        k: Number of examples.
    """

    __slots__ = ("k",)

    def __init__(self, k: int) -> None:
        self.k = checked_count("WindowSelector: k", k, InContextError)

    def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
        """Return the last `k` examples."""
        return self.select_all([query], examples)[0]

    def select_all(self, queries: Sequence[str], examples: Sequence[Example]) -> list[tuple[Example, ...]]:
        """Return the `k` examples before the position of each query; the last example precedes the first one.

        Raises:
            InContextError: The pool has fewer than `k` examples.
        """
        size = len(examples)
        _check_pool("WindowSelector", self.k, size)
        return [
            tuple([examples[(row - self.k + place) % size] for place in range(self.k)]) for row in range(len(queries))
        ]


def retrieve(selector: ExampleSelector, queries: Sequence[str], examples: Sequence[Example]) -> list[tuple[int, ...]]:
    """Return the positions of the selected examples for each query.

    A selector that depends on the position of a query has the method `select_all(queries, examples)`, which is called
    instead of `select`.

    Args:
        selector: Any example selector.
        queries: Queries of the rows, in order.
        examples: The examples to select from.

    Raises:
        InContextError: The selector failed, is async, or returned an example that is not in the pool.
    """
    name = type(selector).__name__
    positions = {example.id: position for position, example in enumerate(examples)}
    try:
        rows = _select_for_all(selector, queries, examples)
        return [tuple([positions[example.id] for example in row]) for row in rows]
    except InContextError:
        raise
    except Exception as error:
        raise _selection_error(name, error) from error


def _select_for_all(
    selector: ExampleSelector, queries: Sequence[str], examples: Sequence[Example]
) -> Sequence[Sequence[Example]]:
    select_all = getattr(selector, "select_all", None)
    if select_all is not None:
        rows: Sequence[Sequence[Example]] = select_all(queries, examples)
        return rows
    return [_at_once(type(selector).__name__, selector.select(query, examples)) for query in queries]


def _selection_error(name: str, error: Exception) -> InContextError:
    if isinstance(error, PromptError):
        return InContextError(str(error), name=error.name, value=error.value)
    if isinstance(error, KeyError):
        text = f"{name}: returned an example with id {error}, which is not in the pool"
        return InContextError(text, name=name, value=str(error.args[0]))
    text = f"{name}: could not select examples: {type(error).__name__}: {error}"
    return InContextError(text, name=name, value=type(error).__name__)


def _at_once(name: str, selected: Sequence[Example] | Awaitable[Sequence[Example]]) -> Sequence[Example]:
    if isinstance(selected, Awaitable):
        give_up(selected)
        raise InContextError(f"{name}: is async; pass an embedder whose `embed` is not async", name=name)
    return selected


def fixed_rows(retriever: ExampleSelector, size: int) -> list[str] | None:
    """Return the numbers of the rows that a retriever always selects; None if its rows depend on the query.

    A negative number counts from the end. It is converted to the number from the start, if the row exists.
    """
    if type(retriever) is not StaticSelector:
        return None
    names = retriever.ids
    if names is None:
        names = tuple(map(str, range(size)))
    return [_position(name, size) for name in names[: retriever.k]]


def _position(name: str, size: int) -> str:
    """Return the number of a row, counted from the start if the row exists."""
    if name.startswith("-") and name[1:].isdecimal() and 0 < -int(name) <= size:
        return str(size + int(name))
    return name


def _legacy_generator(seed: int) -> Random:
    """Return a Mersenne Twister that is seeded as by `numpy.random.seed`; `random.seed` sets another state."""
    state = [seed]
    for number in range(1, _STATE_WORDS):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + number) & _WORD)
    generator = Random()
    generator.setstate((3, (*state, _STATE_WORDS), None))
    return generator


def _shuffled(generator: Random, size: int) -> list[int]:
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        mask = (1 << last.bit_length()) - 1
        # NumPy draws 32 bits and rejects numbers that are too large. Another method would select other rows.
        other = generator.getrandbits(32) & mask
        while other > last:
            other = generator.getrandbits(32) & mask
        order[last], order[other] = order[other], order[last]
    return order


def _check_pool(name: str, count: int, size: int) -> None:
    if count > size:
        text = f"{name}: {count} examples are requested, but only {size} exist; request fewer"
        raise InContextError(text, name="k", value=count)
