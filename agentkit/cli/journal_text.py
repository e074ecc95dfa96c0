"""The steps of a run as text on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentkit.cli.screen import put
from agentkit.run.journal.journal import Journal, inner_id
from agentkit.run.parts.decisions import Decision, Denied


def put_indented(text: str, indent: str = "") -> None:
    """Print a text with its second and further lines indented, so that they do not look like lines of the command."""
    put(text.replace("\n", f"\n{indent}    "))


def put_journal(journal: Journal, deciders: Mapping[str, str], indent: str = "", outer: str = "") -> None:
    """Print the steps of a run, with the steps of inner agents under the calls of their tools.

    Args:
        journal: The journal of the run.
        deciders: Names of the authors of decisions, by call id.
        indent: Spaces before each line.
        outer: Id of the call that runs this agent; it prefixes the ids in `deciders`.
    """

    def outer_id(call: str) -> str:
        return inner_id(outer, call) if outer else call

    put_indented(f"{indent}user: {journal.context.user_input.text}", indent)
    for effect, answer, *_ in journal.entries:
        if effect == "CallModel":
            message = answer.message
            if message.text:
                put_indented(f"{indent}model: {message.text}", indent)
            for call in message.tool_calls:
                put_indented(f"{indent}model calls {call.name} {call.arguments} ({call.id})", indent)
                if (inner := journal.inner.get(call.id)) is not None:
                    put_journal(inner, deciders, f"{indent}  ", outer_id(call.id))
        elif effect == "AskApproval":
            for call, decision in answer.items():
                put_indented(f"{indent}{_decision_text(call, decision, deciders.get(outer_id(call)))}", indent)
        else:
            for line in _lines(effect, answer):
                put_indented(indent + line, indent)


def _lines(effect: str, answer: Any) -> list[str]:
    """Return the lines of a tool result, of a verdict that changes the run, or of messages to the run."""
    if effect == "CallTools":
        result = answer[0]
        return [f"{result.name} ({result.call_id}) {result.status}: {result.message.text}"]
    if effect == "CheckGuard" and answer.verdict.action != "pass":
        reason = getattr(answer.verdict, "reason", "")
        return [f"guard {answer.guard} ({answer.stage}): {answer.verdict.action}{reason and f': {reason}'}"]
    if effect == "Receive":
        return [f"{sent.by or 'user'}: {sent.message.text}" for sent in answer]
    return []


def _decision_text(call: str, decision: Decision, author: str | None) -> str:
    text = f"approved {call}"
    if isinstance(decision, Denied):
        text = f"denied {call}"
    if author:
        text += f" by {author}"
    return text + _terms(decision)


def _terms(decision: Decision) -> str:
    """Return the reason of a denial, or the arguments that replace the arguments of a call; empty without both."""
    if isinstance(decision, Denied):
        if not decision.reason:
            return ""
        return f": {decision.reason}"
    if decision.arguments is None:
        return ""
    return f", to run with {json.dumps(dict(decision.arguments))}"
