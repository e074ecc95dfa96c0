"""`ToolPolicy`: how a tool may be run, apart from what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from agentkit_prompts.errors import brief
from agentkit_prompts.limits import MAX_COUNT
from agentkit_prompts.names import reject_unknown_fields, unknown_fields
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool_context import ToolContext

__all__ = ["Approval", "PolicyOptions", "ToolPolicy", "checked"]


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
    max_consecutive_failures: int | None
    approval: Approval
    max_result_chars: int | None
    repair: bool
    final: bool


_MAX_SECONDS = 1e9


@reject_unknown_fields(ToolDefinitionError)
@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """How a tool is run. Times are seconds.

    Raises:
        ToolDefinitionError: A field is unknown, or a value is out of range.
    """

    timeout: float | None = 60.0
    """Longest time of one attempt; None: any. A sync function goes on in its thread, whose result nobody reads."""
    retries: int = 0
    """Maximum number of retries after failed attempts, including attempts that ignored their time limit."""
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
    max_consecutive_failures: int | None = None
    """Failed calls in a row after which the tool is unavailable for the rest of the run. None: any number."""
    approval: Approval = "never"
    """Whether a call waits for a person's approval: never, always, or when a predicate asks for it."""
    max_result_chars: int | None = 100_000
    """Longest text that goes back to the model. The rest is cut, and kept in `ToolResult.whole`."""
    repair: bool = False
    """Whether arguments that are nearly JSON (trailing commas, single quotes, JSON inside a string) are repaired."""
    final: bool = False
    """Whether a call that ran to its end ends the run: its result is the answer, and the model is not asked again."""

    def __post_init__(self) -> None:
        problems = {
            name: f"{name}={brief(value)} must be {rule}"
            for name, (rule, is_right) in _RULES.items()
            if not is_right(value := getattr(self, name))
        }
        if problems:
            raise ToolDefinitionError("tool policy: " + "; ".join(problems.values()), names=problems)

    def with_changes(self, **options: Unpack[PolicyOptions]) -> ToolPolicy:
        """Return the policy with some of its fields changed.

        Raises:
            ToolDefinitionError: A field is unknown, or a value is out of range; all unknown fields are named.
        """
        fields = PolicyOptions.__annotations__
        problems = unknown_fields("ToolPolicy", options, fields)
        if problems:
            unknown = [name for name in options if name not in fields]
            raise ToolDefinitionError(f"tool policy: {'; '.join(problems)}", names=unknown)
        return replace(self, **options) if options else self

    @property
    def time_limit(self) -> float:
        """Seconds that a call may take, `inf` for any, as a spec has them for the layer table."""
        return self.timeout or inf

    @property
    def is_plain(self) -> bool:
        """Whether a call is only validated, run and shown: nothing to wait for, count, repeat or ask."""
        is_counted = (
            self.concurrency is not None or self.max_calls is not None or self.max_consecutive_failures is not None
        )
        return not is_counted and self.retries == 0 and self.approval == "never"


def checked(what: str, name: str, value: object, minimum: int) -> None:
    """Refuse an invalid number of calls or results.

    Raises:
        ToolDefinitionError: `value` is not a whole number, or is less than `minimum`.
    """
    if not _is_count(value, minimum):
        raise ToolDefinitionError(f"{what}: {name}={brief(value)} must be {minimum} or more", names=[name])


def _is_count(value: object, minimum: int) -> bool:
    # True and False are of type int, too.
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_COUNT


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_SECONDS


def _is_exceptions(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, type) and issubclass(one, Exception) for one in value)


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "timeout": ("a number of seconds above 0, or None", lambda value: value is None or (_is_seconds(value) and value)),
    "retries": ("0 or more", lambda value: _is_count(value, 0)),
    "retry_on": ("a tuple of subclasses of Exception", _is_exceptions),
    "backoff": ("0 or more seconds", _is_seconds),
    "sequential": ("True or False", lambda value: isinstance(value, bool)),
    "concurrency": ("1 or more, or None", lambda value: value is None or _is_count(value, 1)),
    "max_calls": ("0 or more, or None", lambda value: value is None or _is_count(value, 0)),
    "max_consecutive_failures": ("1 or more, or None", lambda value: value is None or _is_count(value, 1)),
    "approval": ("'never', 'always' or a predicate", lambda value: callable(value) or value in ("never", "always")),
    "max_result_chars": ("1 or more, or None", lambda value: value is None or _is_count(value, 1)),
    "repair": ("True or False", lambda value: isinstance(value, bool)),
    "final": ("True or False", lambda value: isinstance(value, bool)),
}
