"""`SharedMemories`: memories of several agents, each opened once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkit_memory import Memory

__all__ = ["SharedMemories"]


class SharedMemories:
    """Opens each memory once for all agent files. Must be closed after the agents."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, ...], Memory] = {}

    def open(self, target: Any, **options: Any) -> Memory:
        """Return the memory in a folder or at an address; `options` are arguments of `Memory`."""
        from agentkit_memory import Memory

        key = (str(target), *[f"{name}={value}" for name, value in sorted(options.items())])
        if key not in self._opened:
            self._opened[key] = Memory(target, **options)
        return self._opened[key]

    def close(self) -> None:
        """Close all memories."""
        for memory in self._opened.values():
            memory.close()
