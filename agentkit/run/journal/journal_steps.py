"""Entries of a journal, and the list of steps that traces, costs and views read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from agentkit.models.model import Usage
from agentkit.run.journal.sent_layers import SentLayers
from agentkit_prompts.context.messages import ToolCall

StepKind: TypeAlias = Literal[
    "begin",
    "compact",
    "tools",
    "examples",
    "recall",
    "append",
    "model",
    "approval",
    "tool",
    "check",
    "guard",
    "receive",
]

_KINDS: Mapping[str, StepKind] = {
    "Begin": "begin",
    "Compact": "compact",
    "Equip": "tools",
    "SelectExamples": "examples",
    "Recall": "recall",
    "Append": "append",
    "CallModel": "model",
    "AskApproval": "approval",
    "CallTools": "tool",
    "CheckOutput": "check",
    "CheckGuard": "guard",
    "Receive": "receive",
}


class Entry(NamedTuple):
    """A step by its name in the journal, and its result."""

    effect: str
    answer: Any
    at: float | None = None
    """Time of the result in seconds since 1970; None in journals that are older than this field."""
    layers: SentLayers | None = None
    """Layers of the prompt of a model call; None if the journal is not stored and the run is not observed."""


@dataclass(frozen=True, slots=True)
class JournalStep:
    """One step of a run: an entry of its journal, or the call of an agent that has no result yet."""

    kind: StepKind
    number: int
    """Index of the entry; the number of entries for a call without a result."""
    step: int
    """Number of model calls so far, including this step."""
    answer: Any
    """Answer of the entry; None for a call without a result."""
    began: float | None
    """Seconds since 1970; None if unknown."""
    ended: float | None
    """Seconds since 1970; None if unknown, or if the call has no result."""
    calls: Mapping[str, ToolCall]
    """Calls of the latest reply, by id, with the arguments that earlier guards and decisions have set."""
    usage: Usage | None = None
    """Tokens and money of a model call, a summary, or the runs inside a tool call."""
    call: ToolCall | None = None
    """Call of a tool step; without arguments if the reply has no call of this id."""
    layers: SentLayers | None = None
    """Layers of the prompt of a model call, if the journal has them."""
    inner: Any = None
    """`Journal` of the agent that ran as the tool; None for other steps and tools."""

    @property
    def has_result(self) -> bool:
        """True unless the step is a call that has no result yet."""
        return self.answer is not None


def journal_steps(
    entries: Sequence[Entry], journals: Mapping[str, Any], part: range | None = None, model_calls: int = 0
) -> list[JournalStep]:
    """Return the steps of a journal in order; calls of agents without a result come last.

    Args:
        entries: Entries of the journal.
        journals: Journals of agents that run as tools, by the ids of their calls.
        part: Numbers of the entries whose steps are returned, without calls that have no result; the first entry is a
            reply of a model, or the first entry of the journal. None for all steps.
        model_calls: Number of model calls before the part.
    """
    unfinished = dict(journals)
    steps: list[JournalStep] = []
    calls: Mapping[str, ToolCall] = {}
    latest: float | None = None
    if part is not None and part.start:
        latest = entries[part.start - 1].at
    for number in part or range(len(entries)):
        entry = entries[number]
        kind = _KINDS[entry.effect]
        began, usage, call, inner = latest, None, None, None
        if kind == "tool":
            # The calls of one reply begin together: the entry of the previous result is not the start of this call.
            if steps and steps[-1].kind == "tool":
                began = steps[-1].began
            result, usage = entry.answer
            call = calls.get(result.call_id) or ToolCall(result.call_id, result.name, "")
            inner = unfinished.pop(result.call_id, None)
        elif kind == "model":
            model_calls += 1
            calls = _calls(entries, number)
            usage = entry.answer.usage
        elif kind in ("compact", "guard"):
            usage = entry.answer.usage
        steps.append(
            JournalStep(
                kind, number, model_calls, entry.answer, began, entry.at, calls, usage, call, entry.layers, inner
            )
        )
        if changed := changed_calls(kind, entry.answer, calls):
            calls = {**calls, **changed}
        if entry.at is not None:
            latest = entry.at
    if part is not None:
        return steps
    for call_id, inner in unfinished.items():
        call = calls.get(call_id) or ToolCall(call_id, inner.agent, "")
        steps.append(
            JournalStep("tool", len(entries), model_calls, None, latest, None, calls, inner.usage, call, inner=inner)
        )
    return steps


def changed_calls(kind: StepKind, answer: Any, calls: Mapping[str, ToolCall]) -> dict[str, ToolCall]:
    """Return the calls whose arguments a step replaces: decisions, or a verdict of a guard."""
    arguments: dict[str, Any] = {}
    if kind == "approval":
        arguments = {call_id: getattr(decision, "arguments", None) for call_id, decision in answer.items()}
    elif kind == "guard" and answer.stage == "tool_call":
        arguments = {answer.subject: getattr(answer.verdict, "value", None)}
    return {
        call_id: replace(calls[call_id], arguments=json.dumps(dict(values), ensure_ascii=False))
        for call_id, values in arguments.items()
        if call_id in calls and isinstance(values, Mapping)
    }


def unfinished_calls(entries: Sequence[Entry]) -> list[ToolCall]:
    """Return the calls of the latest reply that have no result yet, in order; or the call of a guard that waits."""
    results, decided = set[str](), set[str]()
    for number in range(len(entries) - 1, -1, -1):
        entry = entries[number]
        if entry.effect == "CallModel":
            calls = _calls(entries, number)
            for later in entries[number + 1 :]:
                calls.update(changed_calls(_KINDS[later.effect], later.answer, calls))
            return [call for call in calls.values() if call.id not in results]
        if entry.effect == "CallTools":
            results.add(entry.answer[0].call_id)
        elif entry.effect == "AskApproval":
            decided.update(entry.answer)
        elif entry.effect == "CheckGuard":
            call = entry.answer.waiting_call
            if call is not None and call.id not in decided:
                return [call]
        else:
            break
    return []


def _calls(entries: Sequence[Entry], number: int) -> dict[str, ToolCall]:
    """Return the calls of the reply in an entry.

    The loop replaces ids that are not unique in the run: the stored message has the ids that results refer to.
    """
    message = entries[number].answer.message
    # By index, because `islice` would step through all earlier entries again for each reply.
    for at in range(number + 1, len(entries)):
        entry = entries[at]
        if entry.effect == "CallModel":
            break
        if entry.effect == "Append" and entry.answer and entry.answer[0].role == "assistant":
            message = entry.answer[0]
            break
    return {call.id: call for call in message.tool_calls}
