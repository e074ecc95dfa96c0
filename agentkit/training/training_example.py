"""`TrainingExample`: a prompt, the reply of the model, and the run from which they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Source of a row."""

    agent: str
    """Name of the agent."""
    run: str = ""
    """Id of the run; empty for an answer of a stored conversation."""
    session: str = ""
    """Name of the conversation; empty without a conversation."""
    row: str = ""
    """Id of the row of the evaluation; empty outside of evaluations."""
    turn: int | None = None
    """Number of the turn, from 1; None if the row has one turn."""
    version: str = ""
    """Version of the agent in the run; empty if it is unknown."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Hash of each prompt and of each tool schema of the run, by the name of the part."""
    is_current: bool = False
    """True if the row has the present prompts, which can differ from the prompts of the run."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores of the run."""
    tags: tuple[str, ...] = ()
    """Tags of the run, or of the row of the evaluation."""
    at: float | None = None
    """Start of the run in seconds since 1970; None if it is unknown."""

    @property
    def place(self) -> str:
        """The source in messages."""
        if self.row:
            return f"row {self.row}, run {self.run}"
        if self.run:
            return f"run {self.run}"
        return f"conversation {self.session}"

    def data(self) -> dict[str, Any]:
        """Return the source as JSON data, without empty fields."""
        prompts = "present" if self.is_current else "as sent"
        data = {
            "agent": self.agent,
            "run": self.run,
            "session": self.session,
            "row": self.row,
            "turn": self.turn,
            "version": self.version,
            "parts": dict(self.parts),
            "prompts": prompts,
            "scores": dict(self.scores),
            "tags": list(self.tags),
            "at": self.at,
        }
        return {name: value for name, value in data.items() if value not in ("", {}, [], None)}


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """One answer of an agent."""

    composition: Composition
    """The prompt of the last model call, with the tool calls of the run before it."""
    reply: Message
    """The answer."""
    origin: Origin
    is_erased: Callable[[], bool]
    """Function that returns True if the source does not exist any more."""

    @property
    def media(self) -> list[str]:
        """Names of the media in the prompt and in the reply."""
        messages = (*self.composition.messages, self.reply)
        return [part.alt for message in messages for part in message.parts if isinstance(part, Media)]


class LeftOut(NamedTuple):
    """A source without a row."""

    place: str
    reason: str
    is_erased: bool = False
    """True if the source does not exist any more."""


TrainingSource: TypeAlias = TrainingExample | LeftOut
"""An example, or the reason why a source has none."""
