"""`Reading`: what one recall reads, all of one space, whichever space comes to be read meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentkit_memory.embedders.store_embedders import Embedders
from agentkit_memory.index.indexes import Indexes
from agentkit_memory.index.spaces import Space
from agentkit_memory.index.vector_index import VectorIndex
from agentkit_memory.store.engine import Database
from agentkit_memory.store.recall_logs import RecallLogs

__all__ = ["Reading"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A database, the index of one space of it, and the model of that space."""

    database: Database
    logs: RecallLogs
    indexes: Indexes
    embedders: Embedders
    space: Space

    def index(self) -> VectorIndex:
        """Return the index as it is.

        Raises:
            IndexBusy: Another process owns it.
        """
        return self.indexes.get(self.space)

    def catch_up(self) -> VectorIndex:
        """Return the index after bringing it up to date.

        Raises:
            IndexBusy: Another process owns it.
        """
        return self.indexes.catch_up(self.space)

    def embed(self, question: str) -> Sequence[float] | None:
        """Return the dense vector of a question, None where the space has no model.

        Raises:
            EmbedderError: There is no embedder of the model, or it fails.
        """
        return self.embedders.question(self.space, question)
