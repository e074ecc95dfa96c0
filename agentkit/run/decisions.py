"""Decisions about tool calls that need a person's approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit.errors import ApprovalError
from agentkit_prompts.context.messages import ToolCall

__all__ = ["Approved", "Approver", "Decision", "Decisions", "Denied", "decision"]


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
"""Decides about one call: `True` or `Approved(...)` lets it run, `Denied(...)` does not; nothing else is an answer."""


def decision(answer: object, call: str) -> Decision:
    """Return what was decided about a call, which errors name as `call`.

    Raises:
        ApprovalError: The answer is no decision.
    """
    if isinstance(answer, Approved | Denied):
        return answer
    if answer is True:
        return Approved()
    raise ApprovalError(
        f"approval of {call}: expected True, Approved() or Denied(reason), got {answer!r:.80}; the call did not run"
    )
