"""A model whose replies are written in advance: for tests, examples and benchmarks."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from agentkit.errors import AgentDefinitionError
from agentkit.models.abilities import OutputMode
from agentkit.models.model import Delta, OnDelta, Reply, send_delta
from agentkit.models.model_errors import ModelInterrupted, ScriptExhausted
from agentkit.models.prices import Price
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import check_types

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

__all__ = ["CutOff", "Delayed", "ScriptedModel", "send_words"]


@dataclass(frozen=True, slots=True)
class CutOff:
    """A reply that breaks off: its text is passed on, then `ModelInterrupted` is raised."""

    text: str
    reason: str = "connection closed"


@dataclass(frozen=True, slots=True)
class Delayed:
    """A reply that takes a while."""

    seconds: float
    """Until it begins, as the event loop counts them; see `agentkit.testing.controlled_time`."""
    reply: str | Message | Reply | Exception | CutOff


Scripted: TypeAlias = str | Message | Reply | Exception | CutOff | Delayed
"""One reply: its text, its message, the whole reply, the error to raise, or one of these that is late or cut off."""

_WORD = re.compile(r"\s*\S+|\s+")


class ScriptedModel:
    """Answers with `replies`, one per request, in order.

    A callable among them is given the composition and returns the reply. `requests` holds the compositions it was
    sent, the last `keep` of them (all, when `keep` is None). `price` is what it pretends to cost.

    Raises:
        ScriptExhausted: It is asked once more than it has replies.
        AgentDefinitionError: A reply, or another argument, is something else.
    """

    requests: deque[Composition]
    settings: ModelSettings = NO_SETTINGS
    """What it pretends to be asked with: any."""
    output_modes: tuple[OutputMode, ...] = ("native", "tool", "prompted")

    def __init__(
        self,
        replies: Iterable[Scripted | Callable[[Composition], Scripted]],
        *,
        name: str = "scripted",
        keep: int | None = None,
        price: Price | None = None,
    ) -> None:
        if isinstance(replies, str):
            raise AgentDefinitionError(
                "ScriptedModel: expected a list of replies, got one str; write ScriptedModel([...])",
                name="replies",
                value="str",
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
        # What can be made once is made here: a request must cost next to nothing.
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
        """Return a model that goes through `replies` again and again."""
        model = cls(replies, name=name, keep=keep, price=price)
        model._replies = itertools.cycle(model._replies)
        return model

    def with_settings(self, settings: ModelSettings) -> ScriptedModel:
        """Return this model with settings, as it has them in `settings`: replies and requests are shared."""
        # The iterator of replies is shared, so that the next model takes the next reply.
        made = copy(self)
        made.settings = self.settings.merged(settings)
        return made

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Return the next reply, word by word when there is a listener."""
        self.requests.append(composition)
        reply = next(self._replies, None)
        if callable(reply):
            reply = _ready(reply(composition), self.name)
        if reply is None:
            raise ScriptExhausted(
                "there are no replies left; give it one per request, or use ScriptedModel.repeat(...)", model=self.name
            )
        if type(reply) is not Reply:
            reply = await self._on_cue(reply, on_delta)
        if on_delta is not None and (text := reply.message.text):
            await send_words(text, on_delta)
        return reply

    async def _on_cue(self, reply: _Ready, on_delta: OnDelta | None) -> Reply:
        """Return a reply that is late, or fail as the script says."""
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


async def send_words(text: str, on_delta: OnDelta) -> None:
    """Pass `text` on word by word."""
    for word in _WORD.findall(text):
        await send_delta(Delta(word), on_delta)


_Ready: TypeAlias = Reply | Exception | CutOff | Delayed


def _ready(reply: Scripted, name: str) -> _Ready:
    # Most replies are ready; this check comes first because requests must cost next to nothing.
    if isinstance(reply, Reply):
        return reply
    if isinstance(reply, Delayed):
        inner = _ready(reply.reply, name)
        if isinstance(inner, Delayed):
            raise AgentDefinitionError(
                "ScriptedModel: a Delayed holds another one; add their seconds", name="replies", value="Delayed"
            )
        if not reply.seconds >= 0:
            raise AgentDefinitionError(
                f"ScriptedModel: Delayed({reply.seconds!r}, ...): seconds must be 0 or more", name="seconds"
            )
        return Delayed(reply.seconds, inner)
    if isinstance(reply, Exception | CutOff):
        return reply
    message = reply
    if isinstance(reply, str):
        message = Message("assistant", reply)
    if not isinstance(message, Message) or message.role != "assistant":
        what = f"a {message.role} message" if isinstance(message, Message) else type(message).__name__
        raise AgentDefinitionError(
            "ScriptedModel: expected a str, an assistant Message, a Reply, an Exception, Delayed or CutOff, got "
            f"{what}",
            name="replies",
            value=what,
        )
    return Reply(message, finish_reason="tool_calls" if message.tool_calls else "stop", model=name)
