"""Writes down what a loop asks for and what it is answered."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from agentkit.run.effects import Append, Begin, Beginning, Effect, Equip
from agentkit.run.journal import Journal

__all__ = ["recording"]

R = TypeVar("R")


def recording(loop: Generator[Effect, Any, R], journal: Journal) -> Generator[Effect, Any, R]:
    """Run `loop`, and add every answer to the journal before the loop has it."""
    answer: Any = None
    while True:
        try:
            effect = loop.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = yield effect
        journal.add(type(effect).__name__, _noted(effect, answer))


def _noted(effect: Effect, answer: Any) -> Any:
    """Return what a journal keeps of an answer: not the conversation, which its session keeps, and no functions."""
    if isinstance(effect, Append):
        return effect.messages
    if isinstance(effect, Begin):
        begun: Beginning = answer
        return len(begun.conversation), len(begun.done)
    return tuple([tool.spec for tool in answer.values()]) if isinstance(effect, Equip) else answer
