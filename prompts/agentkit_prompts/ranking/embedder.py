"""`Embedder`, the protocol of sync and async embedders, and a cache of checked unit vectors."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Generator, Iterable, Sequence
from operator import mul
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from agentkit_prompts.errors import PromptError

R = TypeVar("R")
_Embedded: TypeAlias = Sequence[Sequence[float]]
_MAX_VECTORS = 20_000


@runtime_checkable
class Embedder(Protocol):
    """Object that converts texts to vectors of one dimension; the direction of a vector represents the meaning."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]:
        """Return one vector per text, in order, or an awaitable of the vectors. `texts` is never empty."""
        ...


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two unit vectors, 0.0 if one is a zero vector."""
    return float(sum(map(mul, one, other)))


class Vectors:
    """Cache of unit vectors by text, which calls the embedder only for new texts."""

    __slots__ = ("_embedder", "_known")

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, list[float]] = {}

    def steps(self, query: str, texts: Sequence[str]) -> Generator[Any, Any, tuple[list[float], list[list[float]]]]:
        """Return the vector of the query and the vectors of `texts`; the embedder is called once, for the missing
        texts.

        Only the vectors of `texts` are cached. `drive` runs this generator, which yields the result of the embedder and
        receives the vectors.

        Raises:
            PromptError: The embedder failed, or did not return one finite vector of the same dimension for each text.
        """
        cache = self._known
        missing = [text for text in dict.fromkeys(texts) if text not in cache]
        name = type(self._embedder).__name__
        try:
            embedded: _Embedded = yield self._embedder.embed([*missing, query])
        except PromptError:
            raise
        except Exception as error:
            raise PromptError(
                f"{name}: could not embed {len(missing) + 1} texts: {_reason(error)}", name=name
            ) from error
        *fresh, query_vector = _unit_vectors(name, embedded, len(missing) + 1)
        vectors = {text: cache[text] for text in texts if text in cache}
        vectors.update(zip(missing, fresh, strict=True))
        try:
            _check_dimensions(name, len(query_vector), vectors.values())
        except PromptError:
            # The embedder uses another model now, so the cached vectors are useless.
            self._known = {}
            raise
        # The dict is replaced, not cleared, because a concurrent call can be reading it.
        if len(cache) + len(fresh) > _MAX_VECTORS:
            self._known = vectors
        else:
            cache.update(vectors)
        return query_vector, [vectors[text] for text in texts]


def _check_dimensions(name: str, dimensions: int, vectors: Iterable[Sequence[float]]) -> None:
    other_dimensions = {len(vector) for vector in vectors} - {dimensions}
    if other_dimensions:
        raise PromptError(
            f"{name}: the vector of the query has {dimensions} dimensions, other vectors have "
            f"{', '.join(map(str, other_dimensions))}; an embedder must use one model",
            name=name,
            value=dimensions,
        )


def _unit_vectors(name: str, embedded: object, count: int) -> list[list[float]]:
    """Return the checked result of an embedder as vectors of length 1; a zero vector is unchanged."""
    vectors = _vectors(name, embedded)
    if len(vectors) != count:
        text = f"{name}: returned {len(vectors)} vectors for {count} texts; return one per text, in order"
        raise PromptError(text, name=name, value=len(vectors))
    sizes = {len(vector) for vector in vectors}
    if len(sizes) > 1 or 0 in sizes:
        dimensions = ", ".join(map(str, sorted(sizes)))
        text = f"{name}: vectors of {dimensions} dimensions; all must have the same dimension > 0"
        raise PromptError(text, name=name, value=dimensions)
    for number, vector in enumerate(vectors):
        if not all(map(math.isfinite, vector)):
            text = f"{name}: vector {number} contains NaN or infinity; return finite numbers"
            raise PromptError(text, name=name, value=number)
    return [*map(_unit_vector, vectors)]


def _vectors(name: str, embedded: object) -> list[list[float]]:
    try:
        if isinstance(embedded, str | bytes) or not isinstance(embedded, Iterable):
            raise TypeError(f"got {type(embedded).__name__}")
        return [[float(value) for value in vector] for vector in embedded]
    except (TypeError, ValueError, OverflowError) as error:
        text = f"{name}: expected a list of vectors of numbers: {_reason(error)}"
        raise PromptError(text, name=name, value=type(embedded).__name__) from error


def _unit_vector(vector: list[float]) -> list[float]:
    # Divide by the largest value first, so that no square overflows.
    largest = max(map(abs, vector))
    if not largest:
        return vector
    scaled = [value / largest for value in vector]
    norm = math.sqrt(cosine(scaled, scaled))
    return [value / norm for value in scaled]


def _reason(error: BaseException) -> str:
    name, text = type(error).__name__, str(error)
    if not text:
        return name
    return f"{name}: {text}"


class _Pending(Awaitable[R]):
    """Awaitable that runs the rest of steps, from their first awaitable on."""

    __slots__ = ("_steps", "_waiting")

    def __init__(self, steps: Generator[Any, Any, R], waiting: Any) -> None:
        self._steps = steps
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, R]:
        steps, answer = self._steps, self._waiting
        try:
            while True:
                try:
                    value = (yield from answer.__await__()) if isinstance(answer, Awaitable) else answer
                except Exception as error:
                    answer = steps.throw(error)
                else:
                    answer = steps.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the return value of the generator

    def close(self) -> None:
        """Close the steps and their awaitable without waiting for a result."""
        self._steps.close()
        give_up(self._waiting)


def give_up(waiting: object) -> None:
    """Close or cancel an awaitable that is no longer needed."""
    close = getattr(waiting, "close", None) or getattr(waiting, "cancel", None)
    if close is not None:
        close()


def drive(steps: Generator[Any, Any, R]) -> R | Awaitable[R]:
    """Run steps that yield values or awaitables, and return their result.

    If the steps yield an awaitable, return an awaitable that runs the rest of the steps.
    """
    try:
        answer = next(steps)
        while not isinstance(answer, Awaitable):
            answer = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the return value of the generator
    return _Pending(steps, answer)
