"""`LoadedAgent`: an agent with what was opened for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkit.agent.agent import Agent
    from agentkit_memory import Memory

__all__ = ["LoadedAgent"]


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent, and what belongs to it."""

    agent: Agent[Any, Any]
    source: str
    """The file or the import path it is from."""
    description: str = ""
    version: str = ""
    """Hash of the agent file and its prompts, 16 hex digits; empty for an agent of a module."""
    memory: Memory | None = None
    """The memory of the agent, if it is one of ours."""
    files: tuple[Path, ...] = ()
    """The files that it was made of, and the folders of its prompts; empty for an agent of a module."""
    _opened: list[Any] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.agent.name

    def close(self) -> None:
        """Close what was opened for the agent alone: its memory, its MCP servers."""
        for one in self._opened:
            one.close()
