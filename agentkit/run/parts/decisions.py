"""Decisions about tool calls that need a person's approval."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agentkit.errors import ApprovalError, Paused
from agentkit_prompts.context.messages import ToolCall

INVALID_ARGUMENTS = "arguments"
"""Name of an `ApprovalError` for invalid changed arguments."""


@dataclass(frozen=True, slots=True)
class Approved:
    """The call is allowed, with the arguments of the model or with `arguments`, which are validated too."""

    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call is denied. The model receives the reason."""

    reason: str = ""


Decision: TypeAlias = Approved | Denied
Decisions: TypeAlias = Mapping[str, Decision | bool]
"""Decisions by the ids of the calls."""
Approver: TypeAlias = Callable[[ToolCall], "Decision | bool | Awaitable[Decision | bool]"]
"""Decides about one call: `True` or `Approved(...)` allows the call, `False` or `Denied(...)` denies it."""


def decision(answer: object, call: str) -> Decision:
    """Return the decision about a call.

    Args:
        answer: Result of an approver, or a value of `decisions`.
        call: Name of the call in errors.

    Raises:
        ApprovalError: The answer is not a decision.
    """
    if isinstance(answer, Approved):
        if answer.arguments is not None:
            _check_arguments(answer.arguments, call)
        return answer
    if isinstance(answer, Denied) and isinstance(answer.reason, str):
        return answer
    if answer is True:
        return Approved()
    if answer is False:
        return Denied()
    raise ApprovalError(
        f"approval of {call}: expected True, False, Approved() or Denied(reason), got {answer!r:.80}; "
        "the call did not run",
        name=call,
        value=type(answer).__name__,
    )


def checked_approver(approve: object) -> Approver | Decisions | None:
    """Return the approver, or the decisions, of a run.

    Raises:
        ApprovalError: The value is neither callable nor a mapping.
    """
    if approve is None:
        return None
    if callable(approve) or isinstance(approve, Mapping):
        return cast("Approver | Decisions", approve)
    raise ApprovalError(
        "approve: expected a function of a call, such as `lambda call: True`, or decisions by the ids of calls, such "
        f"as {{call.id: True for call in paused.calls}}, got {approve!r:.80}",
        name="approve",
        value=type(approve).__name__,
    )


def inner_pause(error: BaseException) -> ApprovalError | None:
    """Return the error of a run whose tool code ran another agent that paused; None for any other `error`.

    The code of a tool cannot be resumed in the middle; an agent as a tool can be resumed.
    """
    paused: Any = error
    if isinstance(error, BaseExceptionGroup):
        paused = error.subgroup(Paused)
    while isinstance(paused, BaseExceptionGroup):
        paused = paused.exceptions[0]
    # Without a journal, the pause is of this run: its journal is added when the run ends.
    if not isinstance(paused, Paused) or paused.journal is None:
        return None
    calls = ", ".join(f"{call.name} ({call.id})" for call in paused.calls)
    approval_error = ApprovalError(
        f"the agent {paused.journal.agent!r}, run by a function, waits for a decision about {calls}, but the outer run "
        "cannot pause inside a function. Use the agent as a tool, tools=[inner.as_tool(name=..., description=...)]: "
        "then both runs pause and resume together. Or pass approve= to the inner run, or catch Paused in the function",
        name=paused.journal.agent,
        value=calls,
    )
    approval_error.__cause__ = paused
    return approval_error


def decision_data(decision: Decision) -> dict[str, Any]:
    """Return a decision as JSON data: `approve`, `reason` and `arguments`. Journals, stores and HTTP use this form."""
    if isinstance(decision, Denied):
        return {"approve": False, "reason": decision.reason, "arguments": None}
    arguments = decision.arguments
    if arguments is not None:
        arguments = dict(arguments)
    return {"approve": True, "reason": "", "arguments": arguments}


def read_decision(data: Mapping[str, Any]) -> Decision:
    """Return the decision of JSON data; `reason` and `arguments` can be missing.

    Raises:
        TypeError: A value has another type.
        KeyError: `approve` is missing.
    """
    is_approved, reason, arguments = data["approve"], data.get("reason"), data.get("arguments")
    if not isinstance(is_approved, bool):
        raise TypeError(f"expected approve as true or false, got {type(is_approved).__name__}")
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"expected the reason as text, got {type(reason).__name__}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"expected the arguments as an object, got {type(arguments).__name__}")
    if not is_approved:
        return Denied(reason or "")
    return Approved(arguments)


def _check_arguments(arguments: object, call: str) -> None:
    """Refuse arguments of a decision that are no JSON object."""
    try:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"expected a mapping, got {type(arguments).__name__}")
        json.dumps(dict(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        raise ApprovalError(
            f"approval of {call}: its arguments have no JSON form: {error}; the call did not run", name=call
        ) from None


def invalid_arguments(run_id: str, problems: Sequence[str], value: str = "") -> ApprovalError:
    """Return the error for changed arguments with problems; `value` has the ids of their calls."""
    message = f"run {run_id!r}: invalid arguments: {'; '.join(problems)}; nothing was decided"
    return ApprovalError(message, name=INVALID_ARGUMENTS, value=value)
