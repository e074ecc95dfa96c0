"""Writes down what a loop asks for and what it is answered."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar, get_args

from agentkit.models.prices import Price
from agentkit.run.engine.effects import Append, Begin, CallModel, Effect, Equip
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.trace import SentLayers

__all__ = ["recording"]

R = TypeVar("R")


def recording(
    loop: Generator[Effect, Any, R], journal: Journal, price: Price | None = None
) -> Generator[Effect, Any, R]:
    """Run `loop`, and add every answer to the journal before the loop has it, but for those the journal begins with.

    `price` is that of the model.
    """
    answer: Any = None
    known = len(journal.entries)
    while True:
        try:
            effect = loop.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = yield effect
        if known:
            known -= 1
            continue
        name, noted = _ENTRIES[type(effect)]
        layers = None
        if journal.has_layers and isinstance(effect, CallModel):
            layers = SentLayers.of(effect.composition, answer.usage, price)
        journal.add(name, answer if noted is None else noted(effect, answer), layers)


_ENTRIES: Mapping[type[Effect], tuple[str, Callable[[Any, Any], Any] | None]] = {
    **{kind: (kind.__name__, None) for kind in get_args(Effect)},
    Append: ("Append", lambda effect, _: effect.messages),
    Begin: ("Begin", lambda _, begun: (len(begun.conversation), len(begun.done))),
    Equip: ("Equip", lambda _, tools: tuple([tool.spec for tool in tools.values()])),
}
"""How a journal calls each effect, and what it keeps in place of the answer: not the conversation, which its session
keeps, and no functions."""
