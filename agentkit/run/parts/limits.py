"""`Limits`: the limits of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from agentkit.errors import AgentDefinitionError, LimitExceeded, UnknownOption
from agentkit_prompts.errors import brief
from agentkit_prompts.options import Count, CountOrZero, PositiveNumber, options

if TYPE_CHECKING:
    from agentkit.models.model import Usage

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
"""Names of the limits in other libraries, used in error messages."""


@options(AgentDefinitionError, unknown=UnknownOption, elsewhere=_ELSEWHERE)
class Limits:
    """Limits of one run. None means unlimited.

    Raises:
        AgentDefinitionError: A limit has another type or is out of range. The error lists every problem.
        UnknownOption: A name is not a limit.
    """

    steps: Count = 16
    """Model calls."""
    tool_calls: CountOrZero | None = None
    """Tool calls. If a reply exceeds the limit, none of its calls runs."""
    tokens: Count | None = None
    """Input and output tokens, as the model reports them. Checked between steps. Inner runs use the remaining tokens;
    concurrent inner runs reserve tokens before they send a prompt."""
    input_tokens: Count | None = None
    """Input tokens, as the model reports them. Checked between steps."""
    output_tokens: Count | None = None
    """Output tokens, as the model reports them. Checked between steps."""
    money: PositiveNumber | None = None
    """US dollars. Checked between steps. A run whose model has no price is refused before its first request. Inner runs
    use the remaining money, as for `tokens`."""
    seconds: PositiveNumber | None = None
    """Wall time, after which the run is cancelled. The run waits a few seconds for code that ignores the cancellation;
    only code that blocks the event loop can delay it longer."""
    nested_runs: CountOrZero = 8
    """Maximum depth of inner runs, when tools call agents. Tokens of inner runs count in the outer run too."""
    repairs: CountOrZero = 2
    """Model calls that repair an answer which does not match the output type."""

    on_limit: Literal["raise", "return"] = "raise"
    """`raise`: the run raises at a limit. `return`: it returns its last text, with the limit in `RunResult.limit`."""
    on_tool_error: Literal["report", "raise"] = "report"
    """`report`: the model receives the error of a tool, `RunResult.tool_errors` lists it, and the run continues.
    `raise`: the run raises `ToolCallError` after the calls of the reply. Arguments that a tool refuses, and unknown
    tools, are always reported to the model, which can correct them."""

    def check(self, usage: Usage) -> None:
        """Check the usage so far.

        Raises:
            LimitExceeded: The usage exceeds a limit on tokens or money.
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
                raise LimitExceeded(name, allowed, "raise the limit, or shorten the prompt")


def checked_limits(limits: object) -> Limits:
    """Return the limits of an agent or a run.

    Raises:
        AgentDefinitionError: The value is not a `Limits`.
    """
    if isinstance(limits, Limits):
        return limits
    raise AgentDefinitionError(
        f"limits: expected Limits, such as Limits(steps=8, seconds=60), got {brief(limits, 60)}",
        name="limits",
        value=type(limits).__name__,
    )
