"""A journal as a timeline in plain JSON: what was recalled, model calls, tools, approvals, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentkit.inspector.composition_view import clipped
from agentkit.inspector.recall_view import found_view
from agentkit.models.model import Usage
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.parts.decisions import Decision, Denied
from agentkit_prompts.context.messages import ToolCall

__all__ = ["journal_view", "waiting_calls"]

Json = dict[str, Any]


def journal_view(journal: Journal) -> Json:
    """Return a run as JSON data: who ran, what it used, and `events` in the order in which they happened.

    An event has a `kind`: `begin`, `compact`, `tools`, `examples`, `recall`, `model`, `approval`, `tool` or `check`.
    That of a tool which is an agent has the run of that agent under `inner`.
    """
    ctx = journal.context
    return {
        "run": journal.run_id,
        "agent": journal.agent,
        "session": journal.session,
        "scope": list(journal.scope) if journal.scope is not None else None,
        "input": clipped(ctx.user_input.text),
        "kwargs": dict(ctx.user_input.additional_kwargs),
        "goes_on": journal.goes_on,
        "usage": usage_view(journal.usage),
        "events": list(_events(journal)),
        "answer": next((clipped(one.text) for one in reversed(journal.messages) if one.role == "assistant"), ""),
    }


def usage_view(usage: Usage) -> Json:
    """Return tokens, and US dollars where the price is known."""
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "money": usage.money,
    }


def waiting_calls(journal: Journal) -> dict[str, ToolCall]:
    """Return the calls without a result and without a decision, by the ids that a decision is given for.

    Those of an agent that runs as a tool have the id of the tool's call, a slash and their own. The journal of a run
    that was cut short, and does not wait, has such calls too.
    """
    calls: dict[str, ToolCall] = {}
    for at, (name, answer, *_) in enumerate(journal.entries):
        if name == "CallModel":
            calls = _calls(journal, at)
        elif name == "CallTools":
            calls.pop(answer[0].call_id, None)
        elif name == "AskApproval":
            calls = {id: call for id, call in calls.items() if id not in answer}
        elif name == "Append":
            calls = {}
    for outer, inner in journal.unfinished.items():
        calls.pop(outer, None)
        calls.update({inner_id(outer, id): call for id, call in waiting_calls(inner).items()})
    return calls


def _events(journal: Journal) -> Iterator[Json]:
    step = 0
    calls: dict[str, ToolCall] = {}
    for at, (name, answer, *_) in enumerate(journal.entries):
        if name == "CallModel":
            step += 1
            calls = _calls(journal, at)
            yield {
                "kind": "model",
                "step": step,
                "model": answer.model,
                "text": clipped(answer.message.text),
                "thinking": clipped(answer.message.reasoning),
                "calls": [
                    {"id": call.id, "name": call.name, "arguments": clipped(call.arguments)} for call in calls.values()
                ],
                "finish": str(answer.finish_reason),
                "usage": usage_view(answer.usage),
            }
        elif name == "CallTools":
            yield _tool(journal, step, calls, *answer)
        elif name == "AskApproval":
            yield {
                "kind": "approval",
                "step": step,
                "decisions": [_decision(id, calls.get(id), made) for id, made in answer.items()],
            }
        elif name in _OTHERS and (event := _OTHERS[name](answer)) is not None:
            yield event
    for outer, inner in journal.unfinished.items():
        call = calls.get(outer)
        yield {
            "kind": "tool",
            "step": step,
            "id": outer,
            "name": call.name if call is not None else inner.agent,
            "arguments": clipped(call.arguments) if call is not None else "",
            "status": "running",
            "text": "",
            "usage": usage_view(inner.usage),
            "inner": journal_view(inner),
        }


def _calls(journal: Journal, at: int) -> dict[str, ToolCall]:
    """Return the calls of a reply by their ids: the message that is kept of it has an id for every call."""
    for name, answer, *_ in journal.entries[at + 1 :]:
        if name == "CallModel":
            break
        if name == "Append" and answer and answer[0].role == "assistant":
            return {call.id: call for call in answer[0].tool_calls}
    reply = journal.entries[at].answer
    return {call.id: call for call in reply.message.tool_calls}


def _tool(journal: Journal, step: int, calls: Mapping[str, ToolCall], result: Any, usage: Usage | None) -> Json:
    call = calls.get(result.call_id)
    event: Json = {
        "kind": "tool",
        "step": step,
        "id": result.call_id,
        "name": result.name,
        "arguments": clipped(call.arguments) if call is not None else "",
        "status": str(result.status),
        "text": clipped(result.message.text),
        "usage": None if usage is None else usage_view(usage),
    }
    if (inner := journal.inner.get(result.call_id)) is not None:
        event["inner"] = journal_view(inner)
    return event


def _decision(id: str, call: ToolCall | None, made: Decision) -> Json:
    found: Json = {"id": id, "name": call.name if call is not None else "", "approved": not isinstance(made, Denied)}
    if isinstance(made, Denied):
        found["reason"] = clipped(made.reason)
    elif made.arguments is not None:
        found["changed"] = dict(made.arguments)
    return found


def _compact(made: Any) -> Json | None:
    if not made.messages:
        return None
    summary = None if made.summary is None else clipped(made.summary)
    return {"kind": "compact", "messages": made.messages, "summary": summary, "usage": usage_view(made.usage)}


_OTHERS: Mapping[str, Callable[[Any], Json | None]] = {
    "Begin": lambda begun: {"kind": "begin", "before": begun[0], "done": begun[1]},
    "Compact": _compact,
    "Equip": lambda specs: {"kind": "tools", "names": [spec.name for spec in specs]},
    "SelectExamples": lambda made: {"kind": "examples", "prompts": len(made)},
    "Recall": lambda found: {"kind": "recall", **found_view(found)},
    "CheckOutput": lambda checked: {"kind": "check", "problem": checked.problem},
}
"""What the other effects show; those of messages show in what follows."""
