"""`SharedMemories`: memories of several agents, each opened once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentkit_memory import Memory


class SharedMemories:
    """Opens each memory once for all agent files. Must be closed after the agents."""

    def __init__(self) -> None:
        self._opened: dict[tuple[str, ...], Memory] = {}
        self._readers: dict[tuple[str, ...], Memory] = {}
        """Handles of the opened memories with other shared documents."""

    def open(self, target: Any, *, shared: Sequence[str] = (), **options: Any) -> Memory:
        """Return the memory in a folder or at an address; `shared` and `options` are arguments of `Memory`."""
        from agentkit_memory import Memory

        key = (str(target), *[f"{name}={value}" for name, value in sorted(options.items())])
        if key not in self._opened:
            self._opened[key] = Memory(target, shared=shared, **options)
        memory = self._opened[key]
        if memory.shared == tuple(shared):
            return memory
        # Agents of one store can read different shared documents. A reload of an agent needs the same handle.
        reader = (*key, "shared", *shared)
        if reader not in self._readers:
            self._readers[reader] = memory.within(memory.scope, shared=shared)
        return self._readers[reader]

    def close(self) -> None:
        """Close all memories."""
        for memory in self._opened.values():
            memory.close()
