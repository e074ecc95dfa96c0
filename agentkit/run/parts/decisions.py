"""Decisions about tool calls that need a person's approval."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agentkit.errors import ApprovalError, Paused
from agentkit_prompts.context.messages import ToolCall

__all__ = [
    "Approved",
    "Approver",
    "Decision",
    "Decisions",
    "Denied",
    "checked_approver",
    "decision",
    "decision_data",
    "inner_pause",
    "read_decision",
]


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run, with the arguments of the model, or with `arguments`, which are validated like these."""

    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run. The model reads the reason."""

    reason: str = ""


Decision: TypeAlias = Approved | Denied
Decisions: TypeAlias = Mapping[str, Decision | bool]
"""Decisions by the ids of the calls."""
Approver: TypeAlias = Callable[[ToolCall], "Decision | bool | Awaitable[Decision | bool]"]
"""Decides about one call: `True` or `Approved(...)` lets it run, `False` or `Denied(...)` does not; nothing else is an
answer."""


def decision(answer: object, call: str) -> Decision:
    """Return what was decided about a call, which errors name as `call`.

    Raises:
        ApprovalError: The answer is no decision.
    """
    if isinstance(answer, Approved):
        if answer.arguments is not None:
            _check_arguments(answer.arguments, call)
        return answer
    if isinstance(answer, Denied) and isinstance(answer.reason, str):
        return answer
    if isinstance(answer, bool):
        return Approved() if answer else Denied()
    raise ApprovalError(
        f"approval of {call}: expected True, False, Approved() or Denied(reason), got {answer!r:.80}; "
        "the call did not run",
        name=call,
        value=type(answer).__name__,
    )


def checked_approver(approve: object) -> Approver | Decisions | None:
    """Return what a run was given to decide about calls.

    Raises:
        ApprovalError: It can decide nothing.
    """
    if approve is None:
        return None
    if callable(approve) or isinstance(approve, Mapping):
        return cast("Approver | Decisions", approve)
    raise ApprovalError(
        "approve: expected a function of a call, such as `lambda call: True`, or decisions by the ids of calls, "
        f"got {approve!r:.80}",
        name="approve",
        value=type(approve).__name__,
    )


def inner_pause(error: BaseException) -> ApprovalError | None:
    """Return what ends a run where plain code in it ran an agent that paused; None where `error` is something else.

    What runs an agent in a line of its own cannot be gone on with in the middle: an agent as a tool can.
    """
    found: Any = error.subgroup(Paused) if isinstance(error, BaseExceptionGroup) else error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if not isinstance(found, Paused) or found.journal is None:  # without one, it is this run that pauses
        return None
    calls = ", ".join(f"{call.name} ({call.id})" for call in found.calls)
    raised = ApprovalError(
        f"the agent {found.journal.agent!r}, which plain code runs, waits for a decision about {calls}, and the run "
        "around it cannot wait there. Give the agent as a tool, tools=[inner.as_tool(name=..., description=...)]: then "
        "both pause, and resume together. Or give its run approve=, or catch Paused where it is run",
        name=found.journal.agent,
        value=calls,
    )
    raised.__cause__ = found
    return raised


def decision_data(made: Decision) -> dict[str, Any]:
    """Return a decision as JSON data: `approve`, `reason` and `arguments`. Journals, stores and HTTP use this form."""
    if isinstance(made, Denied):
        return {"approve": False, "reason": made.reason, "arguments": None}
    return {"approve": True, "reason": "", "arguments": None if made.arguments is None else dict(made.arguments)}


def read_decision(data: Mapping[str, Any]) -> Decision:
    """Return the decision of JSON data; `reason` and `arguments` may be missing.

    Raises:
        TypeError: It is something else.
        KeyError: It is something else.
    """
    is_approved, reason, arguments = data["approve"], data.get("reason"), data.get("arguments")
    if not isinstance(is_approved, bool):
        raise TypeError(f"expected approve as true or false, got {type(is_approved).__name__}")
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"expected the reason as text, got {type(reason).__name__}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"expected the arguments as an object, got {type(arguments).__name__}")
    return Approved(arguments) if is_approved else Denied(reason or "")


def _check_arguments(arguments: object, call: str) -> None:
    problem = "" if isinstance(arguments, Mapping) else f"expected a mapping, got {type(arguments).__name__}"
    if isinstance(arguments, Mapping):
        try:
            json.dumps(dict(arguments))
        except (TypeError, ValueError, RecursionError) as error:
            problem = str(error)
    if problem:
        raise ApprovalError(
            f"approval of {call}: its arguments have no JSON form: {problem}; the call did not run", name=call
        )
