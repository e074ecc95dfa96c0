"""`SpaceReader`: what one recall reads, all of one space, whichever space becomes the active one meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.vector_index import VectorIndex
from agentkit_memory.store.engine import Database
from agentkit_memory.store.recall_logs import RecallLogs
from agentkit_memory.store.spaces import Space

__all__ = ["SpaceReader"]


@dataclass(frozen=True, slots=True)
class SpaceReader:
    """A database, the index of one of its spaces, and the model of that space."""

    database: Database
    logs: RecallLogs
    indexes: Indexes
    embedders: Embedders
    space: Space

    def index(self) -> VectorIndex:
        """Return the index without catching up.

        Raises:
            IndexBusy: Another process owns it.
        """
        return self.indexes.get(self.space)

    def catch_up(self) -> VectorIndex:
        """Return the index after writing to it what the outbox holds.

        Raises:
            IndexBusy: Another process owns it.
        """
        return self.indexes.catch_up(self.space)

    def embed(self, question: str) -> Sequence[float] | None:
        """Return the dense vector of a question, None where the space has no model.

        Raises:
            EmbedderError: The embedder of the model was not given, or fails.
        """
        return self.embedders.question(self.space, question)
