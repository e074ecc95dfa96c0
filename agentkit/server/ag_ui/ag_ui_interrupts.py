"""Interrupts of AG-UI: calls that wait for a decision, and the decisions about them."""

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
from agentkit_tools.calling.shown_arguments import argument_lines

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object", "description": "Replaces all arguments of the call."},
        "reason": {"type": "string", "description": "Reason of a denial, which the model receives."},
    },
    "required": ["approved"],
    "additionalProperties": False,
}
"""JSON Schema of the answer to an interrupt."""
_ABANDONED = "the person left it undecided"


class _Payload(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    approved: bool
    edited_args: dict[str, Any] | None = Field(default=None, alias="editedArgs")
    reason: str | None = None


def interrupt_of(run_id: str, call: ToolCall) -> Interrupt:
    """Return the interrupt of a call that needs approval.

    Args:
        run_id: Id of the run on the server.
        call: The call. A call of an inner agent is attached to the call of the agent's tool. The message cuts long
            values of its arguments; the metadata contain them whole.
    """
    lines = argument_lines(call.arguments)
    question = f"Run {call.name} without arguments?"
    if lines:
        question = "\n".join([f"Run {call.name} with these arguments?", *lines])
    return Interrupt(
        id=f"{run_id}-{call.id}",
        reason="tool_call",
        message=question,
        tool_call_id=f"{run_id}-{outer_call(call.id)}",
        response_schema=_SCHEMA,
        metadata={"name": call.name, "arguments": call.arguments},
    )


def outer_call(call_id: str) -> str:
    """Return the id of the outermost call. The id of a call of an inner agent is `outer/inner`."""
    return call_id.partition("/")[0]


def interrupted_run(resume: Sequence[ResumeEntry]) -> str:
    """Return the server's id of the run whose interrupts a request answers.

    Raises:
        Unprocessable: The interrupts belong to several runs, or an interrupt has two answers.
    """
    ids = Counter([entry.interrupt_id for entry in resume])
    runs = {interrupt.partition("-")[0] for interrupt in ids}
    if len(runs) > 1:
        raise Unprocessable("resume: the interrupts belong to several runs: send a request per run", param="resume")
    duplicates = ", ".join([interrupt for interrupt, count in ids.items() if count > 1])
    if duplicates:
        raise Unprocessable(f"resume: several answers to {duplicates:.200}", param="resume")
    return runs.pop()


def decisions_of(resume: Sequence[ResumeEntry], record: RunRecord) -> dict[str, Decision]:
    """Return the decision about each waiting call, by the id of the call.

    Raises:
        Unprocessable: An interrupt has no answer, or an answer is invalid. The error lists all problems.
    """
    problems: list[str] = []
    decisions: dict[str, Decision] = {}
    waiting = {f"{record.run_id}-{call.call_id}": call.call_id for call in record.waiting}
    for index, entry in enumerate(resume):
        call = waiting.pop(entry.interrupt_id, None)
        if call is None:
            problems.append(f"resume[{index}].interruptId: unknown interrupt {entry.interrupt_id!r:.100}")
            continue
        try:
            decisions[call] = _decision(entry)
        except Unprocessable as error:
            problems.append(f"resume[{index}].payload: {error}")
    problems += [f"resume: no answer to the interrupt {interrupt!r}" for interrupt in waiting]
    if problems:
        raise Unprocessable("; ".join(problems), param="resume", code="invalid_resume")
    return decisions


def _decision(entry: ResumeEntry) -> Decision:
    if entry.status == "cancelled":
        if entry.payload is not None:
            raise Unprocessable("a cancelled interrupt has no payload")
        return Denied(_ABANDONED)
    payload = validated(_Payload, entry.payload)
    if payload.approved:
        if payload.reason is not None:
            raise Unprocessable("reason: only valid if approved is false")
        return Approved(payload.edited_args)
    if payload.edited_args is not None:
        raise Unprocessable("editedArgs: only valid if approved is true")
    return Denied(payload.reason or "")
