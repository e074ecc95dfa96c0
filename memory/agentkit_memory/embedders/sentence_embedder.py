"""Embedding models in this process by sentence-transformers, which runs them with torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from agentkit_memory.errors import EmbedderUnavailable

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]

__all__ = ["SentenceTransformersEmbedder"]


class SentenceTransformersEmbedder:
    """Loads a model at its first use, downloading it once if it is not on this machine.

    Args:
        name: The model, as the hub has it, or its folder.
        label: Names the vectors, where the name of the folder does not.
        device: Where it runs: `cpu`, `cuda`, ... ; chosen by the library by default.
        batch_size: Texts that are embedded at once.
        offline: Never download.
    """

    def __init__(
        self,
        name: str | os.PathLike[str] = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        label: str | None = None,
        device: str | None = None,
        batch_size: int = 32,
        offline: bool = False,
    ) -> None:
        self._name = os.fspath(name)
        self._label = label
        self._device = device
        self._batch_size = batch_size
        self._offline = offline
        self._lock = Lock()
        self._loaded: SentenceTransformer | None = None

    @property
    def model(self) -> str:
        """Name of the vectors: `sentence-transformers:MODEL`."""
        return f"sentence-transformers:{self._label or self._name}"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per chunk, in order.

        Raises:
            EmbedderUnavailable: The library is not installed, or the model cannot be loaded or fetched.
        """
        return self._vectors("encode_document", texts)

    def embed_query(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per question, in order.

        Raises:
            EmbedderUnavailable: As `embed` does.
        """
        return self._vectors("encode_query", texts)

    def _vectors(self, how: str, texts: Sequence[str]) -> list[list[float]]:
        encode = getattr(self._model(), how)
        found: Any = encode(list(texts), batch_size=self._batch_size, show_progress_bar=False)
        return [vector.tolist() for vector in found]

    def _model(self) -> SentenceTransformer:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> SentenceTransformer:
        try:
            from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise EmbedderUnavailable(
                f"model {self.model!r}: needs sentence-transformers: install the extra `sentence-transformers`"
            ) from error
        try:
            return SentenceTransformer(self._name, device=self._device, local_files_only=self._offline)
        except Exception as error:  # of its downloader, of torch, of the disk
            message = " ".join(str(error).split())[:200]
            raise EmbedderUnavailable(
                f"model {self.model!r}: it is not on this machine and could not be fetched, or its files are damaged "
                f"({type(error).__name__}: {message}); check the name, fetch it once with a connection, or "
                "give the folder that holds it"
            ) from error
