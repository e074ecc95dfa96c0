"""Embedding models in this process by fastembed, which runs them with ONNX and needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from agentkit_memory.errors import EmbedderError, EmbedderUnavailable
from agentkit_prompts.errors import nearest

if TYPE_CHECKING:
    from fastembed import TextEmbedding  # pyright: ignore[reportMissingImports]

__all__ = ["FastembedEmbedder"]


class FastembedEmbedder:
    """Loads a model at its first use, downloading it once if it is not on this machine.

    Args:
        name: The model, as `TextEmbedding.list_supported_models()` has it.
        cache_dir: Where models are kept. fastembed's own default is a temporary folder.
        threads: How many threads a call may use.
        batch_size: Texts that are embedded at once.
        offline: Never download.
    """

    def __init__(
        self,
        name: str = "BAAI/bge-small-en-v1.5",
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        batch_size: int = 32,
        offline: bool = False,
    ) -> None:
        self._name = name
        self._settings: dict[str, Any] = {"threads": threads, "local_files_only": offline}
        if cache_dir is not None:
            self._settings["cache_dir"] = os.fspath(cache_dir)
        self._batch_size = batch_size
        self._lock = Lock()
        self._loaded: TextEmbedding | None = None

    @property
    def model(self) -> str:
        """Name of the vectors: `fastembed:MODEL`."""
        return f"fastembed:{self._name}"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per chunk, in order.

        Raises:
            EmbedderUnavailable: fastembed is not installed, or the model cannot be loaded or fetched.
            EmbedderError: The model is unknown.
        """
        found = self._model().passage_embed(list(texts), batch_size=self._batch_size)
        return [vector.tolist() for vector in found]

    def embed_query(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per question, in order.

        Raises:
            EmbedderError: As `embed` does.
        """
        return [vector.tolist() for vector in self._model().query_embed(list(texts))]

    def _model(self) -> TextEmbedding:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> TextEmbedding:
        try:
            from fastembed import TextEmbedding  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise EmbedderUnavailable(f"model {self.model!r}: needs fastembed: install the extra `dense`") from error
        known = {each["model"].lower(): each["model"] for each in TextEmbedding.list_supported_models()}
        if self._name.lower() not in known:
            hint = nearest(self._name, known.values())
            raise EmbedderError(f"model {self.model!r}: fastembed has no model of this name{hint}")
        try:
            return TextEmbedding(self._name, **self._settings)
        except Exception as error:  # of its downloader, of ONNX, of the disk
            message = " ".join(str(error).split())[:200]
            raise EmbedderUnavailable(
                f"model {self.model!r}: it is not on this machine and could not be fetched, or its files are damaged "
                f"({type(error).__name__}: {message}); fetch it once with a connection, and name the folder "
                "with cache_dir="
            ) from error
