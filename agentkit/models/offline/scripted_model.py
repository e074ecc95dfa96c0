"""A model with predefined replies, for tests, examples and benchmarks."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel
from pydantic_core import to_json

from agentkit.errors import AgentDefinitionError
from agentkit.models.abilities import OutputMode
from agentkit.models.model import Delta, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelInterrupted, ScriptExhausted
from agentkit.models.prices import Price
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.errors import check_types
from agentkit_prompts.hints import hinted, with_option_hints

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition


@dataclass(frozen=True, slots=True)
class CutOff:
    """A reply that is cut: its text is sent to the listener, then `ModelInterrupted` is raised."""

    text: str
    reason: str = "connection closed"


@dataclass(frozen=True, slots=True)
class Delayed:
    """A delayed reply."""

    seconds: float
    """Delay in seconds of the event loop; see `agentkit.testing.controlled_time`."""
    reply: Content | Exception | CutOff


Calls: TypeAlias = ToolCall | list[ToolCall] | tuple[ToolCall, ...]
Content: TypeAlias = str | Calls | BaseModel | Mapping[str, Any] | Message | Reply
"""Content of a reply: its text, its tool calls, a structured answer (sent as JSON text), its message, or the whole
reply."""
Scripted: TypeAlias = Content | Exception | CutOff | Delayed
"""One reply: its content, an error to raise, or a cut or delayed reply."""

_ADVICE = "pass one reply per request, or use ScriptedModel.repeat(...)"
_MAX_REASON = 500
"""Maximum characters of the message that caused a request."""
_WORD = re.compile(r"\s*\S+|\s+")


@hinted
class ScriptedModel:
    """A model that returns `replies`, one per request, in order.

    A reply is a text, a `ToolCall` or a list of calls, a structured answer (an object of pydantic or a mapping), a
    `Message`, a `Reply`, an exception to raise, or a `CutOff` or `Delayed` reply.

    A callable reply receives the composition and returns the reply. `requests` contains the last `keep` compositions
    (all if `keep` is None). `price` is the price of the model.

    Raises:
        ScriptExhausted: A request after the last reply.
        AgentDefinitionError: A reply, or another argument, has a wrong type.
    """

    requests: deque[Composition]
    settings: ModelSettings = NO_SETTINGS
    """Settings of the model, which do not change its replies."""
    output_modes: tuple[OutputMode, ...] = ("native", "tool", "prompted")
    # Optional attributes of models: their look-up on each request would search for a hint.
    fitted: None = None
    text_tokens: None = None

    @with_option_hints
    def __init__(
        self,
        replies: Iterable[Scripted | Callable[[Composition], Scripted]],
        *,
        name: str = "scripted",
        keep: int | None = None,
        price: Price | None = None,
    ) -> None:
        if isinstance(replies, str | Mapping | BaseModel):
            kind = type(replies).__name__
            raise AgentDefinitionError(
                f"ScriptedModel: expected a list of replies, got one {kind}; write ScriptedModel([...])",
                name="replies",
                value=kind,
            )
        if callable(replies):
            raise AgentDefinitionError(
                "ScriptedModel: expected a list of replies, got a function; write ScriptedModel.repeat(function), "
                "which calls it for each request",
                name="replies",
                value="function",
            )
        check_types(
            AgentDefinitionError,
            "ScriptedModel",
            replies=(replies, Iterable, "a list of replies"),
            name=(name, str, "a name"),
            keep=(keep, (int, type(None)), "a whole number of 0 or more"),
            price=(price, (Price, type(None)), "a Price"),
        )
        if keep is not None and keep < 0:
            raise AgentDefinitionError(
                f"ScriptedModel: keep: expected a whole number of 0 or more, got {keep}", name="keep", value=keep
            )
        # Replies are prepared here, because a request must cost almost no time.
        self._replies: Iterator[_Ready | Callable[[Composition], Scripted]] = iter(
            [reply if callable(reply) else _ready(reply, name) for reply in replies]
        )
        self.name = name
        self.price = price
        self.requests = deque(maxlen=keep)

    @classmethod
    def repeat(
        cls,
        *replies: Scripted | Callable[[Composition], Scripted],
        name: str = "scripted",
        keep: int | None = None,
        price: Price | None = None,
    ) -> ScriptedModel:
        """Return a model that repeats `replies` in a cycle."""
        model = cls(replies, name=name, keep=keep, price=price)
        model._replies = itertools.cycle(model._replies)
        return model

    def with_settings(self, settings: ModelSettings) -> ScriptedModel:
        """Return a copy with other settings, which shares replies and requests with this model."""
        # The iterator of replies is shared, so that the copy returns the next reply.
        clone = copy(self)
        clone.settings = self.settings.merged(settings)
        return clone

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Return the next reply, sent word by word if `on_delta` is a listener."""
        self.requests.append(composition)
        reply = next(self._replies, None)
        if callable(reply):
            try:
                reply = _ready(reply(composition), self.name)
            except StopIteration:  # a function that calls `next` has no replies left
                reply = None
        if reply is None:
            raise ScriptExhausted(f"no replies left{_reason(composition)}; {_ADVICE}", model=self.name)
        if type(reply) is not Reply:
            reply = await self._delayed_reply(reply, on_delta)
        if on_delta is not None and (text := reply.message.text):
            await send_words(text, on_delta)
        return reply

    async def _delayed_reply(self, reply: _Ready, on_delta: OnDelta | None) -> Reply:
        """Return a delayed reply, or raise the error of the script."""
        if isinstance(reply, Delayed):
            await asyncio.sleep(reply.seconds)
            reply = _ready(reply.reply, self.name)
        if isinstance(reply, CutOff):
            if on_delta is not None:
                await send_words(reply.text, on_delta)
            raise ModelInterrupted.after(reply.text, reply.reason, model=self.name)
        if isinstance(reply, Exception):
            raise reply
        # `_ready` refuses a delay inside a delay.
        assert isinstance(reply, Reply)
        return reply


