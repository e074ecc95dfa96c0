"""Everything that can go wrong in a run that is not the fault of a prompt, a tool, a model or memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit_prompts.messages import Message

__all__ = ["AgentError", "LimitExceeded", "OutputError"]


class AgentError(Exception):
    """Base of the errors of the runtime."""


class LimitExceeded(AgentError):
    """A run reached one of its limits. What was said until then is in the session, a valid history.

    Attributes:
        limit: Name of the limit: `steps`, `tool_calls`, `tokens` or `seconds`.
        messages: The messages of the run so far.
    """

    def __init__(self, limit: str, allowed: float, advice: str, messages: Sequence[Message] = ()) -> None:
        super().__init__(f"the run stopped at its limit of {allowed:g} {limit.replace('_', ' ')}: {advice}")
        self.limit = limit
        self.messages = tuple(messages)


class OutputError(AgentError):
    """The model's answer is not the output type, after all repair turns.

    Attributes:
        text: The last answer.
        problems: What was wrong with it.
    """

    def __init__(self, type_name: str, text: str, problems: str) -> None:
        super().__init__(f"the answer is not a valid {type_name}: {problems}")
        self.text = text
        self.problems = problems
