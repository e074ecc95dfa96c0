"""`Gate`: the checks of a new model; `Reembedding` and `ReembedProgress`: result and progress of a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentkit_memory.errors import InvalidArgument
from agentkit_prompts.options import Count, Share, options


@options(InvalidArgument)
class Gate:
    """The checks that a new space has to pass before it becomes the active space.

    Raises:
        InvalidArgument: A share is not between 0 and 1, the sample is below 1, or a question is not text.
    """

    sample: Count = 100
    """Number of items, and number of questions of the recall logs, to try."""
    self_retrieval: Share = 0.9
    """Minimum share of these items among the best 10 hits for half of their text."""
    overlap: Share = 0.8
    """Minimum share of items of recent recalls, and of the present hits for `questions`, that must be found again."""
    failing: Share = 0.0
    """Maximum share of items without a dense vector, which only BM25 finds."""
    questions: Sequence[str] = ()
    """Further questions to compare the spaces with, in the scope of the memory."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """The outcome of one check."""

    name: str
    """`self-retrieval`, `recent recalls` or `questions`."""
    tried: int
    """Number of items that had to be found; 0 if nothing could be tried."""
    found: int
    """Number of items that were found."""
    minimum: float
    """Minimum share of items to find."""
    examples: tuple[str, ...] = ()
    """Ids of some items that were not found."""

    @property
    def share(self) -> float:
        """Share of items that were found; 1.0 if nothing could be tried."""
        if not self.tried:
            return 1.0
        return self.found / self.tried

    @property
    def passed(self) -> bool:
        """True if the share is large enough."""
        return self.share >= self.minimum


@dataclass(frozen=True, slots=True)
class ReembedProgress:
    """Progress of a change of the model."""

    space: str
    done: int
    """Number of items in the new space."""
    total: int
    """Number of items that the new space will contain."""


@dataclass(frozen=True, slots=True)
class Reembedding:
    """The result of a change of the model."""

    space: str
    """The new space."""
    model: str
    """Model of the new space; empty for BM25 alone."""
    flipped: bool
    """True if the new space is the active space now."""
    why: str = ""
    """Reason why the new space is not active, else empty. The space stays up to date until it is abandoned."""
    items: int = 0
    """Items in the new space."""
    failing: int = 0
    """Items without a dense vector."""
    checks: tuple[GateCheck, ...] = field(default=())
    """The checks of the gate."""
    left: tuple[str, ...] = ()
    """Retired spaces that another process still uses; they are dropped after it has closed them."""