def _reason(composition: Composition) -> str:
    """Return the reason of a further request: the message after the last reply; empty for the first request."""
    messages = composition.context.intermediate
    if not messages:
        return ""
    last = messages[-1]
    text = f"{last.text[:_MAX_REASON]!r}"
    if last.role == "tool":
        return f" for the request with the result of the tool {last.name}: {text}"
    return f" for the request after the last reply, which was refused: {text}"


async def send_words(text: str, on_delta: OnDelta) -> None:
    """Send a text to the listener word by word."""
    for word in _WORD.findall(text):
        await send_delta(Delta(word), on_delta)


_Ready: TypeAlias = Reply | Exception | CutOff | Delayed


def _ready(reply: Scripted, name: str) -> _Ready:
    # Most replies are ready, so this check comes first: a request must cost almost no time.
    if isinstance(reply, Reply):
        return reply
    if isinstance(reply, Delayed):
        return _ready_delay(reply, name)
    if isinstance(reply, Exception | CutOff):
        return reply
    message = _message(reply)
    if message.role != "assistant":
        raise _reply_error(f"a {message.role} message")
    if message.tool_calls:
        return Reply(message, finish_reason="tool_calls", model=name)
    return Reply(message, model=name)


def _message(reply: object) -> Message:
    """Return the message of a reply.

    Raises:
        AgentDefinitionError: The reply has a wrong type.
    """
    if isinstance(reply, str):
        return Message("assistant", reply)
    if isinstance(reply, Message):
        return reply
    if isinstance(reply, BaseModel):
        return Message("assistant", reply.model_dump_json())
    if isinstance(reply, Mapping):
        return Message("assistant", to_json(dict(reply)).decode())
    calls = reply
    if isinstance(reply, ToolCall):
        calls = [reply]
    if isinstance(calls, list | tuple) and calls and all(isinstance(call, ToolCall) for call in calls):
        return Message("assistant", tool_calls=calls)
    raise _reply_error(type(reply).__name__)


def _ready_delay(delay: Delayed, name: str) -> Delayed:
    reply = _ready(delay.reply, name)
    if isinstance(reply, Delayed):
        raise AgentDefinitionError(
            "ScriptedModel: a Delayed contains another Delayed; add their seconds", name="replies", value="Delayed"
        )
    # NaN is not at least 0.
    if not delay.seconds >= 0:
        raise AgentDefinitionError(
            f"ScriptedModel: Delayed({delay.seconds!r}, ...): seconds must be 0 or more", name="seconds"
        )
    return Delayed(delay.seconds, reply)


def _reply_error(actual: str) -> AgentDefinitionError:
    return AgentDefinitionError(
        "ScriptedModel: expected a str, a ToolCall or a list of ToolCalls, a BaseModel or a mapping, an assistant "
        f"Message, a Reply, an Exception, Delayed or CutOff, got {actual}",
        name="replies",
        value=actual,
    )
