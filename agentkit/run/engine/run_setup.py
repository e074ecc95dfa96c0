"""`RunSetup`: agent, input and environment of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import JournalTarget
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.chain import Output
from agentkit.run.parts.deps_source import RunCaller
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.run_inbox import RunInbox
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_memory import Scope
    from agentkit_tools.tool_context import RunState


@dataclass(slots=True)
class RunSetup(Generic[Output]):
    """Validated agent, input and environment of one run."""

    definition: AgentDefinition[Output]
    journal: Journal
    """Record of the steps, with the id of the run."""
    ctx: PromptContext
    """The context of the run, without the conversation of a session and without recalled items."""
    memory: RecallSource | None
    """The memory of the agent in the scope of the run."""
    session: SessionProtocol | None
    scope: Scope | None
    """The tenant and the user for whom the run acts; None if nothing names them."""
    deps: Any
    render_cache: RenderCache
    """Fragments rendered for earlier turns."""
    earlier: Journal | None = None
    """Journal of earlier attempts; None for a new run."""
    is_new: bool = False
    """True if no earlier run can have this id."""
    target: JournalTarget | None = None
    """The file or function that receives each line of the journal."""
    permissions: frozenset[str] = frozenset()
    """Permissions of the caller."""
    outer: RunState | None = None
    """State of the run whose tool the agent is; None for other runs."""
    counts: dict[str, int] | None = None
    """Counts of the outer run, if this run is code whose calls count in the outer run."""
    inbox: RunInbox | None = None
    """Messages that are sent to the run while it runs; None if it receives none."""

    @property
    def receives(self) -> bool:
        """True if the run can receive messages, or received messages in an earlier attempt."""
        return self.inbox is not None or self.journal.has_received

    def caller(self) -> RunCaller:
        """Return the caller of the run, for the function that creates its deps."""
        tenant, user = self._owner
        journal = self.journal
        return RunCaller(
            tenant=tenant,
            user=user,
            permissions=self.permissions,
            session=journal.session or "",
            additional_kwargs=self.ctx.user_input.additional_kwargs,
            agent=journal.agent,
            run_id=journal.run_id,
        )

    @property
    def _owner(self) -> tuple[str, str]:
        if self.scope is None:
            return "local", ""
        return self.scope.tenant, self.scope.user

    def tool_context(self, call_id: str, **state: Any) -> ToolContext[Any]:
        """Return the context of a tool call or of a check of this run; `state`: further fields of the context."""
        journal = self.journal
        tenant, user = self._owner
        return ToolContext(
            self.deps,
            journal.run_id,
            call_id,
            tenant=tenant,
            user=user,
            session=journal.session or "",
            additional_kwargs=self.ctx.user_input.additional_kwargs,
            **state,
        )
