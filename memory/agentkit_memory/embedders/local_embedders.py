"""Embedding models in this process: fastembed runs them with ONNX, sentence-transformers with torch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from agentkit_memory.embedders.local_model import LocalModel
from agentkit_memory.errors import EmbedderError
from agentkit_prompts.errors import check_types
from agentkit_prompts.extras import install
from agentkit_prompts.names import nearest

_HUB_NAME = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class FastembedEmbedder(LocalModel):
    """Loads a model at its first use, downloading it once if it is not on this machine.

    Args:
        name: Name of the model in `TextEmbedding.list_supported_models()`.
        cache_dir: Folder of downloaded models; the default of fastembed is a temporary folder.
        threads: Maximum threads of a call.
        batch_size: Texts that are embedded at once.
        offline: Never download.
    """

    _needs = f"fastembed: {install('dense')}"
    _advice = "download the model once, and pass its folder as cache_dir="

    def __init__(
        self,
        name: str = "BAAI/bge-small-en-v1.5",
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        batch_size: int = 32,
        offline: bool = False,
    ) -> None:
        check_types(
            EmbedderError,
            "FastembedEmbedder",
            name=(name, str, "the name of a model"),
            cache_dir=(cache_dir, (str, os.PathLike, type(None)), "the path of a folder"),
            threads=(threads, (int, type(None)), "a whole number"),
            batch_size=(batch_size, int, "a whole number"),
            offline=(offline, bool, "True or False"),
        )
        super().__init__(f"fastembed:{name}", batch_size)
        self._name = name
        self._settings: dict[str, Any] = {"threads": threads, "local_files_only": offline}
        if cache_dir is not None:
            self._settings["cache_dir"] = os.fspath(cache_dir)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per chunk, in order.

        Raises:
            EmbedderUnavailable: fastembed is not installed, or the model cannot be loaded or fetched.
            EmbedderError: The model is unknown.
        """
        size = self._batch_size
        return self._vectors(texts, lambda model, batch: model.passage_embed(batch, batch_size=size))

    def embed_query(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per question, in order. Raises like `embed`."""
        return self._vectors(texts, lambda model, batch: model.query_embed(batch))

    def _load(self) -> Any:
        from fastembed import TextEmbedding  # pyright: ignore[reportMissingImports]

        names = {each["model"].lower(): each["model"] for each in TextEmbedding.list_supported_models()}
        if self._name.lower() not in names:
            hint = nearest(self._name, names.values())
            raise EmbedderError(f"model {self.model!r}: fastembed has no model of this name{hint}", name=self.model)
        return TextEmbedding(self._name, **self._settings)


class SentenceTransformersEmbedder(LocalModel):
    """Loads a model at its first use, downloading it once if it is not on this machine.

    Args:
        name: Name of the model on the hub, or its folder as a `Path`: a string is never read as a folder.
        label: Name of the model that its stored vectors refer to; by default `name`, or the path of the folder.
        device: Device of the model, such as `cpu` or `cuda`; by default the library chooses.
        batch_size: Texts that are embedded at once.
        offline: Never download.

    Raises:
        EmbedderError: `name` is a string, but not a name of the hub; for example, it is a path.
    """

    _needs = f"sentence-transformers: {install('sentence-transformers')}"
    _advice = "check the name, download the model once, or pass its folder as a pathlib.Path"

    def __init__(
        self,
        name: str | os.PathLike[str] = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        label: str | None = None,
        device: str | None = None,
        batch_size: int = 32,
        offline: bool = False,
    ) -> None:
        check_types(
            EmbedderError,
            "SentenceTransformersEmbedder",
            name=(name, (str, os.PathLike), "the name of a model, or its folder as a Path"),
            label=(label, (str, type(None)), "a name"),
            device=(device, (str, type(None)), "the name of a device"),
            batch_size=(batch_size, int, "a whole number"),
            offline=(offline, bool, "True or False"),
        )
        self._name = os.fspath(name)
        super().__init__(f"sentence-transformers:{label or self._name}", batch_size)
        self._is_of_hub = isinstance(name, str)
        if self._is_of_hub and (not _HUB_NAME.fullmatch(self._name) or ".." in self._name):
            raise EmbedderError(
                f"model {self._name[:200]!r}: expected its name on the hub, MODEL or OWNER/MODEL; a folder is passed "
                "to SentenceTransformersEmbedder as a pathlib.Path",
                name="model",
            )
        self._settings = {"device": device, "local_files_only": offline, "trust_remote_code": False}
        self._options = {"batch_size": batch_size, "show_progress_bar": False}

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per chunk, in order.

        Raises:
            EmbedderUnavailable: The library is not installed, or the model cannot be loaded or fetched.
        """
        options = self._options
        return self._vectors(texts, lambda model, batch: model.encode_document(batch, **options))

    def embed_query(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per question, in order. Raises like `embed`."""
        options = self._options
        return self._vectors(texts, lambda model, batch: model.encode_query(batch, **options))

    def _load(self) -> Any:
        from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]

        # The library would load a file or folder with this name as the model.
        if self._is_of_hub and os.path.lexists(self._name):
            raise EmbedderError(
                f"model {self.model!r}: expected a name of the hub, but the current folder contains {self._name!r} "
                "too; to load that folder, pass it as a pathlib.Path",
                name="model",
                value=self._name,
            )
        return SentenceTransformer(self._name, **self._settings)
