"""`Limits`: what one run may use."""

from __future__ import annotations

from dataclasses import dataclass

from agentkit.errors import AgentDefinitionError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use at most. None means no limit.

    Raises:
        AgentDefinitionError: A limit that nothing can stay within.
    """

    steps: int = 16
    """Model calls."""
    tool_calls: int | None = None
    """Tool calls. A reply with more calls than are left runs none of them."""
    tokens: int | None = None
    """Input and output tokens, as the model reports them. Checked between steps."""
    seconds: float | None = None
    """Wall time; the run is cancelled then."""
    nested_runs: int = 8
    """How deep runs may be inside of each other, where tools call agents. Tokens of the inner ones count here too."""
    repairs: int = 2
    """Turns in which the model may repair an answer that is not the output type."""

    def __post_init__(self) -> None:
        lowest = {"steps": 1, "tool_calls": 0, "tokens": 1, "nested_runs": 0, "repairs": 0}
        wrong = [
            f"{name}={value!r} must be {low} or more"
            for name, low in lowest.items()
            if (value := getattr(self, name)) is not None and not value >= low
        ]
        if self.seconds is not None and not self.seconds > 0:
            wrong.append(f"seconds={self.seconds!r} must be above 0, or None")
        if wrong:
            raise AgentDefinitionError(f"limits: {'; '.join(wrong)}")
