"""`ToolContext`: what a tool may know about the run that calls it, and the model never sees."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from agentkit_prompts.context.messages import Message

__all__ = ["RunState", "TokenUsage", "ToolContext"]

Deps = TypeVar("Deps", default=Any)


class TokenUsage(Protocol):
    """What model calls took."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def money(self) -> float | None: ...


class RunState(Protocol):
    """What a run shows the tools it calls."""

    @property
    def step(self) -> int: ...
    @property
    def usage(self) -> TokenUsage: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        """Tell who listens how far a call is."""


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
    """Counts of a run for `max_calls` and `max_consecutive_failures` of its tools: one dict for all contexts of the
    run, which starts empty. None: nothing is counted."""
    run: RunState | None = field(default=None, repr=False)
    """What the run shows of itself; None where there is no run."""

    @property
    def idempotency_key(self) -> str:
        """32 hex digits from run and call id: the same for every attempt, also after a crash."""
        # The length keeps the ids ("a", "bc") and ("ab", "c") apart.
        seed = f"{len(self.run_id)}:{self.run_id}{self.call_id}"
        return blake2b(seed.encode("utf-8", "replace"), digest_size=16).hexdigest()

    @property
    def step(self) -> int:
        """Number of the model call that asked for this one, from 1; 0 where there is no run."""
        return 0 if self.run is None else self.run.step

    @property
    def usage(self) -> TokenUsage | None:
        """What the run used so far: `input_tokens`, `output_tokens`, `money`; None where there is no run."""
        return None if self.run is None else self.run.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation until this call: earlier turns, the user's message, and the one with the call at the end."""
        return () if self.run is None else self.run.messages

    def progress(self, message: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Tell who listens to the run how far this call is, from any thread; without a listener nothing happens.

        Args:
            message: What is being done, for people.
            done: How much is done, in units of the tool's own.
            total: How much there is to do.
        """
        if self.run is not None:
            self.run.report(self.call_id, message, done, total)
