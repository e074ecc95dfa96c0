"""A run as JSON: its state, its waiting calls and its timeline."""

from __future__ import annotations

from typing import Any

from agentkit.inspector.journal_view import journal_view
from agentkit.inspector.run_lists import run_summary
from agentkit.run.journal.failed_call import failed_calls
from agentkit.run.journal.journal_outline import JournalOutline
from agentkit.runs.run_record import RunRecord, WaitingCall
from agentkit_tools.calling.shown_arguments import argument_lines

Json = dict[str, Any]


def run_view(run: RunRecord, outline: JournalOutline) -> Json:
    """Return a run with its timeline."""
    waiting = [_waiting_call(call) for call in run.waiting]
    error = ""
    if run.error is not None:
        error = str(run.error)
    row = {**run_summary(run), "error": error, "waiting": waiting}
    if run.state == "finished" or not outline.is_whole:
        return {**row, "journal": journal_view(outline, run.usage)}
    # The stored numbers are older than the journal while the run continues.
    return {**row, "tool_errors": len(failed_calls(outline.steps())), "journal": journal_view(outline)}


def _waiting_call(call: WaitingCall) -> Json:
    """Return a waiting call with the lines of its arguments. `whole` are the lines without cuts, if lines are cut."""
    lines, whole = argument_lines(call.arguments), argument_lines(call.arguments, is_whole=True)
    if whole == lines:
        whole = []
    return {"id": call.call_id, "name": call.tool, "arguments": call.arguments, "lines": lines, "whole": whole}
