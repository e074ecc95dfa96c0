"""Everything that can go wrong in a run that is not the fault of a prompt, a tool, a model or memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit_prompts.context.messages import Message

__all__ = ["AgentDefinitionError", "AgentError", "LimitExceeded", "OutputError", "SessionBusy"]


class AgentError(Exception):
    """Base of the errors of the runtime."""


class AgentDefinitionError(AgentError, ValueError):
    """An agent, chain or limit that can never work as it was written."""


class LimitExceeded(AgentError):
    """A run reached one of its limits. The session holds the messages until then, a valid history.

    Attributes:
        limit: Name of the limit: `steps`, `tool_calls`, `tokens`, `seconds` or `nested_runs`.
        messages: What the run added to the conversation until then.
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


class SessionBusy(AgentError):
    """Another run is using the session. Nothing was sent or kept.

    Attributes:
        session: Id of the session.
    """

    def __init__(self, session: str) -> None:
        super().__init__(
            f"session {session!r} is in use by another run, and two at once would mix their messages: "
            "wait until that one has ended, or give each run a session of its own"
        )
        self.session = session
