"""`ToolPolicy`: how a tool may be run, apart from what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict

from agentkit_tools.context import ToolContext
from agentkit_tools.errors import ToolDefinitionError

__all__ = ["Approval", "PolicyOptions", "ToolPolicy"]

Approval: TypeAlias = (
    Literal["never", "always"] | Callable[[Mapping[str, Any], ToolContext[Any]], bool | Awaitable[bool]]
)
"""Whether a person must agree to a call first; a predicate receives the validated arguments and the context."""


class PolicyOptions(TypedDict, total=False):
    """The fields of `ToolPolicy` as keyword arguments."""

    timeout: float | None
    retries: int
    retry_on: tuple[type[Exception], ...]
    backoff: float
    sequential: bool
    concurrency: int | None
    max_calls: int | None
    approval: Approval
    max_result_chars: int | None
    repair: bool


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """How a tool is run. Times are seconds.

    Raises:
        ToolDefinitionError: A value is out of range.
    """

    timeout: float | None = None
    """Longest time one attempt may take. A sync function goes on in its daemon thread, whose result nobody reads."""
    retries: int = 0
    """How often a failed attempt is repeated."""
    retry_on: tuple[type[Exception], ...] = (Exception,)
    """The exceptions that are worth another attempt; a timeout counts as `TimeoutError`."""
    backoff: float = 0.5
    """Pause before the first retry; it doubles with each one, up to 30 seconds."""
    sequential: bool = False
    """Whether calls in the same turn wait for each other, because the tool has side effects."""
    concurrency: int | None = None
    """How many calls may run at once in one event loop; the others wait."""
    max_calls: int | None = None
    """How many calls one run may make; further ones are denied."""
    approval: Approval = "never"
    """Whether a call waits for a person's approval: never, always, or when a predicate says so."""
    max_result_chars: int | None = 100_000
    """Longest text that goes back to the model. The rest is cut, and kept in `ToolResult.whole`."""
    repair: bool = False
    """Whether arguments that are nearly JSON (trailing commas, single quotes, JSON inside a string) are mended."""

    def __post_init__(self) -> None:
        problems = [
            f"{name}={getattr(self, name)!r} must be {rule}"
            for name, rule, wrong in (
                ("timeout", "a number of seconds above 0, or None", self.timeout is not None and not self.timeout > 0),
                ("retries", "0 or more", self.retries < 0),
                ("backoff", "0 or more seconds", not self.backoff >= 0),
                ("concurrency", "1 or more, or None", self.concurrency is not None and self.concurrency < 1),
                ("max_calls", "0 or more, or None", self.max_calls is not None and self.max_calls < 0),
                ("approval", "'never', 'always' or a predicate", not _is_approval(self.approval)),
                (
                    "max_result_chars",
                    "1 or more, or None",
                    self.max_result_chars is not None and self.max_result_chars < 1,
                ),
            )
            if wrong
        ]
        if problems:
            raise ToolDefinitionError("tool policy: " + "; ".join(problems))

    def but(self, **options: Any) -> ToolPolicy:
        """Return the policy with some of its fields changed."""
        return replace(self, **options) if options else self

    @property
    def is_plain(self) -> bool:
        """Whether a call is only validated, run and shown: nothing to wait for, count, repeat or ask."""
        return self.retries == 0 and self.concurrency is None and self.max_calls is None and self.approval == "never"


def _is_approval(approval: object) -> bool:
    return approval in ("never", "always") or callable(approval)
