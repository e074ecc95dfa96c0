"""`Encoder`: the vectors of one model, requested in bounded batches, checked, and stored by content hash."""

from __future__ import annotations

import math
import struct
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, func, select

from agentkit_memory.database.engine import Database
from agentkit_memory.database.rows import decode_rows
from agentkit_memory.database.tables import embeddings, vector_spaces
from agentkit_memory.embedders.contract import ImageEmbedder, QueryEmbedder, Vector, model_of, unit_vectors
from agentkit_memory.errors import EmbedderError, EmbedderUnavailable, StoreClosed
from agentkit_memory.process.embedder_calls import EmbedderCalls
from agentkit_memory.store.image_rows import image_hash
from agentkit_memory.store.item_rows import content_hash, in_batches
from agentkit_prompts.context.parts import Image
from agentkit_prompts.ranking.embedder import Embedder
from agentkit_prompts.system.threads import Threads

T = TypeVar("T")

MAX_TEXT = 8_000
"""Maximum characters of a text that are embedded: more than most models read. BM25 finds the rest."""

MAX_IMAGES = 8
"""Maximum images in one request."""

_MAX_TEXTS = 256
"""Maximum texts in one request."""
_MAX_CHARACTERS = 200_000
"""Maximum characters in one request."""
_MAX_UNKEPT = 4096
"""Maximum vectors that wait for the transaction that stores them; the oldest are forgotten."""
_MAX_REQUESTS = 512
"""Maximum requests into which a failing batch is split."""

_QUESTION_TIMEOUT = 1.0
"""Seconds that a recall waits for the vector of its question, unless the embedder has a `question_timeout`."""
_MAX_CALL = 300.0
"""Maximum seconds of one call of an embedder."""

_is_of_model = embeddings.c.model == bindparam("its_model")
_STORED = select(embeddings.c.content_hash, embeddings.c.vector).where(
    _is_of_model, embeddings.c.content_hash.in_(bindparam("hashes", expanding=True))
)
_DIMENSIONS = select(func.max(vector_spaces.c.dimensions)).where(
    vector_spaces.c.model == bindparam("its_model"), vector_spaces.c.state != "retired"
)


