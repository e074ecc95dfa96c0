"""Answers what a loop asks for from a journal, as far as it goes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

from agentkit.errors import JournalError
from agentkit.run.engine.effects import Append, Begin, CallModel, CallTools, CheckOutput, Effect, Equip
from agentkit.run.engine.loop import is_repair
from agentkit.run.journal.journal import Entry, Journal
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import ToolSpec
from agentkit_tools.tool import Tool

__all__ = ["replaying"]

R = TypeVar("R")


def replaying(
    loop: Generator[Effect, Any, R], journal: Journal, was_sent: Callable[[Composition], object] | None = None
) -> Generator[Effect, Any, R]:
    """Run `loop`, answering its effects from the journal; those that the journal does not know are passed on.

    What a journal cannot hold is asked for again: the conversation, as it was then, and the functions of tools.
    `was_sent` is called with each composition that the journal has the reply to.

    Raises:
        JournalError: The loop asks for something else than the journal has the answer of.
    """
    known, at = [*journal.entries], 0
    answer: Any = None
    while True:
        try:
            effect = loop.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if at == len(known):
            answer = yield effect
            continue
        name, answer, *_ = known[at]
        at += 1
        if name != type(effect).__name__ or not _fits(effect, answer):
            raise JournalError(
                f"journal of run {journal.run_id!r}: it goes on with {name}, the run with {type(effect).__name__}: "
                "it is the journal of another agent, or the agent has changed since",
                name=name,
                value=type(effect).__name__,
            )
        if isinstance(effect, CallModel) and was_sent is not None:
            was_sent(effect.composition)
        elif isinstance(effect, Append):
            answer = _repair(known[at]) if at < len(known) else None
        elif isinstance(effect, Begin):
            answer = yield replace(effect, at=answer)
        elif isinstance(effect, CheckOutput) and answer.problem is None:  # a journal cannot hold the answer
            answer = yield effect
        elif isinstance(effect, Equip):
            answer = _as_they_were(answer, (yield effect))


def _repair(entry: Entry) -> Message | None:
    """Return the message that asked the model to repair its answer, if that is what came next."""
    message = entry.answer[-1] if entry.effect == "Append" and entry.answer else None
    return message if isinstance(message, Message) and is_repair(message) else None


def _fits(effect: Effect, answer: Any) -> bool:
    """Whether an answer is one to this very effect, as far as can be seen."""
    if isinstance(effect, Append):
        return bool(answer == effect.messages)
    return not isinstance(effect, CallTools) or answer[0].call_id in {call.id for call in effect.calls}


def _as_they_were(specs: tuple[ToolSpec, ...], tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools that the model was offered, as it was offered them, with the functions that there are now.

    Raises:
        JournalError: Some of them are gone.
    """
    if gone := [spec.name for spec in specs if spec.name not in tools]:
        raise JournalError(
            f"the run was offered tools that are gone: {', '.join(gone)}", name="tools", value=", ".join(gone)
        )
    found: dict[str, Tool] = {}
    for spec in specs:
        found[spec.name] = tool = copy(tools[spec.name])
        tool.spec = spec
    return found
