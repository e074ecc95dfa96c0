"""Changing the model that a store is read by: what is asked of the new one, how far it is, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkit_memory.checks import is_whole
from agentkit_memory.errors import ReembedError

__all__ = ["Gate", "GateCheck", "ReembedProgress", "Reembedding"]


@dataclass(frozen=True, slots=True)
class Gate:
    """What a new space has to show before it is read.

    Raises:
        ReembedError: A share is not between 0 and 1, the sample holds nothing, or a question is no text.
    """

    sample: int = 100
    """How many items, and how many questions of the recall log, are tried."""
    self_retrieval: float = 0.9
    """Share of these items that half of their own text has to find among the best 10."""
    overlap: float = 0.8
    """Share of what was used of recent recalls, and of what is found for `questions` now, that has to be proposed."""
    failing: float = 0.0
    """Share of the items that may be left without a dense vector, found by their words only."""
    questions: Sequence[str] = ()
    """Questions to compare the spaces by, asked in the scope of the memory, beside those of the recall log."""

    def __post_init__(self) -> None:
        for name in ("self_retrieval", "overlap", "failing"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise ReembedError(f"Gate.{name}: expected a share between 0 and 1, got {value!r}")
        if not is_whole(self.sample, 1):
            raise ReembedError(f"Gate.sample: expected a whole number, 1 or more, got {self.sample!r}")
        if not isinstance(self.questions, list | tuple) or not all(isinstance(each, str) for each in self.questions):
            raise ReembedError(f"Gate.questions: expected a tuple or list of texts, got {self.questions!r}")


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One thing that a new space was asked."""

    name: str
    """`self-retrieval`, `recent recalls` or `questions`."""
    tried: int
    """How many items had to be found; with 0 there was nothing to try."""
    found: int
    least: float
    """Share that has to be found."""
    examples: tuple[str, ...] = ()
    """Ids of some items that were not found."""

    @property
    def share(self) -> float:
        """Share that was found; 1.0 where there was nothing to try."""
        return self.found / self.tried if self.tried else 1.0

    @property
    def passed(self) -> bool:
        """Whether it was enough."""
        return self.share >= self.least


@dataclass(frozen=True, slots=True)
class ReembedProgress:
    """How far a change of the model is."""

    space: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Reembedding:
    """What came of a change of the model."""

    space: str
    """The new space."""
    model: str
    """Its model; empty for BM25 alone."""
    flipped: bool
    """Whether the new space is read now."""
    why: str = ""
    """If it is not, why. It is kept and written beside the one that is read: go on, or abandon it."""
    items: int = 0
    """Items that the new space holds."""
    failing: int = 0
    """Items without a dense vector."""
    checks: tuple[GateCheck, ...] = field(default=())
    """What the new space was asked, and what it found."""
    left: tuple[str, ...] = ()
    """Spaces that are no longer read and that another process still holds; they are dropped when it lets go."""
