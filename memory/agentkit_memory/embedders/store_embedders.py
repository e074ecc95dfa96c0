"""`Embedders`: the embedders of a store, by the names of their models."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from agentkit_memory.embedders.by_name import embedder_named
from agentkit_memory.embedders.contract import Embed, Vector
from agentkit_memory.embedders.encoder import Encoder
from agentkit_memory.errors import EmbedderUnavailable
from agentkit_memory.process.event_loop import LoopThread
from agentkit_memory.store.engine import Database
from agentkit_memory.store.spaces import Space
from agentkit_prompts.ranking.embedder import Embedder

__all__ = ["Embedders"]


class Embedders:
    """The embedders that were given to a store. Threads may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._loop = LoopThread()
        self._encoders: dict[str, Encoder] = {}

    def add(self, embedder: Embedder | str) -> Encoder:
        """Use this embedder, or the one of that name, for the vectors of its model from now on.

        Raises:
            EmbedderError: It has no `model` name, or the name is unknown.
        """
        if isinstance(embedder, str):
            embedder = embedder_named(embedder)
        encoder = Encoder(embedder, self._database, self._loop)
        self._encoders[encoder.model] = encoder
        return encoder

    def get(self, model: str) -> Encoder:
        """Return the encoder of a model.

        Raises:
            EmbedderUnavailable: None was given.
        """
        found = self._encoders.get(model)
        if found is None:
            raise EmbedderUnavailable(
                f"{self._database.where}: this store is read by model {model!r}, and no embedder of it was given; "
                "BM25 still works: for dense retrieval, open it with `embedder=`"
            )
        return found

    def embed(self, model: str) -> Embed:
        """Return a function for the vectors of a model, whether or not its embedder was given yet."""
        return _Model(self, model)

    def question(self, space: Space, text: str) -> Vector | None:
        """Return the vector of a question in a space; None if the space has no model.

        Raises:
            EmbedderError: Its embedder was not given, failed, or returned something else.
        """
        return self.get(space.model).questions([text])[0] if space.model else None

    def close(self) -> None:
        """End the event loop of async embedders."""
        self._loop.close()


class _Model:
    def __init__(self, embedders: Embedders, model: str) -> None:
        self._embedders = embedders
        self._name = model

    def __call__(self, texts: Sequence[str]) -> list[Vector]:
        return self._embedders.get(self._name)(texts)

    def keep(self, connection: Connection, texts: Sequence[str]) -> None:
        self._embedders.get(self._name).keep(connection, texts)
