"""`LocalModel`: an embedder whose model runs in this process. The exit of the process waits for its calls."""

from __future__ import annotations

import atexit
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock, Thread, current_thread
from typing import Any, ClassVar, TypeAlias
from weakref import WeakSet

from agentkit_memory.errors import EmbedderError, EmbedderUnavailable, StoreClosed

_MAX_WAIT = 10.0
"""Maximum seconds that the exit of the process waits for running batches."""

_EmbedBatch: TypeAlias = Callable[[Any, list[str]], Iterable[Any]]


class LocalModel(ABC):
    """An embedder that sends batches of texts to a model in this process. The model is loaded at the first use.

    If Python exits while a thread embeds texts, the C++ code of ONNX or torch aborts the process. Therefore the exit
    waits for running batches, and no further batch is started.

    Raises:
        EmbedderError: The batch size is below 1.
    """

    question_timeout: ClassVar[float] = 30.0
    """Maximum seconds that a recall waits for the vector of its question: the first question loads the model."""
    _needs: ClassVar[str]
    """Package that has to be installed, with its extra."""
    _advice: ClassVar[str]
    """Advice if the model cannot be loaded."""

    def __init__(self, model: str, batch_size: int) -> None:
        if batch_size < 1:
            raise EmbedderError(
                f"{type(self).__name__}: batch_size: expected a whole number from 1, got {batch_size}",
                name="batch_size",
            )
        self.model = model
        """Name of the vectors, such as `fastembed:BAAI/bge-small-en-v1.5`."""
        self._batch_size = batch_size
        self._lock = Lock()
        self._loaded: Any = None
        self._calls: set[Thread] = set()
        self._has_ended = False
        _used.add(self)

    @abstractmethod
    def _load(self) -> Any:
        """Load the model."""

    def _vectors(self, texts: Sequence[str], embed_batch: _EmbedBatch) -> list[list[float]]:
        """Return one vector per text, in order; texts of similar length are embedded together.

        Args:
            texts: All texts.
            embed_batch: Function of the model and a batch of texts that returns an array for each text.

        Raises:
            EmbedderUnavailable: The library is not installed, or the model cannot be loaded or fetched.
            EmbedderError: The name of the model is unknown to the library.
            StoreClosed: The process exits.
        """
        size = self._batch_size
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]), reverse=True)
        vectors: dict[int, list[float]] = {}
        thread = current_thread()
        self._calls.add(thread)
        try:
            model = self._loaded_model()
            for start in range(0, len(order), size):
                self._check()
                indexes = order[start : start + size]
                arrays = embed_batch(model, [texts[index] for index in indexes])
                vectors.update(zip(indexes, [array.tolist() for array in arrays], strict=True))
        finally:
            self._calls.discard(thread)
        return [vectors[index] for index in range(len(texts))]

    def _end(self, until: float) -> None:
        """Start no further batch, and wait for running batches until a time of the monotonic clock."""
        self._has_ended = True
        while any(thread.is_alive() for thread in list(self._calls)) and time.monotonic() < until:
            time.sleep(0.005)

    def _check(self) -> None:
        if self._has_ended:
            raise StoreClosed(f"model {self.model!r}: the process ends", name=self.model)

    def _loaded_model(self) -> Any:
        with self._lock:
            self._check()
            if self._loaded is None:
                self._loaded = self._load_or_explain()
            return self._loaded

    def _load_or_explain(self) -> Any:
        try:
            return self._load()
        except EmbedderError:
            raise
        except ImportError as error:
            raise EmbedderUnavailable(f"model {self.model!r}: needs {self._needs}", name=self._needs) from error
        except Exception as error:
            # The download, ONNX, torch and the disk have no common class of errors.
            message = " ".join(str(error).split())[:200]
            raise EmbedderUnavailable(
                f"model {self.model!r}: it is not on this machine and could not be fetched, or its files are corrupt "
                f"({type(error).__name__}: {message}); {self._advice}",
                name=self.model,
                value=type(error).__name__,
            ) from error


_used: WeakSet[LocalModel] = WeakSet()


@atexit.register
def _at_exit() -> None:
    until = time.monotonic() + _MAX_WAIT
    for each in list(_used):
        with suppress(KeyboardInterrupt):
            each._end(until)
