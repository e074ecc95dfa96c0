"""`Limits`: what one run may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from agentkit.errors import AgentDefinitionError, LimitExceeded, UnknownOption
from agentkit_prompts.errors import brief
from agentkit_prompts.options import Count, CountOrZero, PositiveNumber, options

if TYPE_CHECKING:
    from agentkit.models.model import Usage

__all__ = ["Limits", "checked_limits"]

_NO_LIMITS = (None, None, None, None)
_ELSEWHERE = {
    "timeout": "seconds",
    "max_time": "seconds",
    "turns": "steps",
    "max_turns": "steps",
    "iterations": "steps",
    "max_iterations": "steps",
    "requests": "steps",
    "max_requests": "steps",
    "cost": "money",
    "max_cost": "money",
    "budget": "money",
    "retries": "repairs",
    "max_retries": "repairs",
    "max_tokens": "tokens",
    "depth": "nested_runs",
}
"""Names of the limits in other libraries."""


@options(AgentDefinitionError, unknown=UnknownOption, elsewhere=_ELSEWHERE)
class Limits:
    """The limits of one run. None is no limit.

    Raises:
        AgentDefinitionError: A limit is of another type or out of range. The error lists every problem.
        UnknownOption: A name is no limit.
    """

    steps: Count = 16
    """Model calls."""
    tool_calls: CountOrZero | None = None
    """Tool calls. A reply with more calls than are left runs none of them."""
    tokens: Count | None = None
    """Input and output tokens, as the model reports them. Checked between steps. Runs inside of this one draw on what
    is left; of those that run at the same time none sends a prompt for which the others leave no room."""
    input_tokens: Count | None = None
    """Input tokens, as the model reports them. Checked between steps."""
    output_tokens: Count | None = None
    """Output tokens, as the model reports them. Checked between steps."""
    money: PositiveNumber | None = None
    """US dollars, for all models that have a price: checked between steps. A run whose model has none is refused before
    anything is sent. Runs inside of this one draw on what is left, as they do on tokens."""
    seconds: PositiveNumber | None = None
    """Wall time; the run is cancelled then. What does not end when it is cancelled is left behind a few seconds later;
    only code that blocks the event loop itself holds it up."""
    nested_runs: CountOrZero = 8
    """How deep runs may be inside of each other, where tools call agents. Tokens of the inner ones count here too."""
    repairs: CountOrZero = 2
    """Turns in which the model may repair an answer that is not the output type."""

    on_limit: Literal["raise", "return"] = "raise"
    """Whether a run raises at a limit, or returns what it has, with the reason in `RunResult.limit`."""

    def check(self, usage: Usage) -> None:
        """Check what was used so far.

        Raises:
            LimitExceeded: It is more than one of the limits on tokens or money.
        """
        if (self.tokens, self.input_tokens, self.output_tokens, self.money) == _NO_LIMITS:
            return
        used = (
            ("tokens", usage.input_tokens + usage.output_tokens),
            ("input_tokens", usage.input_tokens),
            ("output_tokens", usage.output_tokens),
            ("money", usage.money or 0.0),
        )
        for name, spent in used:
            allowed = getattr(self, name)
            if allowed is not None and spent > allowed:
                raise LimitExceeded(name, allowed, "allow more, or shorten the prompt")


def checked_limits(limits: object) -> Limits:
    """Return what an agent or a run was given as its limits.

    Raises:
        AgentDefinitionError: It is something else.
    """
    if isinstance(limits, Limits):
        return limits
    raise AgentDefinitionError(
        f"limits: expected Limits, such as Limits(steps=8, seconds=60), got {brief(limits, 60)}",
        name="limits",
        value=type(limits).__name__,
    )
