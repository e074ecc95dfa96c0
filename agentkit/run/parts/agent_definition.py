"""`AgentDefinition`: the parts of an agent that its runs read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple

from agentkit.run.parts.agent_tools import AgentTools
from agentkit.run.parts.agent_version import AgentVersion
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.limits import Limits
from agentkit_prompts.tree.leaves import AnyPrompt

if TYPE_CHECKING:
    from agentkit.models.model import Model
    from agentkit.models.settings import ModelSettings
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.deps_source import DepsSource
    from agentkit.run.parts.recaller import RecallOptions, RecallResult, RecallSource
    from agentkit.run.parts.run_guards import Guards
    from agentkit.run.parts.session import SessionProtocol


class AgentDefinition(NamedTuple, Generic[Output]):
    """Validated parts of an agent. `with_changes` creates another definition."""

    name: str
    """Name of the agent in journals."""
    chain: Chain[Output]
    """Prompts, model and output type."""
    tools: AgentTools
    limits: Limits
    memory: RecallSource | None
    recall: RecallOptions | None
    """Options of each recall; None without memory."""
    compaction: Compaction | None
    instructions: AnyPrompt | None
    """System prompt, from which the layers are built again if memory or compaction change; None if layers are set."""
    settings: ModelSettings
    """Default settings of the model; `chain.model` has them already."""
    version: AgentVersion
    """Versions of the agent and of its parts."""
    deps: DepsSource | None = None
    """Deps of runs without the option `deps`; None if these runs have no deps."""
    guards: Guards | None = None
    """None without guards."""

    @property
    def summary_model(self) -> Model | None:
        """Model that writes the summaries of long conversations; None without summaries."""
        return getattr(self.compaction, "model", None)

    def search(
        self, memory: RecallSource, query: str, session: SessionProtocol | None, visible: int | None
    ) -> RecallResult:
        """Search a memory with the recall options of this agent. Can wait for a disk or a network.

        Args:
            memory: The memory of the agent, in the scope of the run.
            query: The text to find.
            session: The session of the run.
            visible: Number of the latest messages that the prompt shows; None for all.
        """
        from agentkit.run.parts import recaller

        options = recaller.shown_options(self.recall, self.chain.layers)
        return recaller.recall(memory, query, session, visible, options)
