"""`RunOptions`: the options of one run, for each method that starts a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict

from typing_extensions import TypeVar

from agentkit.ground.unknown_options import AGENT_ELSEWHERE, check_names

if TYPE_CHECKING:
    from functools import partial

    from agentkit.models.model import Model
    from agentkit.models.settings import ModelSettings
    from agentkit.run.engine.event_sink import ListenerErrors
    from agentkit.run.engine.events import Event
    from agentkit.run.journal.journal_file import JournalTarget
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.decisions import Approver, Decisions
    from agentkit.run.parts.limits import Limits
    from agentkit.run.parts.recaller import RecallOptions, RecallSource
    from agentkit.run.parts.run_guards import Guard
    from agentkit.run.parts.run_inbox import RunInbox
    from agentkit.run.parts.session import SessionProtocol
    from agentkit_memory import Scope
    from agentkit_prompts.prompters.history import History
    from agentkit_prompts.prompters.prompter import Prompter
    from agentkit_prompts.tokens.budget import Budget
    from agentkit_prompts.tokens.counter import TokenCounter
    from agentkit_prompts.tree.layers import Layers
    from agentkit_prompts.tree.leaves import AnyPrompt
    from agentkit_tools import DynamicToolset, Tool, Toolset
    from agentkit_tools.schemas.callables import NamedFunction
    from agentkit_tools.toolsets.foreign_tools import ForeignTool

Tools: TypeAlias = "Iterable[Tool | Callable[..., Any] | Toolset | DynamicToolset | ForeignTool] | DynamicToolset"
Deps = TypeVar("Deps", default=Any)
Output = TypeVar("Output", default=Any)


class AgentOptions(TypedDict, Generic[Deps], total=False):
    """Options of an agent that each of its constructors accepts; see `Agent`."""

    settings: ModelSettings | Mapping[str, Any]
    """Settings whose fields replace fields in the settings of the model."""
    tools: (
        Iterable[Tool[..., Any, Deps] | NamedFunction | partial[Any] | Toolset | DynamicToolset | ForeignTool]
        | DynamicToolset
    )
    """Functions, tools or toolsets; or a toolset that creates the tools of each run."""
    memory: RecallSource | None
    """Memory that is searched before each run."""
    recall: RecallOptions | None
    """Options of each recall."""
    compaction: Compaction | None
    """Compaction of long conversations."""
    budget: int | Budget | None
    """Maximum tokens of a composition."""
    counter: TokenCounter | None
    """Token counter of an agent; an option of its constructor only."""
    limits: Limits
    """Limits of one run."""
    guards: Iterable[Guard]
    """Checks of input, replies, tool calls and tool results, in their order."""


class RunOptions(AgentOptions[Deps], Generic[Deps, Output], total=False):
    """Options of the runs of an agent, all optional.

    An option that a method does not support raises an `UnknownOption` with the methods that support it.
    """

    # Options of `with_changes`, `override`, `run` and `resume`; these methods also accept `AgentOptions` except
    # `counter`.
    model: Model | str
    """Replaces the model."""
    instructions: AnyPrompt
    """Text or a prompt that replaces all layers."""
    layers: Layers | Prompter
    """Replaces all layers."""
    output: Any
    """Replaces the output type."""

    # Options of `run` and `resume`.
    deps: Deps
    """Passed to tools in their `ToolContext`. By default, the deps of `Agent.with_deps`."""
    permissions: Iterable[str]
    """Permissions of the caller, for the function of `Agent.with_deps`."""
    session: SessionProtocol | None
    """Session of the run, which receives its messages; None: an empty conversation."""
    on_event: Callable[[Event[Output]], Awaitable[object] | None] | None
    """Called with every event, in order; an async function is awaited, and the run waits for it."""
    on_event_error: ListenerErrors
    """`raise` (the default): an exception of `on_event` ends the run; `report`: it is logged, and the first 16 are
    listed in `RunResult.listener_errors`."""
    approve: Approver | Decisions | None
    """Decides about tool calls that need approval: a function, or decisions by the ids of the calls. Without it the run
    pauses at the first call that needs approval."""
    journal: JournalTarget | None
    """Destination of the journal: a file, or a function that receives each line."""
    inbox: RunInbox | None
    """Messages for the run while it runs, such as an `Inbox` of `agentkit.inbox`."""

    # Options of `run`.
    history: History | None
    """Turns before the input, `[question, answer]` pairs or messages, of a run without a session."""
    run_id: str | None
    """Id of the run; a random id by default. Idempotency keys derive from it. `run` with the id of an earlier run
    on the same session continues that run."""
    tenant: str
    """Tenant for whom the run acts: tools read it in their `ToolContext`, and the memory is narrowed to it."""
    user: str
    """User of the tenant for whom the run acts, as `tenant`."""
    locale: str | None
    """Language tag of the run, such as `de`, which selects the texts of templates, also of inner agents."""
    tags: Iterable[str]
    """Texts such as `release-7`, which are stored with the run and filter lists of runs. No prompt contains them."""
    scope: Scope | str | None
    """Scope of the memory in a run without a session, instead of `tenant` and `user`. A session has a scope."""


class ScheduleOptions(TypedDict, total=False):
    """Options of the durable runs that a schedule starts; all optional."""

    session: SessionProtocol | None
    """Session of the run: a worker opens the session by id and scope, and performs the runs of one session, agent and
    version in order."""
    tenant: str
    """Tenant for whom the run acts; also for lists, costs and limits. By default, the tenant of the session, or else of
    the memory."""
    user: str
    """User of the tenant for whom the run acts."""
    locale: str | None
    """Language tag of the run, such as `de`, which selects the texts of templates."""
    tags: Iterable[str]
    """Texts such as `release-7`, which are stored with the run and filter lists of runs."""
    scope: Scope | str | None
    """Scope of the memory in a run without a session, instead of `tenant` and `user`. A session has a scope."""
    priority: int
    """Priority of the run, from 1; lower numbers start first. Default: 100."""


class StartOptions(ScheduleOptions, total=False):
    """Options of one durable run; all optional. The agent sets the model, the prompts, the tools and the limits."""

    run_id: str | None
    """Id of the run, unique in the database; a random id by default. Idempotency keys derive from it."""
    delay: float
    """Minimum seconds before the run starts."""


class MapOptions(TypedDict, total=False):
    """Options of a map; all optional. The limits hold for all maps of the agent: the last map sets them."""

    tenant: str | Callable[[Any], str]
    """Tenant of the runs, or a function that returns the tenant of an input."""
    priority: int
    """Priority of the runs, from 1; lower numbers start first. Default: 100."""
    concurrency: int | None
    """Maximum number of concurrent runs, on all workers; None: no limit."""
    rate: float | None
    """Maximum number of runs that start per second, on all workers; None: no limit."""
    tenant_concurrency: int | None
    """Maximum number of concurrent runs of one tenant, on all workers; None: no limit."""
    on_progress: Callable[[int, int], object]
    """Called with the number of written answers and the number of all answers."""


CHANGES = frozenset(
    (
        "model",
        "settings",
        "instructions",
        "layers",
        "tools",
        "memory",
        "recall",
        "compaction",
        "output",
        "budget",
        "limits",
        "guards",
    )
)
"""Options of `with_changes` and `override`."""
COMPOSE = CHANGES | {"session", "scope", "tenant", "user", "locale"}
"""Options of `compose`."""
RESUME = CHANGES | {"deps", "permissions", "session", "on_event", "on_event_error", "approve", "journal", "inbox"}
"""Options of `resume`."""
RUN = RESUME | {"history", "run_id", "scope", "tenant", "user", "locale", "tags"}
"""Options of `run` and `stream`."""

_COMMON_MISTAKES = {**AGENT_ELSEWHERE, "context": "deps"}
_KWARGS_ADVICE = ". Pass kwargs of prompts with the input: UserInput(text, additional_kwargs={...})"
_METHODS_OF_OPTION = {
    **dict.fromkeys(CHANGES, "with_changes, override, compose, run and resume"),
    "counter": "Agent(...)",
    **dict.fromkeys(RESUME - CHANGES, "run and resume"),
    "session": "compose, run, resume and start",
    "history": "run",
    "run_id": "run and start",
    "scope": "compose, run and start",
    "tenant": "compose, run, start, schedule and map",
    "user": "compose, run, start and schedule",
    "locale": "compose, run, start and schedule",
    "tags": "run, start and schedule",
    "priority": "start, schedule and map",
    "delay": "start",
    **dict.fromkeys(("concurrency", "rate", "tenant_concurrency", "on_progress"), "map"),
}


def check_options(method: str, options: Mapping[str, Any], valid: frozenset[str]) -> None:
    """Refuse options that a method does not support.

    Raises:
        UnknownOption: The error lists all such options, with the methods that support them.
    """
    if not valid.issuperset(options):
        also = ""
        if "session" in valid:
            also = _KWARGS_ADVICE
        reasons = {name: f"it is an option of {methods}" for name, methods in _METHODS_OF_OPTION.items()}
        check_names(method, options, valid, _COMMON_MISTAKES, also=also, reasons=reasons)
