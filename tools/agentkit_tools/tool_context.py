"""`ToolContext`: information about the run for a tool, which is not sent to the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from agentkit_prompts.context.messages import Message, ToolCall

if TYPE_CHECKING:
    from agentkit_memory.scope import Scope
    from agentkit_prompts.composition.untrusted_sources import UntrustedSource

Deps = TypeVar("Deps", default=Any)


class TokenUsage(Protocol):
    """Tokens and cost of model calls."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def money(self) -> float | None: ...


class RunState(Protocol):
    """State of a run that its tools can read."""

    @property
    def scope(self) -> Scope: ...
    @property
    def step(self) -> int: ...
    @property
    def usage(self) -> TokenUsage: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def untrusted(self) -> tuple[UntrustedSource, ...]: ...
    @property
    def loaded_skills(self) -> tuple[str, ...]: ...
    def report(self, call_id: str, message: str, done: float | None, total: float | None) -> None:
        """Report the progress of a call to the listeners of the run."""

    async def decide(self, call_id: str, form: ToolCall, *, can_repeat: bool) -> Mapping[str, Any] | None:
        """Return the arguments with which a person approved a form of a call; None if it was denied."""


@dataclass(slots=True, eq=False)
class ToolContext(Generic[Deps]):
    """Context of a call, for a parameter of any name with the annotation `ToolContext` or `ToolContext[Deps]`."""

    deps: Deps = field(repr=False)
    """Objects that the caller passed to the run, such as connections and settings."""
    run_id: str = ""
    """Id of the run; a resumed run has the same id."""
    call_id: str = ""
    """Id of the call, unique in its run."""
    _: KW_ONLY
    tenant: str = "local"
    """Tenant for whom the run acts. In a server, the tenant of the token."""
    user: str = ""
    """User of the tenant for whom the run acts; empty for no user. In a server, the user of the token, or the user that
    the client of a token without a user names."""
    session: str = ""
    """Id of the session of the run; empty without a session."""
    additional_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Additional kwargs of the input. In a server, the client chooses them."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    approved: bool = False
    """True if a person approved this call."""
    calls: dict[str, int] | None = None
    """Counts of a run for `max_calls` and `max_consecutive_failures` of its tools: one dict for all contexts of the
    run, which starts empty. None: calls are not counted."""
    run: RunState | None = field(default=None, repr=False)
    """State of the run; None outside of a run."""

    @property
    def idempotency_key(self) -> str:
        """Hash of the ids of run and call, 32 hex digits: the same for all attempts, also after a crash."""
        # The length keeps the ids ("a", "bc") and ("ab", "c") apart.
        seed = f"{len(self.run_id)}:{self.run_id}{self.call_id}"
        return blake2b(seed.encode("utf-8", "replace"), digest_size=16).hexdigest()

    @property
    def scope(self) -> Scope:
        """Scope of the memory in which the run reads, such as for `memory.within(context.scope)`.

        Raises:
            LookupError: The context belongs to no run.
        """
        if self.run is None:
            raise LookupError("ToolContext.scope: the context belongs to no run; use Scope(tenant, user=...)")
        return self.run.scope

    @property
    def step(self) -> int:
        """Number of the step of this call, from 1; 0 outside of a run."""
        return 0 if self.run is None else self.run.step

    @property
    def usage(self) -> TokenUsage | None:
        """Usage of the run until now: `input_tokens`, `output_tokens`, `money`; None outside of a run."""
        return None if self.run is None else self.run.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """Messages until this call: earlier turns, the user's message and, last, the message with the call."""
        return () if self.run is None else self.run.messages

    @property
    def untrusted(self) -> tuple[UntrustedSource, ...]:
        """Sources of the untrusted text in the prompt of this step, such as the input, documents and results of tools.

        Empty outside of a run, and before the first prompt of a run. See `Composition.untrusted`.
        """
        return () if self.run is None else self.run.untrusted

    def progress(self, message: str = "", *, done: float | None = None, total: float | None = None) -> None:
        """Report the progress of this call to the listeners of the run. Threads can call this method.

        Args:
            message: Text for people.
            done: Amount of finished work, in any unit.
            total: Amount of all work, in the same unit.
        """
        if self.run is not None:
            self.run.report(self.call_id, message, done, total)

    async def ask(self, question: str, schema: Mapping[str, Any], *, can_repeat: bool = True) -> dict[str, Any] | None:
        """Ask the person of the run to fill in a form.

        The form waits like a call that needs approval: `approve` receives it, and without `approve` the run pauses. A
        resumed run repeats this call from its start, and finds the answer: ask before the first effect of the tool.

        Args:
            question: Text for the person.
            schema: JSON Schema of an object: the fields of the form.
            can_repeat: False if the call must not run again. Then the run does not pause, and only an approver that is
                a function is asked.

        Returns:
            Values that match `schema`; None if the person declines, or no person can be asked.

        Raises:
            ToolError: The schema is invalid, or the person gave three invalid answers.
            Paused: The run pauses. Do not catch it.
        """
        from agentkit_tools.form import fill_form

        run = self.run
        if run is None:
            return None

        async def decide(form: ToolCall) -> Mapping[str, Any] | None:
            return await run.decide(self.call_id, form, can_repeat=can_repeat)

        return await fill_form(question, schema, decide)
