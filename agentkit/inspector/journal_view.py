"""A journal as a timeline in JSON: model calls, tool calls, recalls and approvals, with their costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agentkit.inspector.composition_view import clipped
from agentkit.inspector.recall_view import result_view
from agentkit.models.model import Usage
from agentkit.run.journal.failed_call import error_data
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.run.journal.journal_steps import JournalStep, StepKind, changed_calls
from agentkit.run.parts.decisions import Denied
from agentkit.run.parts.run_guards import GuardCheck
from agentkit.run.parts.run_inbox import SentMessage
from agentkit.run.parts.verdicts import Replace
from agentkit_prompts.context.messages import Message, ToolCall

_MAX_EVENTS = 50
"""Maximum events of one answer; the page requests more when it scrolls."""

Json = dict[str, Any]


def journal_view(outline: JournalOutline, usage: Usage | None = None) -> Json:
    """Return a run as JSON data: its agent, its `usage`, and its first `events` in order; see `events_view`.

    Without `usage`, tokens and money are read from all entries.

    `count` is the number of events, `models` and `tools` are the numbers of model calls and of tool calls. Of the first
    lines of a journal, `is_whole` is False, `count` is the number of `events`, and `ended`, `models`, `tools` are None.

    The times `began` and `ended` are seconds since 1970, or None if unknown. A journal stores the time of each result:
    a step begins at the end of the step before it, and the tool calls of one reply begin together. The run begins with
    its first result.
    """
    journal = outline.head
    ctx = journal.context
    scope = None
    if journal.scope is not None:
        scope = list(journal.scope)
    began = ended = None
    if outline.entries:
        began, ended = outline.entries[0].at, outline.entries[-1].at
    events = events_view(outline, 0)
    view = {
        "run": journal.run_id,
        "agent": journal.agent,
        "session": journal.session,
        "scope": scope,
        "input": clipped(ctx.user_input.text),
        "kwargs": dict(ctx.user_input.additional_kwargs),
        "continues_session": journal.continues_session,
        "usage": usage_view(usage or outline.usage),
        "is_whole": outline.is_whole,
        "began": began,
        "ended": ended,
        "count": outline.count,
        "models": outline.counted("CallModel"),
        "tools": outline.counted("CallTools") + len(outline.unfinished),
        "events": events,
        "answer": clipped(_answer(outline)),
    }
    if not outline.is_whole:
        view |= {"ended": None, "count": len(events), "models": None, "tools": None, "answer": ""}
    return view


def events_view(outline: JournalOutline, start: int) -> list[Json]:
    """Return events of a run from a number, at most `_MAX_EVENTS`.

    An event has its `index` and the `kind` of its step, see `StepKind`. The event of an agent that ran as a tool has
    the name of the agent and the number of its events in `inner`.
    """
    return [
        {"index": at, "kind": step.kind, "began": step.began, "ended": step.ended, **_DETAILS[step.kind](step)}
        for at, step in enumerate(outline.part(start, start + _MAX_EVENTS), start)
    ]


def _answer(outline: JournalOutline) -> str:
    """Return the last text of the model in the conversation; empty without a text."""
    for at in range(len(outline.entries) - 1, -1, -1):
        if outline.effects[at] == "Append":
            for message in reversed(outline.entries[at].answer):
                if message.role == "assistant":
                    text: str = message.text
                    return text
    return ""


def usage_view(usage: Usage) -> Json:
    """Return tokens, and US dollars if the price is known."""
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "money": usage.money,
    }


def waiting_calls(journal: Journal) -> dict[str, ToolCall]:
    """Return the calls without a result and without a decision, by the ids that decisions use.

    A call of an agent that runs as a tool has the id `outer/inner`. A run that was interrupted also has such calls,
    without waiting for decisions.
    """
    calls: dict[str, ToolCall] = {}
    # Only the calls of the last reply can wait: the run continued after the results of earlier calls.
    for step in journal.steps():
        if step.kind == "model":
            calls = dict(step.calls)
        elif step.kind == "approval":
            calls = {id: call for id, call in calls.items() if id not in step.answer}
        elif step.kind == "append":
            calls = {}
        elif step.kind == "guard":
            waiting = step.answer.waiting_call
            if waiting is not None:
                calls[waiting.id] = waiting
            calls.update(changed_calls(step.kind, step.answer, calls))
        elif step.call is not None:
            calls.pop(step.call.id, None)
            if step.inner is not None and not step.has_result:
                inside = waiting_calls(step.inner)
                calls.update({inner_id(step.call.id, id): call for id, call in inside.items()})
    return calls


def reply_view(message: Message) -> Json:
    """Return the text, the thinking and the tool calls of a reply of a model."""
    return {
        "text": clipped(message.text),
        "thinking": clipped(message.reasoning),
        "calls": [_call(call) for call in message.tool_calls],
    }


def _model(step: JournalStep) -> Json:
    reply = step.answer
    return {
        "step": step.step,
        "model": reply.model,
        **reply_view(reply.message),
        # The loop replaces ids of calls that are not unique in the run.
        "calls": [_call(call) for call in step.calls.values()],
        "finish": str(reply.finish_reason),
        "usage": usage_view(reply.usage),
    }


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "name": call.name, "arguments": clipped(call.arguments)}


def _tool(step: JournalStep) -> Json:
    assert step.call is not None
    event: Json = {"step": step.step, **_call(step.call), "status": "running", "text": "", "usage": None}
    if step.has_result:
        result = step.answer[0]
        event.update(status=str(result.status), text=clipped(result.message.text))
        if result.has_failed:
            trace = error_data(result).get("error_traceback", "")
            event.update(failed=True, traceback=clipped(trace))
    if step.usage is not None:
        event["usage"] = usage_view(step.usage)
    if step.inner is not None:
        inner: JournalOutline = step.inner
        began = None
        if inner.entries:
            began = inner.entries[0].at
        event["inner"] = {"agent": inner.agent, "count": inner.count, "began": began}
    return event


def _approval(step: JournalStep) -> Json:
    decisions: list[Json] = []
    for call_id, decision in step.answer.items():
        name = ""
        if call_id in step.calls:
            name = step.calls[call_id].name
        row: Json = {"id": call_id, "name": name, "approved": not isinstance(decision, Denied)}
        if isinstance(decision, Denied):
            row["reason"] = clipped(decision.reason)
        elif decision.arguments is not None:
            row["changed"] = dict(decision.arguments)
        decisions.append(row)
    return {"step": step.step, "decisions": decisions}


def _sent(sent: SentMessage) -> Json:
    return {"text": clipped(sent.message.text), "by": sent.by, "when": sent.when, "sent_at": sent.sent_at}


def _compact(step: JournalStep) -> Json:
    result = step.answer
    summary = None
    if result.summary is not None:
        summary = clipped(result.summary)
    return {"messages": result.messages, "summary": summary, "usage": usage_view(result.usage)}


def _guard(step: JournalStep) -> Json:
    check: GuardCheck = step.answer
    verdict = check.verdict
    event: Json = {
        "step": step.step,
        "name": check.guard,
        "stage": check.stage,
        "subject": check.subject,
        "action": verdict.action,
        "text": clipped(getattr(verdict, "reason", "")),
        "usage": None,
    }
    if isinstance(verdict, Replace):
        value = verdict.value
        if not isinstance(value, str):
            value = json.dumps(dict(value), ensure_ascii=False)
        event["text"] = clipped(value)
    if step.usage is not None:
        event["usage"] = usage_view(step.usage)
    return event


_DETAILS: Mapping[StepKind, Callable[[JournalStep], Json]] = {
    "begin": lambda step: {"before": step.answer[0], "done": step.answer[1]},
    "compact": _compact,
    "tools": lambda step: {"names": [spec.name for spec in step.answer]},
    "examples": lambda step: {"prompts": len(step.answer)},
    "recall": lambda step: result_view(step.answer),
    "model": _model,
    "approval": _approval,
    "tool": _tool,
    "check": lambda step: {"problem": step.answer.problem},
    "guard": _guard,
    "receive": lambda step: {"messages": [_sent(sent) for sent in step.answer]},
}
"""Fields of the event of each kind of step; appended messages are shown by other events."""
