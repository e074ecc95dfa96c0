"""`Embedders`: the embedders of a store, by the names of their models, such as `fastembed:BAAI/bge-small-en-v1.5`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentkit_memory.database.engine import Database
from agentkit_memory.embedders.contract import ModelEmbedder
from agentkit_memory.embedders.encoder import Encoder
from agentkit_memory.embedders.local_embedders import FastembedEmbedder, SentenceTransformersEmbedder
from agentkit_memory.embedders.openai_embedder import OpenAIEmbedder
from agentkit_memory.errors import EmbedderError, EmbedderUnavailable
from agentkit_memory.process.embedder_calls import EmbedderCalls
from agentkit_prompts.names import nearest
from agentkit_prompts.ranking.embedder import Embedder


class Embedders:
    """The embedders of a store, one per model. Threads may share the object."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = EmbedderCalls()
        self._encoders: dict[str, Encoder] = {}

    def add(self, embedder: Embedder | str) -> Encoder:
        """Add an embedder, or the embedder with a name, for the vectors of its model; return its encoder.

        Raises:
            EmbedderError: The embedder has no `model` name, or the name is unknown.
        """
        if isinstance(embedder, str):
            embedder = embedder_named(embedder)
        encoder = Encoder(embedder, self._database, self._calls)
        self._encoders[encoder.model] = encoder
        return encoder

    def get(self, model: str) -> Encoder:
        """Return the encoder of a model.

        Raises:
            EmbedderUnavailable: The store was opened without an embedder of this model.
        """
        encoder = self._encoders.get(model)
        if encoder is None:
            raise EmbedderUnavailable(
                f"{self._database.where}: this store uses model {model!r}, and was opened without an embedder of it; "
                "BM25 still works: for dense retrieval, open it with `embedder=`",
                name=model,
            )
        return encoder

    def close(self) -> None:
        """Cancel the calls of async embedders."""
        self._calls.close()


def _openai(name: str) -> ModelEmbedder:
    model, _, size = name.partition("@")
    dimensions = None
    if size.isascii() and size.isdigit():
        dimensions = int(size)
    return OpenAIEmbedder(model, dimensions=dimensions)


_KINDS: Mapping[str, Callable[[str], ModelEmbedder]] = {
    "fastembed": FastembedEmbedder,
    "openai": _openai,
    "sentence-transformers": SentenceTransformersEmbedder,
}


def embedder_named(name: str) -> ModelEmbedder:
    """Return the embedder with a name, KIND:MODEL. The model is not loaded or called yet.

    Raises:
        EmbedderError: The name is not KIND:MODEL, or the kind is unknown.
    """
    kind, _, model = name.partition(":")
    make = _KINDS.get(kind)
    if make is None or not model:
        hint = f", such as {kind}:MODEL"
        if make is None:
            hint = nearest(kind, _KINDS)
        raise EmbedderError(
            f"embedder {name.rpartition('@')[2]!r:.80}: expected KIND:MODEL{hint}", name="embedder", value=kind
        )
    return make(model)
