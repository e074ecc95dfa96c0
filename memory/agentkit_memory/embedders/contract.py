"""Protocols of embedders, and the checks of their results: one finite vector per text."""

from __future__ import annotations

import math
from array import array
from collections.abc import Awaitable, Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Protocol, TypeAlias, runtime_checkable

from agentkit_memory.checks import MAX_DIMENSIONS
from agentkit_memory.errors import EmbedderError, InvalidArgument
from agentkit_memory.scope import check_name
from agentkit_prompts.context.parts import Image
from agentkit_prompts.ranking.embedder import Embedder

Vector: TypeAlias = "array[float]"
"""A vector of 32-bit floats."""


@runtime_checkable
class ModelEmbedder(Embedder, Protocol):
    """An embedder with the name of its model, so that vectors of two models are never mixed.

    A recall waits 1 second for the vector of its question, or the seconds of an attribute `question_timeout`. The
    embedder may be called from several threads.
    """

    @property
    def model(self) -> str:
        """Name of the model, its size and whatever else changes the vectors: equal names mean equal vectors."""
        ...


@runtime_checkable
class QueryEmbedder(ModelEmbedder, Protocol):
    """An embedder whose model embeds questions and texts differently."""

    def embed_query(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]:
        """Return one vector per question, in order, or an awaitable of these vectors."""
        ...


@runtime_checkable
class ImageEmbedder(ModelEmbedder, Protocol):
    """An embedder of images and texts in one space. Other embedders embed the alt text of an image."""

    def embed_images(self, images: Sequence[Image]) -> Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]:
        """Return one vector per image, as long as the vectors of texts, in order, or an awaitable of these vectors."""
        ...


def model_of(embedder: Embedder) -> str:
    """Return the name of an embedder's model.

    Raises:
        EmbedderError: The object is not an embedder, or has no `model` name.
    """
    name: object = getattr(embedder, "model", None)
    if not isinstance(embedder, Embedder):
        raise EmbedderError(
            f"expected an embedder, an object with `embed(texts)`, got {type(embedder).__name__}",
            name="embedder",
            value=type(embedder).__name__,
        )
    if not isinstance(name, str) or not name.strip():
        raise EmbedderError(
            f"{type(embedder).__name__}: expected the name of its model in the attribute `model`, got {name!r}; "
            "vectors are stored under that name, so that vectors of two models are never mixed",
            name="model",
            value=type(embedder).__name__,
        )
    try:
        check_name(f"{type(embedder).__name__}.model", name)
    except InvalidArgument as error:
        raise EmbedderError(str(error)) from error
    return name


def unit_vectors(model: str, embedded: object, texts: Sequence[str | Image], dimensions: int = 0) -> list[Vector | str]:
    """Return the vector of each text, scaled to length 1 so that no number overflows in 32 bits. A zero vector stays.

    Args:
        model: Name of the model for errors.
        embedded: Result of the embedder.
        texts: Input of the embedder.
        dimensions: Expected number of dimensions; 0 for any number that is the same for all vectors.

    Returns:
        For each text, the vector or a `str`: the problem of the vector.

    Raises:
        EmbedderError: The result is not one vector for each text, or the numbers of dimensions differ.
    """
    if isinstance(embedded, str | bytes) or not isinstance(embedded, Iterable):
        raise EmbedderError(
            f"model {model!r}: expected a list of vectors, got {type(embedded).__name__}",
            name=model,
            value=type(embedded).__name__,
        )
    rows = _listed(embedded, len(texts))
    if len(rows) != len(texts):
        raise EmbedderError(
            f"model {model!r}: returned {len(rows)} vectors for {len(texts)} texts; expected one per text, in order",
            name=model,
            value=len(rows),
        )
    vectors = [_unit_vector(row) for row in rows]
    sizes = {len(each) for each in vectors if not isinstance(each, str)}
    if max(sizes, default=0) > MAX_DIMENSIONS:
        raise EmbedderError(
            f"model {model!r}: returned vectors of {max(sizes):,} dimensions; at most {MAX_DIMENSIONS:,} can be stored",
            name=model,
            value=max(sizes),
        )
    if not dimensions and len(sizes) > 1:
        lengths = ", ".join(map(str, sorted(sizes)))
        raise EmbedderError(
            f"model {model!r}: returned vectors of {lengths} dimensions; expected one length",
            name=model,
            value="lengths",
        )
    for number, (each, text) in enumerate(zip(vectors, texts, strict=True)):
        problem = _problem(each, dimensions)
        if problem:
            vectors[number] = f"model {model!r}, {_label(text, number + 1, len(texts))}: {problem}"
    return vectors


def _problem(vector: Vector | str, dimensions: int) -> str:
    """Return the problem of a vector; empty text if the vector has the expected number of dimensions."""
    if isinstance(vector, str):
        return vector
    if not dimensions or len(vector) == dimensions:
        return ""
    return (
        f"its vector has {len(vector)} dimensions, stored vectors have {dimensions}; an embedder must use one model: "
        "give another model another name, and reembed"
    )


def _listed(values: Iterable[Any], most: int) -> list[Any]:
    """Return the values of an iterable; of an iterator, which may be endless, at most `most` + 1 values."""
    if isinstance(values, Sized):
        return list(values)
    return list(islice(values, most + 1))


def _label(content: str | Image, number: int, count: int) -> str:
    if isinstance(content, str):
        return f"text {number} of {count} ({len(content)} characters)"
    return f"image {number} of {count} ({content.label})"


def _unit_vector(row: object) -> Vector | str:
    """Return the vector of one text, scaled to length 1, or its problem."""
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        return f"expected a vector of numbers, got {type(row).__name__}"
    # An array converts its numbers faster than `float` does.
    numbers = getattr(row, "tolist", lambda: row)
    try:
        values = [float(value) for value in _listed(numbers(), MAX_DIMENSIONS)]
    except (TypeError, ValueError, OverflowError) as error:
        return f"expected a vector of numbers ({error})"
    if not values:
        return "its vector is empty"
    if not all(map(math.isfinite, values)):
        return "its vector contains NaN or infinity; expected finite numbers"
    # `hypot` avoids squares that overflow. If the length overflows too, a shorter vector has the same direction.
    norm = math.hypot(*values)
    if math.isinf(norm):
        values = [value / len(values) for value in values]
        norm = math.hypot(*values)
    if norm:
        values = [value / norm for value in values]
    return array("f", values)
