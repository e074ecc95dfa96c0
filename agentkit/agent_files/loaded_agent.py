"""`LoadedAgent`: an agent with its opened resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkit.agent.agent import Agent
    from agentkit_memory import Memory


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent with its source and its opened resources."""

    agent: Agent[Any, Any]
    source: str
    """File or import path of the agent."""
    description: str = ""
    version: str = ""
    """Hash of the agent file and its prompts, 16 hex digits; empty for an agent of a module."""
    memory: Memory | None = None
    """The memory of the agent; None if the agent has no memory or a custom memory."""
    files: tuple[Path, ...] = ()
    """Files of the agent and folders of its prompts; empty for an agent of a module."""
    _opened: list[Any] = field(default_factory=list, repr=False)
    """Resources that only this agent uses."""

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.name

    def close(self) -> None:
        """Close the resources that only this agent uses: its memory and its MCP servers."""
        for resource in self._opened:
            resource.close()
