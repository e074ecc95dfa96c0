"""`ToolContext`: what a tool may know about the run that calls it, and the model never sees."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from typing import Any, Generic

from typing_extensions import TypeVar

__all__ = ["ToolContext"]

Deps = TypeVar("Deps", default=Any)


@dataclass(slots=True, eq=False)
class ToolContext(Generic[Deps]):
    """What a tool receives in a parameter annotated `ToolContext` or `ToolContext[Deps]`, under any name."""

    deps: Deps = field(repr=False)
    """What the agent was given: connections, settings, the user."""
    run_id: str = ""
    """Id of the run; it stays when a durable run is resumed."""
    call_id: str = ""
    """Id of the call; unique in its run."""
    _: KW_ONLY
    attempt: int = 1
    """1, then 2 for the first retry, and so on."""
    approved: bool = False
    """Whether a person agreed to this call."""
    calls: dict[str, int] | None = None
    """What a run counts for `max_calls` and `tries` of its tools: one dict for all contexts of the run, which starts
    empty. None: nothing is counted."""

    @property
    def idempotency_key(self) -> str:
        """32 hex digits from run and call id: the same for every attempt, also after a crash."""
        seed = f"{len(self.run_id)}:{self.run_id}{self.call_id}"
        return blake2b(seed.encode("utf-8", "replace"), digest_size=16).hexdigest()
