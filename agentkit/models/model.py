"""The protocol `Model`, its replies, deltas and usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from agentkit_prompts.context.messages import Message
from agentkit_prompts.hints import Hinted

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

MODEL_EXPECTED = "expected a model, such as OpenAIModel(...) or model('openai:gpt-5-mini')"
FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "error"]


@dataclass(frozen=True, slots=True)
class Usage(metaclass=Hinted):
    """Tokens as the endpoint counted them; 0 if the endpoint sent no count."""

    input_tokens: int = 0
    """Tokens of the prompt, including cached tokens."""
    output_tokens: int = 0
    """Tokens of the reply."""
    cached_tokens: int = 0
    """Tokens of the prompt that came from the endpoint's prompt cache."""
    money: float | None = None
    """Cost in US dollars; None if the price is unknown."""
    reasoning_tokens: int = 0
    """Tokens of the reply that the model used for its thinking, as far as the endpoint counts them separately."""

    def __add__(self, other: Usage) -> Usage:
        if self is NO_USAGE:
            return other
        # The cost of no tokens is 0, also if the price is unknown.
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
            self.reasoning_tokens + other.reasoning_tokens,
        )


NO_USAGE = Usage()


DeltaKind: TypeAlias = Literal["text", "thinking", "refusal", "arguments", "fallback"]


class Delta(NamedTuple):
    """A piece of a streamed reply."""

    text: str
    kind: DeltaKind = "text"
    """The joined deltas of kind `text` and `refusal` are the text of the reply. A delta of kind `fallback` is not a
    piece of the reply: its text is the error after which the model `name` is tried."""
    call: int = 0
    """Position of the tool call that a piece of arguments belongs to, from 0."""
    name: str = ""
    """Name of the tool, as far as it has arrived; for kind `fallback`, name of the next model."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a model."""

    message: Message
    """The assistant message: text, tool calls or both."""
    usage: Usage = Usage()
    finish_reason: FinishReason | str = "stop"
    """Reason why the reply ended: `tool_calls` if the reply has tool calls and was not truncated; unknown reasons are
    passed on as the endpoint sent them."""
    model: str = ""
    """Name of the model, as the endpoint sent it."""


class Model(Protocol):
    """A language model, or a replacement for tests such as `ScriptedModel`.

    Optional attributes: `with_settings`, a method that returns a copy with other `ModelSettings`; `fitted`, a method
    that returns the part of a composition that the model accepts; `price`; and `output_modes`, the ways to request
    typed output, preferred way first. A model without `output_modes` receives the schema in the prompt.
    """

    @property
    def name(self) -> str:
        """The name in messages and logs."""
        ...

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Send the composition and return the whole reply.

        With `on_delta` the reply is streamed: each delta is passed to the listener as it arrives. A model should await
        the return value of the listener, as `send_delta` does, so that a slow listener slows down the stream.

        Raises:
            ModelError: The request failed; see the subclasses.
        """
        ...


OnDelta: TypeAlias = Callable[[Delta], object]
"""Listener that receives the deltas of a reply; an awaitable return value is awaited."""


async def send_delta(delta: Delta, on_delta: OnDelta) -> None:
    """Pass a delta to the listener, and wait until the listener has processed it."""
    result = on_delta(delta)
    if result is not None and isawaitable(result):
        await result
