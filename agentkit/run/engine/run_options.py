"""`RunOptions`: what one run may be given beside its input, whichever way it is started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict

from typing_extensions import TypeVar

from agentkit.ground.unknown_options import ELSEWHERE, check_names

if TYPE_CHECKING:
    from agentkit.models.model import Model
    from agentkit.models.settings import ModelSettings
    from agentkit.run.engine.events import Event
    from agentkit.run.engine.listening import ListenerErrors
    from agentkit.run.journal.journal_file import Keep
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.decisions import Approver, Decisions
    from agentkit.run.parts.limits import Limits
    from agentkit.run.parts.recaller import RecallOptions, RecallSource
    from agentkit.run.parts.session import Session
    from agentkit_memory import Scope
    from agentkit_prompts.prompters.history import History
    from agentkit_prompts.tokens.budget import Budget
    from agentkit_prompts.tokens.counter import TokenCounter
    from agentkit_prompts.tree.layers import Layers
    from agentkit_prompts.tree.leaves import AnyPrompt
    from agentkit_tools import Tool, TurnTools

__all__ = [
    "CHANGES",
    "AgentOptions",
    "Changes",
    "ModelAgentOptions",
    "ResumeOptions",
    "RunOptions",
    "Tools",
    "check_options",
]

Tools: TypeAlias = "Iterable[Tool | Callable[..., Any]] | TurnTools"
Deps = TypeVar("Deps", default=Any)
Output = TypeVar("Output", default=Any)


class Changes(TypedDict, total=False):
    """What an agent may have in place of what it was made with: see `Agent.but`."""

    model: Model | str
    settings: ModelSettings
    """Those that are given take the place of the model's, field by field."""
    layers: Layers | AnyPrompt
    tools: Tools
    memory: RecallSource | None
    recall: RecallOptions | None
    compaction: Compaction | None
    output: Any
    budget: int | Budget | None
    limits: Limits


class AgentOptions(TypedDict, total=False):
    """What an agent may be made with, whatever its model; see `Agent`."""

    tools: Tools
    memory: RecallSource | None
    recall: RecallOptions | None
    compaction: Compaction | None
    limits: Limits
    name: str


class ModelAgentOptions(AgentOptions, total=False):
    """What an agent may be made with that is given no chain; see `Agent`."""

    budget: int | Budget | None
    tokenizer: TokenCounter | None


class ResumeOptions(Changes, Generic[Deps, Output], total=False):
    """What a run that goes on may be given; all of it may be left out. What is of `Changes` holds for this run."""

    deps: Deps
    """Handed to tools in their `ToolContext`."""
    session: Session | None
    """Conversation to go on with; it receives the messages of the run. None starts from nothing."""
    on_event: Callable[[Event[Output]], Awaitable[object] | None] | None
    """Called with every event, in order; an async function is awaited, and the run waits for it."""
    on_event_error: ListenerErrors
    """Whether an exception of `on_event` ends the run (`raise`, also when this is not given), or is logged and listed
    in `RunResult.listener_errors` (`report`)."""
    approve: Approver | Decisions | None
    """Decides about tool calls that need approval: a function, or decisions by the ids of the calls. Without it the run
    pauses at the first call that needs one."""
    journal: Keep | None
    """Where the journal is kept while the run goes on: a file, or a function that is given each line."""


class RunOptions(ResumeOptions[Deps, Output], Generic[Deps, Output], total=False):
    """What a run may be given beside its input; all of it may be left out. What is of `Changes` holds for this run."""

    history: History | None
    """Turns before the input, `[question, answer]` pairs or messages, of a run without a session."""
    run_id: str | None
    """Id of the run; a new one when not given. Idempotency keys derive from it. With the id of an earlier run on the
    same session it goes on where that one was cut short."""
    scope: Scope | str | None
    """Whose memory is read where there is no session. With a session it is that of the session."""


_MEANT = {**ELSEWHERE, "model_settings": "settings", "context": "deps"}
_INPUT = ". What prompts need goes with the input: UserInput(text, additional_kwargs={...})"
CHANGES = frozenset(Changes.__annotations__)
_NAMES: Mapping[Any, frozenset[str]] = {
    known: frozenset(known.__annotations__) for known in (Changes, ResumeOptions, RunOptions)
}


def check_options(options: Mapping[str, Any], known: Any) -> None:
    """Refuse options that would be ignored.

    Raises:
        UnknownOption: Names all of them.
    """
    if not _NAMES[known].issuperset(options):
        check_names("", options, known.__annotations__, _MEANT, also="" if known is Changes else _INPUT)