class Encoder:
    """Requests the vectors of one embedder.

    A model that is not available is not called again for `pause` seconds, so that not every recall waits for it.
    """

    def __init__(self, embedder: Embedder, database: Database, calls: EmbedderCalls, *, pause: float = 1.0) -> None:
        self.model = model_of(embedder)
        self._embedder = embedder
        self._database = database
        self._calls = calls
        self._pause = pause
        self._lock = Lock()
        self._dimensions = 0
        # Vectors, by their names, that no transaction has stored yet.
        self._unkept: dict[str, Vector] = {}
        self._problem = ""
        self._retry_at = 0.0
        # Number of calls for questions that are late and have not returned yet.
        self._late_calls = 0
        self._questions_retry_at = 0.0

    @property
    def takes_images(self) -> bool:
        """True if images are embedded; otherwise their alt texts are embedded."""
        return isinstance(self._embedder, ImageEmbedder)

    def __call__(self, texts: Sequence[str | Image]) -> list[Vector | str]:
        """Return, for each text, the vector or a `str`: the problem of the vector. Only missing vectors are requested.

        If the embedder embeds images, `texts` may be up to `MAX_IMAGES` images instead.

        Raises:
            EmbedderUnavailable: The model is not available; vectors that the model returned before are not lost.
        """
        names = [vector_name(text) for text in texts]
        vectors: dict[str, Vector | str] = {**self._known_vectors(names)}
        missing: dict[str, str | Image] = {
            name: text for name, text in zip(names, texts, strict=True) if name not in vectors
        }
        for batch in _batches(missing.items()):
            new = dict(zip([name for name, _ in batch], self._request_halves(batch), strict=True))
            vectors |= new
            with self._lock:
                self._unkept |= {name: vector for name, vector in new.items() if not isinstance(vector, str)}
                while len(self._unkept) > _MAX_UNKEPT:
                    del self._unkept[next(iter(self._unkept))]
        return [vectors[name] for name in names]

    def keep(self, connection: Connection, names: Iterable[str]) -> None:
        """Store the vectors of items by their names, in the transaction that marks the items as indexed.

        Vectors are not stored earlier: an item may be erased while the model is busy, and then its vector must not be
        stored.
        """
        rows = []
        with self._lock:
            for name in set(names):
                vector = self._unkept.pop(name, None)
                if vector is not None:
                    rows.append({"content_hash": name, "vector": struct.pack(f"<{len(vector)}f", *vector)})
        if rows:
            common_values = {"model": self.model, "created_at": self._database.clock()}
            new = self._database.insert(embeddings)
            key = [each.name for each in embeddings.primary_key]
            # A stored vector that was requested again is corrupt, or another process was faster.
            new = new.on_conflict_do_update(index_elements=key, set_={"vector": new.excluded.vector})
            connection.execute(
                new, [row | common_values for row in sorted(rows, key=lambda row: str(row["content_hash"]))]
            )

    def questions(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector per question, in order. The vectors are not stored.

        Raises:
            EmbedderError: The embedder failed or returned another value.
        """
        return self._questions(texts, None)

    def question(self, text: str) -> Vector:
        """Return the vector of a question, waiting for at most the `question_timeout` of the embedder.

        While a late call for an earlier question has not returned, and shortly after, the model is not called again.

        Raises:
            EmbedderUnavailable: The model is not available, or did not return in time.
            EmbedderError: The embedder failed or returned another value.
        """
        limit = self._question_timeout()
        with self._lock:
            if self._late_calls or time.monotonic() < self._questions_retry_at:
                raise EmbedderUnavailable(self._late_problem(limit))
        return self._questions([text], limit)[0]

    def _questions(self, texts: Sequence[str], limit: float | None) -> list[Vector]:
        embedder = self._embedder
        method = embedder.embed
        if isinstance(embedder, QueryEmbedder):
            method = embedder.embed_query
        vectors: list[Vector] = []
        for batch in _batches(("", text) for text in texts):
            for vector in self._request([text for _, text in batch], method, limit):
                if isinstance(vector, str):
                    raise EmbedderError(vector)
                vectors.append(vector)
        return vectors

    def _question_timeout(self) -> float:
        limit: object = getattr(self._embedder, "question_timeout", _QUESTION_TIMEOUT)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= _MAX_CALL:
            raise EmbedderError(
                f"model {self.model!r}: question_timeout: expected seconds, more than 0 and at most {_MAX_CALL:g}, got "
                f"{limit!r}",
                name="question_timeout",
            )
        return limit

    def _late_problem(self, limit: float) -> str:
        return f"model {self.model!r}: no vector of the question within {limit:g} seconds; it is tried again later"

    def _count_late_return(self, _: object) -> None:
        with self._lock:
            self._late_calls -= 1

    def measure(self) -> int:
        """Return the number of dimensions. If no vector was ever stored, a vector is requested.

        Raises:
            EmbedderError: The embedder failed or returned another value.
        """
        return self._stored_dimensions() or len(self.questions(["How long is a vector?"])[0])

    def _request_halves(
        self, batch: Sequence[tuple[str, str | Image]], requests: int = _MAX_REQUESTS
    ) -> list[Vector | str]:
        """Return vectors or problems. If a batch fails as a whole, its halves are requested separately, recursively."""
        try:
            return self._request([each for _, each in batch], self._method(batch[0][1]))
        except EmbedderUnavailable:
            raise
        except EmbedderError as error:
            half = len(batch) // 2
            if not half or requests < 2:
                return [str(error)] * len(batch)
            first_half = self._request_halves(batch[:half], requests // 2)
            return first_half + self._request_halves(batch[half:], requests // 2)

    def _method(self, first: str | Image) -> Callable[[Any], Any]:
        embedder = self._embedder
        if isinstance(first, Image) and isinstance(embedder, ImageEmbedder):
            return embedder.embed_images
        return embedder.embed

    def _request(
        self, texts: Sequence[str | Image], method: Callable[[Any], Any], limit: float | None = None
    ) -> list[Vector | str]:
        if self._problem and time.monotonic() < self._retry_at:
            raise EmbedderUnavailable(self._problem, name=self.model)
        try:
            expected = self._stored_dimensions()
            call = call_of_model(lambda: unit_vectors(self.model, self._embedded(method, texts), texts, expected))
            if wait([call], limit or _MAX_CALL).not_done:
                if limit is None:
                    raise TimeoutError(f"no answer within {_MAX_CALL:g} seconds")
                with self._lock:
                    self._late_calls += 1
                    self._questions_retry_at = time.monotonic() + self._pause
                call.add_done_callback(self._count_late_return)
                raise EmbedderUnavailable(self._late_problem(limit))
            vectors = call.result()
        except EmbedderUnavailable as error:
            # After a late question, texts may still be embedded.
            if not self._late_calls:
                self._unavailable(str(error))
            raise
        except (EmbedderError, StoreClosed):
            raise
        except (ConnectionError, TimeoutError) as error:
            raise self._unavailable(f"model {self.model!r}: not available ({type(error).__name__}: {error})") from error
        except Exception as error:
            inputs = "texts"
            if isinstance(texts[0], Image):
                inputs = "images"
            raise EmbedderError(
                f"model {self.model!r}: could not embed {len(texts)} {inputs} ({type(error).__name__}: {error})",
                name=self.model,
                value=type(error).__name__,
            ) from error
        self._problem = ""
        return vectors

    def _embedded(self, method: Callable[[Any], Any], texts: Sequence[str | Image]) -> Any:
        embedded = method([_embedded_part(each) for each in texts])
        if isinstance(embedded, Awaitable):
            return self._calls.result(embedded)
        return embedded

    def _unavailable(self, problem: str) -> EmbedderUnavailable:
        self._problem = problem
        self._retry_at = time.monotonic() + self._pause
        return EmbedderUnavailable(problem, name=self.model)

    def _stored_dimensions(self) -> int:
        if not self._dimensions:
            with self._database.read() as connection:
                self._dimensions = connection.scalar(_DIMENSIONS, {"its_model": self.model}) or 0
        return self._dimensions

    def _known_vectors(self, names: Sequence[str]) -> dict[str, Vector]:
        with self._lock:
            vectors = {name: self._unkept[name] for name in names if name in self._unkept}
        return vectors | stored_vectors(self._database, self.model, self._stored_dimensions(), {*names} - {*vectors})


def _embedded_part(content: str | Image) -> str | Image:
    """Return the start of a text, which is embedded; an image is embedded whole."""
    if isinstance(content, Image):
        return content
    return content[:MAX_TEXT]


def call_of_model(method: Callable[[], T]) -> Future[T]:
    """Call a model in a separate daemon thread, as the call may never return, and return the future of the call.

    An exception that is not an `Exception`, such as a panic of a model in Rust, becomes a `RuntimeError`.
    """

    def guarded() -> T:
        try:
            return method()
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return Threads(1, "agentkit-model-call").submit(guarded)


def vector_name(content: str | Image) -> str:
    """Return the name of the vector of a text or an image: a hash of the content."""
    if isinstance(content, Image):
        return image_hash(content)
    return content_hash(content)


def stored_vectors(database: Database, model: str, dimensions: int, names: Iterable[str]) -> dict[str, Vector]:
    """Return the stored vectors with some names, by name; missing and corrupt vectors are left out."""
    vectors: dict[str, Vector] = {}
    with database.read() as connection:
        # A corrupt name may be of any type.
        for batch in in_batches(sorted(names, key=str)):
            bound = {"its_model": model, "hashes": batch}
            for name, packed in decode_rows(connection, _STORED, bound, embeddings.c.content_hash).sound:
                if (vector := _unpacked(packed, dimensions)) is not None:
                    vectors[name] = vector
    return vectors


def _batches(texts: Iterable[tuple[str, str | Image]]) -> Iterator[list[tuple[str, str | Image]]]:
    """Yield names and contents in lists that fit into one request."""
    batch: list[tuple[str, str | Image]] = []
    size = 0
    for name, text in texts:
        length = _MAX_CHARACTERS // MAX_IMAGES
        if isinstance(text, str):
            length = min(len(text), MAX_TEXT)
        if batch and (len(batch) == _MAX_TEXTS or size + length > _MAX_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append((name, text))
        size += length
    if batch:
        yield batch


def _unpacked(packed: object, dimensions: int) -> Vector | None:
    """Return a stored vector; None if it is corrupt or has another number of dimensions."""
    if not isinstance(packed, bytes) or len(packed) != 4 * dimensions:
        return None
    vector = array("f", struct.unpack(f"<{dimensions}f", packed))
    if not math.isfinite(sum(vector)):
        return None
    return vector
