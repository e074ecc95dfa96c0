"""`RunSetup`: agent, input and environment of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_file import JournalTarget
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.chain import Output
from agentkit.run.parts.recaller import RecallSource
from agentkit.run.parts.session import SessionProtocol
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.context.prompt_context import PromptContext

__all__ = ["RunSetup"]


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
    deps: Any
    render_cache: RenderCache
    """Fragments rendered for earlier turns."""
    earlier: Journal | None = None
    """Journal of earlier attempts; None for a new run."""
    is_new: bool = False
    """True if no earlier run can have this id."""
    target: JournalTarget | None = None
    """The file or function that receives each line of the journal."""
