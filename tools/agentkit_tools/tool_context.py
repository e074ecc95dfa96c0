"""`ToolContext`: what a tool may know about the run that calls it, and the model never sees."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Generic

from typing_extensions import TypeVar

__all__ = ["ToolContext"]

Deps = TypeVar("Deps", default=Any)


class ToolContext(Generic[Deps]):
    """What a tool receives in a parameter annotated `ToolContext` or `ToolContext[Deps]`, under any name."""

    __slots__ = ("approved", "attempt", "call_id", "calls", "deps", "run_id")

    deps: Deps
    """What the agent was given: connections, settings, the user."""
    run_id: str
    """Id of the run; it stays when a durable run is resumed."""
    call_id: str
    """Id of the call; unique in its run."""
    attempt: int
    """1, then 2 for the first retry, and so on."""
    approved: bool
    """Whether a person agreed to this call."""
    calls: dict[str, int] | None
    """How many calls of each tool with a `max_calls` the run has made so far: one dict for all contexts of a run."""

    def __init__(
        self,
        deps: Deps,
        run_id: str = "",
        call_id: str = "",
        *,
        attempt: int = 1,
        approved: bool = False,
        calls: dict[str, int] | None = None,
    ) -> None:
        self.deps = deps
        self.run_id = run_id
        self.call_id = call_id
        self.attempt = attempt
        self.approved = approved
        self.calls = calls

    @property
    def idempotency_key(self) -> str:
        """32 hex digits from run and call id: the same for every attempt, also after a crash."""
        seed = f"{len(self.run_id)}:{self.run_id}{self.call_id}"
        return blake2b(seed.encode("utf-8", "replace"), digest_size=16).hexdigest()

    def again(self) -> ToolContext[Deps]:
        """Return the context of the next attempt."""
        return ToolContext(
            self.deps, self.run_id, self.call_id, attempt=self.attempt + 1, approved=self.approved, calls=self.calls
        )

    def __repr__(self) -> str:
        return f"ToolContext(run_id={self.run_id!r}, call_id={self.call_id!r}, attempt={self.attempt})"
