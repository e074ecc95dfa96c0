"""What every model is: one method that takes a composition and returns a reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from agentkit_prompts.context.messages import Message

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

__all__ = ["NO_USAGE", "Delta", "DeltaKind", "Model", "OnDelta", "Reply", "Usage", "send_delta"]

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint counted them; zero where it did not count."""

    input_tokens: int = 0
    """Tokens of the prompt, cached ones included."""
    output_tokens: int = 0
    """Tokens of the reply."""
    cached_tokens: int = 0
    """Tokens of the prompt that came from the endpoint's prompt cache."""
    money: float | None = None
    """US dollars; None where a price is not known."""

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        # If nothing was used, the cost is 0, although no price is known.
        total = None
        if self.money is not None and other.money is not None:
            total = self.money + other.money
        elif not (self.input_tokens or self.output_tokens) and self.money is None:
            total = other.money
        elif not (other.input_tokens or other.output_tokens) and other.money is None:
            total = self.money
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            total,
        )


NO_USAGE = Usage()


DeltaKind: TypeAlias = Literal["text", "thinking", "refusal", "arguments", "fallback"]


class Delta(NamedTuple):
    """A piece of a reply that is streamed."""

    text: str
    kind: DeltaKind = "text"
    """Pieces of text and of a refusal, joined, are the text of the reply. A fallback is no piece: its text says why
    another model, `name`, is asked."""
    call: int = 0
    """Which tool call of the reply a piece of arguments belongs to, from 0."""
    name: str = ""
    """The tool that is called, as far as its name is known."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered."""

    message: Message
    """The assistant message: text, tool calls or both."""
    usage: Usage = Usage()
    finish_reason: FinishReason | str = "stop"
    """Why the reply ended. `tool_calls` whenever there are any and it was not cut; other words are the endpoint's."""
    model: str = ""
    """The model that answered, as it names itself."""


class Model(Protocol):
    """A language model, or something that plays one.

    Beside this a model may have `with_settings`, which returns it with some `ModelSettings` in the place of its own;
    `fitted`, which returns what of a composition it sends; a `price`; and `output_modes`: the ways in which it can be
    asked for an answer of a type, the one to take first. A model that has none is asked by words in the prompt, which
    every model reads.
    """

    @property
    def name(self) -> str:
        """The name to show and to log."""
        ...

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition and return the whole reply.

        With `on_delta` the reply is streamed: each piece is passed to it as it arrives. A model that awaits what it
        returns, as `passed_on` does, reads no faster than who listens.

        Raises:
            ModelError: There is no reply; see its subclasses.
        """
        ...


OnDelta: TypeAlias = Callable[[Delta], object]
"""Takes the pieces of a reply; what it returns is awaited where it can be."""


async def send_delta(delta: Delta, on_delta: OnDelta) -> None:
    """Pass a piece of a reply on, and wait until whoever listens has taken it."""
    taken = on_delta(delta)
    if taken is not None and isawaitable(taken):
        await taken
