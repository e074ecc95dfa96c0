"""Interrupts of AG-UI: calls that wait for a person, and what the person decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ag_ui.core import Interrupt, ResumeEntry
from pydantic import BaseModel, ConfigDict, Field

from agentkit.run.parts.decisions import Approved, Decision, Denied
from agentkit.runs.run_record import RunRecord
from agentkit.server.endpoints.exchange import validated
from agentkit.server.server_errors import Unprocessable
from agentkit_prompts.context.messages import ToolCall

__all__ = ["decisions_of", "interrupt_of", "interrupted_run", "outer_call"]

_MAX_SHOWN = 500
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "Takes the place of all arguments of the call."},
        "reason": {"type": "string", "description": "Why it is denied: the model reads it."},
    },
    "required": ["approved"],
    "additionalProperties": False,
}
"""What answers an interrupt."""
_ABANDONED = "the person left it undecided"


class _Payload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    approved: bool
    edited_args: dict[str, Any] | None = Field(default=None, alias="editedArgs")
    reason: str | None = None


def interrupt_of(run_id: str, call: ToolCall) -> Interrupt:
    """Return what a front end asks a person about a call.

    Args:
        run_id: Our id of the run.
        call: The call; that of an agent that runs as a tool is bound to the call of that tool.
    """
    shown = call.arguments if len(call.arguments) <= _MAX_SHOWN else f"{call.arguments[:_MAX_SHOWN]}..."
    return Interrupt(
        id=f"{run_id}-{call.id}",
        reason="tool_call",
        message=f"Run {call.name} with {shown}?",
        tool_call_id=f"{run_id}-{outer_call(call.id)}",
        response_schema=_SCHEMA,
        metadata={"name": call.name, "arguments": call.arguments},
    )


def outer_call(call_id: str) -> str:
    """Return the id of the call that the model of the run made: one inside is `outer/inner`."""
    return call_id.partition("/")[0]


def interrupted_run(resume: Sequence[ResumeEntry]) -> str:
    """Return our id of the run whose interrupts are answered.

    Raises:
        Unprocessable: They are of several runs, or one is answered twice.
    """
    ids = Counter([entry.interrupt_id for entry in resume])
    runs = {one.partition("-")[0] for one in ids}
    if len(runs) > 1:
        raise Unprocessable("resume: it answers interrupts of several runs: send one request for each", param="resume")
    if twice := [one for one, count in ids.items() if count > 1]:
        raise Unprocessable(f"resume: {', '.join(twice):.200} is answered twice", param="resume")
    return runs.pop()


def decisions_of(resume: Sequence[ResumeEntry], record: RunRecord) -> dict[str, Decision]:
    """Return the decision about each call that waits, by the id of the call.

    Raises:
        Unprocessable: Names each interrupt that has no answer, and each answer that is invalid or of no interrupt.
    """
    problems: list[str] = []
    made: dict[str, Decision] = {}
    waiting = {f"{record.run_id}-{call.call_id}": call.call_id for call in record.waiting}
    for at, entry in enumerate(resume):
        where = f"resume[{at}]"
        call = waiting.pop(entry.interrupt_id, None)
        if call is None:
            problems.append(f"{where}.interruptId: the run waits for no {entry.interrupt_id!r:.100}")
        elif entry.status == "cancelled":
            made[call] = Denied(_ABANDONED)
            if entry.payload is not None:
                problems.append(f"{where}.payload: a cancelled interrupt has none")
        else:
            try:
                made[call] = _decision(validated(_Payload, entry.payload))
            except Unprocessable as error:
                problems.append(f"{where}.payload: {error}")
    problems += [f"resume: no answer to the interrupt {one!r}" for one in waiting]
    if problems:
        raise Unprocessable("; ".join(problems), param="resume", code="invalid_resume")
    return made


def _decision(given: _Payload) -> Decision:
    if given.approved and given.reason is not None:
        raise Unprocessable("reason: only where approved is false")
    if not given.approved and given.edited_args is not None:
        raise Unprocessable("editedArgs: only where approved is true")
    return Approved(given.edited_args) if given.approved else Denied(given.reason or "")
