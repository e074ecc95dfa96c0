"""`Gate`: the checks of a new model; `Reembedding`: the result of a change; `ReembedProgress`: how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkit_memory.errors import InvalidArgument
from agentkit_prompts.options import Count, Share, options

__all__ = ["Gate", "GateCheck", "ReembedProgress", "Reembedding"]


@options(InvalidArgument)
class Gate:
    """The checks that a new space has to pass before it becomes the active one.

    Raises:
        InvalidArgument: A share is not between 0 and 1, the sample is below 1, or a question is not text.
    """

    sample: Count = 100
    """How many items, and how many questions of the recall logs, are tried."""
    self_retrieval: Share = 0.9
    """Share of these items that must be among the best 10 for half of their own text."""
    overlap: Share = 0.8
    """Share of the items used by recent recalls, and of the hits for `questions` so far, that must be found again."""
    failing: Share = 0.0
    """Share of the items that may be left without a dense vector, for BM25 only."""
    questions: Sequence[str] = ()
    """More questions to compare the spaces by, in the scope of the memory."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """The outcome of one check."""

    name: str
    """`self-retrieval`, `recent recalls` or `questions`."""
    tried: int
    """How many items had to be found; 0 where there was nothing to try."""
    found: int
    minimum: float
    """Share that has to be found."""
    examples: tuple[str, ...] = ()
    """Ids of some items that were not found."""

    @property
    def share(self) -> float:
        """Share that was found; 1.0 where there was nothing to try."""
        return self.found / self.tried if self.tried else 1.0

    @property
    def passed(self) -> bool:
        """Whether the share is large enough."""
        return self.share >= self.minimum


@dataclass(frozen=True, slots=True)
class ReembedProgress:
    """How far a change of the model is."""

    space: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Reembedding:
    """The result of a change of the model."""

    space: str
    """The new space."""
    model: str
    """Its model; empty for BM25 alone."""
    flipped: bool
    """Whether the new space is the active one now."""
    why: str = ""
    """Why not, if so. The new space is kept up to date meanwhile: go on, or abandon it."""
    items: int = 0
    """Items that the new space holds."""
    failing: int = 0
    """Items without a dense vector."""
    checks: tuple[GateCheck, ...] = field(default=())
    """The checks of the gate."""
    left: tuple[str, ...] = ()
    """Retired spaces that another process still holds; they are dropped once it closes them."""
