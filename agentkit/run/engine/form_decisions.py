"""Decisions about forms, with which the code of a tool asks the person of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkit.errors import ApprovalError, Paused
from agentkit.run.engine import events
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.parts.decisions import Decision, Denied, decision
from agentkit_prompts.context.messages import ToolCall

if TYPE_CHECKING:
    from agentkit.run.engine.current_run import CurrentRun


async def decide_form(
    run: CurrentRun, journal: Journal, step: int, call_id: str, form: ToolCall, *, can_repeat: bool
) -> Mapping[str, Any] | None:
    """Return the arguments with which a person approved a form; None if the person denied it.

    The journal stores the decision. A resumed run repeats the call, and finds the decision.

    Args:
        run: The run.
        journal: The journal of the run.
        step: Number of the step.
        call_id: Id of the call whose tool asks.
        form: The form; its id is unique in the call.
        can_repeat: True if the call may run again after a pause; otherwise only an approver that is a function is
            asked.

    Raises:
        Paused: The run has no approver: it ends after the other calls of the round.
        ApprovalError: The approver returned no decision.
    """
    waiting = replace(form, id=inner_id(call_id, form.id))
    answer = run.decisions.get(waiting.id)
    if answer is None:
        answer = await _decision(run, step, call_id, form, waiting, can_repeat=can_repeat)
        journal.add("AskApproval", {waiting.id: answer})
    if isinstance(answer, Denied):
        return None
    return answer.arguments or {}


async def _decision(
    run: CurrentRun, step: int, call_id: str, form: ToolCall, waiting: ToolCall, *, can_repeat: bool
) -> Decision:
    approve = run.approve
    name = f"{form.name} ({waiting.id})"
    if callable(approve):
        await _emit(run, events.ApprovalAsked(step, (waiting,)))
        try:
            result: Any = approve(waiting)
            if isinstance(result, Awaitable):
                result = await result
            answer = decision(result, name)
        except Exception as error:
            # The error of the approver ends the run, as for other calls; the tool would turn it into a result.
            run.stop(call_id, error)
            raise
        await _emit(run, events.ApprovalGiven(step, waiting, answer))
        return answer
    passed: Any = approve or {}
    if waiting.id in passed:
        try:
            answer = decision(passed[waiting.id], name)
        except ApprovalError as error:
            run.stop(call_id, error)
            raise
        await _emit(run, events.ApprovalGiven(step, waiting, answer))
        return answer
    unknown = [key for key in passed if str(key).startswith(inner_id(call_id, "")) and key not in run.decisions]
    if unknown:
        problem = ApprovalError(
            f"approve: no waiting call has the id {', '.join(map(repr, unknown))}; waiting calls: {waiting.id}",
            name="approve",
            value=", ".join(unknown),
        )
        run.stop(call_id, problem)
        raise problem
    if not can_repeat:
        return Denied("no person can be asked during the call.")
    await _emit(run, events.ApprovalAsked(step, (waiting,)))
    paused = Paused([form])
    run.stop(call_id, paused)
    raise paused


async def _emit(run: CurrentRun, event: events.ApprovalAsked | events.ApprovalGiven) -> None:
    if run.sink is not None:
        await run.sink.emit(event)
