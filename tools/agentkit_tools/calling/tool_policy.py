"""`ToolPolicy`: time limit, retries, approval and other rules for the calls of a tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from math import inf
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from agentkit_prompts.errors import brief
from agentkit_prompts.limits import MAX_COUNT, MAX_SHOWN_CHARS
from agentkit_prompts.names import reject_unknown_fields, unknown_fields
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool_context import ToolContext

Approval: TypeAlias = (
    Literal["never", "always"] | Callable[[Mapping[str, Any], ToolContext[Any]], bool | Awaitable[bool]]
)
"""Condition under which a person must approve a call; a predicate receives the validated arguments and the context."""


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
    """Rules for the calls of a tool. Times are seconds.

    Raises:
        ToolDefinitionError: A field is unknown, or a value is out of range.
    """

    timeout: float | None = 60.0
    """Maximum time of one attempt; None: no limit. A sync function then continues in its thread; its result is
    discarded."""
    retries: int = 0
    """Maximum number of retries after failed attempts, including attempts that ignored their time limit."""
    retry_on: tuple[type[Exception], ...] = (Exception,)
    """Exceptions after which a call is retried; a timeout is a `TimeoutError`."""
    backoff: float = 0.5
    """Pause before the first retry; it doubles with each one, up to 30 seconds."""
    sequential: bool = False
    """True if calls of the same step run one after the other, because the tool has side effects."""
    concurrency: int | None = None
    """Maximum concurrent calls in one event loop; further calls wait. None: no limit."""
    max_calls: int | None = None
    """Maximum calls in one run; further calls are denied. None: no limit."""
    max_consecutive_failures: int | None = None
    """Consecutive failed calls after which the tool is unavailable for the rest of the run. None: no limit."""
    approval: Approval = "never"
    """Condition under which a call waits for a person's approval: never, always, or if a predicate returns True."""
    max_result_chars: int | None = 100_000
    """Maximum characters of a result for the model. `ToolResult.whole` contains the complete text. None: no limit."""
    repair: bool = False
    """True if arguments that are nearly JSON (trailing commas, single quotes, JSON inside a string) are repaired."""
    final: bool = False
    """True if a successful call finishes the run: its result is the answer, and the model is not called again."""

    def __post_init__(self) -> None:
        problems = {
            name: f"{name}={_shown(value)} must be {rule}"
            for name, (rule, is_right) in _RULES.items()
            if not is_right(value := getattr(self, name))
        }
        if problems:
            raise ToolDefinitionError("tool policy: " + "; ".join(problems.values()), names=problems)

    def with_changes(self, **options: Unpack[PolicyOptions]) -> ToolPolicy:
        """Return a copy of the policy with some fields changed.

        Raises:
            ToolDefinitionError: A field is unknown, or a value is out of range; the error lists all unknown fields.
        """
        fields = PolicyOptions.__annotations__
        problems = unknown_fields("ToolPolicy", options, fields)
        if problems:
            unknown = [name for name in options if name not in fields]
            raise ToolDefinitionError(f"tool policy: {'; '.join(problems)}", names=unknown)
        return replace(self, **options) if options else self

    @property
    def time_limit(self) -> float:
        """Maximum seconds of a call, `inf` for no limit, for the layer table."""
        return self.timeout or inf

    @property
    def is_plain(self) -> bool:
        """True if a call needs no approval, counter, semaphore or retry."""
        is_counted = (
            self.concurrency is not None or self.max_calls is not None or self.max_consecutive_failures is not None
        )
        return not is_counted and self.retries == 0 and self.approval == "never"


def count_problems(**counts: tuple[object, int]) -> dict[str, str]:
    """Return the problems of numbers of calls, results or characters, each with its minimum, by their names."""
    return {
        name: f"{brief(value)} must be {minimum} or more"
        for name, (value, minimum) in counts.items()
        if not _is_count(value, minimum)
    }


def check_counts(owner: str, **counts: tuple[object, int]) -> None:
    """Check numbers of calls, results or characters, each with its minimum.

    Raises:
        ToolDefinitionError: A number is not a whole number, or is less than its minimum. The error lists all of them.
    """
    problems = count_problems(**counts)
    if problems:
        listed = "; ".join([f"{name}={problem}" for name, problem in problems.items()])
        raise ToolDefinitionError(f"{owner}: {listed}", names=problems)


def _is_count(value: object, minimum: int) -> bool:
    # True and False are of type int, too.
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= MAX_COUNT


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_SECONDS


def _shown(value: object) -> str:
    """Return the representation of a value; of a function its name and parameters."""
    try:
        return f"{getattr(value, '__name__', '')}{signature(value)}"[:MAX_SHOWN_CHARS]  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return brief(value)


def _is_approval(value: object) -> bool:
    """True for a word or a predicate. A predicate that fails asks a person, so a wrong signature would stay hidden."""
    if not callable(value):
        return value in ("never", "always")
    try:
        parameters = signature(value)
    except (TypeError, ValueError):
        return True  # code in C without a signature
    try:
        parameters.bind(None, None)
    except TypeError:
        return False
    return True


def _is_exceptions(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, type) and issubclass(item, Exception) for item in value)


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "timeout": ("a number of seconds above 0, or None", lambda value: value is None or (_is_seconds(value) and value)),
    "retries": ("0 or more", lambda value: _is_count(value, 0)),
    "retry_on": ("a tuple of subclasses of Exception", _is_exceptions),
    "backoff": ("0 or more seconds", _is_seconds),
    "sequential": ("True or False", lambda value: isinstance(value, bool)),
    "concurrency": ("1 or more, or None", lambda value: value is None or _is_count(value, 1)),
    "max_calls": ("0 or more, or None", lambda value: value is None or _is_count(value, 0)),
    "max_consecutive_failures": ("1 or more, or None", lambda value: value is None or _is_count(value, 1)),
    "approval": (
        "'never', 'always' or a predicate of two arguments, such as lambda arguments, context: arguments['amount'] > 5",
        _is_approval,
    ),
    "max_result_chars": ("1 or more, or None", lambda value: value is None or _is_count(value, 1)),
    "repair": ("True or False", lambda value: isinstance(value, bool)),
    "final": ("True or False", lambda value: isinstance(value, bool)),
}
