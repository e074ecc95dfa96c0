"""`Steps`: protocol of the operations of a run. The loop decides, the steps perform."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from agentkit.models.model import Reply, Usage
from agentkit.output.output_validators import CheckedOutput
from agentkit.run.parts.compaction import CompactionResult
from agentkit.run.parts.decisions import Decision
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.run_inbox import SentMessage
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, Selection, UserInput
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from agentkit.run.parts.run_guards import Guard, GuardCheck, Subject


class RunStart(NamedTuple):
    """The conversation at the start of a run."""

    conversation: Conversation
    """The messages before the run."""
    done: tuple[Message, ...] = ()
    """Messages of this run that an earlier attempt stored, starting with the user message."""
    user_input: UserInput | None = None
    """Input that replaces the input of the run; None to keep it."""


@dataclass(slots=True)
class ToolRound:
    """The tool calls of one reply that have no result yet, and the state of the run for their tools."""

    calls: tuple[ToolCall, ...]
    step: int
    decisions: Mapping[str, Decision]
    """Decisions about calls, by call id."""
    usage: Usage
    """Usage of the run so far; the loop adds the usage of agents that ran as tools."""
    messages: tuple[Sequence[Message], ...]
    """Messages of the conversation, in groups; the last message contains the calls."""
    composition: Composition | None
    """The prompt of the reply; None before the first prompt."""
    asked: Collection[str] = ()
    """Ids of calls about which a person decides, although their tools need no approval."""
    stored: Sequence[Message] = ()
    """Messages of the round that an earlier attempt stored in the conversation; empty before."""


OnResult: TypeAlias = Callable[[ToolResult, Usage | None], None]
"""Receives the result of a call, and the usage of its inner runs."""


class Steps(Protocol):
    """The steps of one run. The loop awaits them one at a time; a journal stores one entry for each result.

    `RunSteps` performs them, `Journalled` wraps steps to replay and store them.
    """

    async def begin(self, at: tuple[int, int] | None = None) -> RunStart:
        """Read the conversation before the run.

        Args:
            at: Number of messages before the run, and of messages of the run, from a journal; None without a journal.
        """
        ...

    async def compact(self, ctx: PromptContext) -> CompactionResult:
        """Choose the messages of the conversation that the prompt shows, and summarise the other messages."""
        ...

    async def tools(self, ctx: PromptContext) -> Mapping[str, Tool]:
        """Create the tools of this run, or of this step."""
        ...

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        """Select the examples."""
        ...

    async def recall(self, query: str, visible: int | None) -> RecallResult:
        """Search the memory. `visible`: number of the latest messages that the prompt shows; None for all."""
        ...

    async def append(self, messages: tuple[Message, ...], key: str) -> Message | None:
        """Append messages to the conversation, once per key.

        Returns:
            In a replay, the stored repair message of this answer, if any: the present output type could accept the
            answer. Otherwise None.
        """
        ...

    async def call_model(self, composition: Composition, step: int) -> Reply:
        """Send a composition."""
        ...

    async def ask_approval(self, calls: tuple[ToolCall, ...], round_: ToolRound) -> Mapping[str, Decision]:
        """Request decisions about calls of a round. Calls that need no decision are missing in the result."""
        ...

    async def call_tools(self, round_: ToolRound, on_result: OnResult) -> None:
        """Run all calls of a round, and pass each result to `on_result` as soon as it exists.

        Raises:
            BaseException: The round was cancelled. Every call has a result, unless another process took over the run.
        """
        ...

    async def check_guard(self, guard: Guard, subject: Subject, key: str, round_: ToolRound) -> GuardCheck:
        """Call a guard. `key`: id of the call, number of the step of a reply, or empty for the input."""
        ...

    async def check_output(self, output: Any, step: int) -> CheckedOutput:
        """Call the validators of the output."""
        ...

    async def receive(self, step: int, *, is_idle: bool) -> tuple[SentMessage, ...]:
        """Return the messages that were sent to the run; `is_idle`: True if the run ends without a message."""
        ...
