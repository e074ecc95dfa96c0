"""`Steps`: everything that a run does outside of its loop. The loop decides, the steps act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from agentkit.models.model import Reply, Usage
from agentkit.output.output_validators import Checked
from agentkit.run.parts.compaction import Compacted
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import Found
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, Selection
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

__all__ = ["Beginning", "Ended", "Steps", "ToolRound"]


class Beginning(NamedTuple):
    """The conversation at the beginning of a run."""

    conversation: Conversation
    """The messages before the run."""
    done: tuple[Message, ...] = ()
    """The messages of this run that an earlier attempt stored, the message of the user first."""


@dataclass(slots=True)
class ToolRound:
    """The tool calls of one reply that have no result yet, and the run as its tools see it."""

    calls: tuple[ToolCall, ...]
    step: int
    decisions: Mapping[str, Decision]
    """Decisions of a person, by the id of the call."""
    usage: Usage
    """Tokens of the run so far; the loop adds those of agents that ran as tools."""
    messages: tuple[Sequence[Message], ...]
    """The messages until these calls, in pieces; the message with the calls is the last."""


Ended: TypeAlias = Callable[[ToolResult, Usage | None], None]
"""Takes the result of a call, and the usage of runs inside of it."""


class Steps(Protocol):
    """The steps of one run. The loop awaits them one at a time; a journal stores one entry for each result.

    `RunSteps` performs them, `Journalled` wraps steps to replay and store them.
    """

    async def begin(self, at: tuple[int, int] | None = None) -> Beginning:
        """Read the conversation before the run.

        Args:
            at: Numbers of messages before the run and of the run itself, from a journal; None without a journal.
        """
        ...

    async def compact(self, ctx: PromptContext) -> Compacted:
        """Decide how much of the conversation is shown, and summarise the rest."""
        ...

    async def tools(self, ctx: PromptContext) -> Mapping[str, Tool]:
        """Make the tools of this run, or of this step."""
        ...

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        """Ask the example selectors."""
        ...

    async def recall(self, query: str, visible: int | None) -> Found:
        """Ask memory. `visible`: number of the latest messages that the prompt shows; None for all."""
        ...

    async def append(self, messages: tuple[Message, ...], key: str) -> Message | None:
        """Add messages to the conversation, once per key.

        Returns:
            None; in a replay the stored message that asked the model to repair this answer, if there was one: the
            output type may have changed since.
        """
        ...

    async def call_model(self, composition: Composition, step: int) -> Reply:
        """Send a composition."""
        ...

    async def ask_approval(self, calls: tuple[ToolCall, ...], step: int) -> Mapping[str, Decision]:
        """Ask for decisions about calls; a call that needs no decision has none."""
        ...

    async def call_tools(self, round_: ToolRound, ended: Ended) -> None:
        """Run all calls of a round, and pass each result to `ended` as soon as it exists.

        Raises:
            BaseException: The round was cut short. If the run may continue the conversation, every call has a result
                then.
        """
        ...

    async def check_output(self, output: Any, step: int) -> Checked:
        """Call the validators of the output."""
        ...
