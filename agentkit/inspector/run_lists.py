"""Answers to the requests of the page for lists of runs."""

from __future__ import annotations

from typing import Any

from agentkit.inspector.journal_view import usage_view
from agentkit.inspector.page_requests import ListRequest
from agentkit.inspector.source import InspectorSource
from agentkit.runs.run_record import RunRecord

FIRST_LISTED = 50
"""Maximum runs, and maximum sessions, in the first answer."""
_LISTED = 100
"""Maximum runs in the other parts of a list."""
_MAX_INPUT = 160
"""Maximum characters of an input in a list."""

Json = dict[str, Any]


async def list_answer(source: InspectorSource, request: ListRequest) -> Json:
    """Return a part of the list of runs, and the id after which the next part continues."""
    listed = await source.runs(request.wanted(_LISTED))
    return {"runs": [run_summary(run) for run in listed.runs], "older": listed.older}


def run_summary(run: RunRecord) -> Json:
    """Return a run as a row of the list."""
    text = ""
    if run.input is not None:
        text = run.input.text[:_MAX_INPUT]
    seconds = None
    if run.has_ended and run.created_at:
        seconds = max(0.0, run.updated_at - run.created_at)
    error_class = ""
    if run.error is not None:
        error_class = run.error.type
    return {
        "id": run.run_id,
        "agent": run.agent,
        "session": run.session,
        "user": run.user,
        "tags": list(run.tags),
        "status": run.state,
        "input": text,
        "started_at": run.created_at or None,
        "seconds": seconds,
        "usage": usage_view(run.usage),
        "error_class": error_class,
        "tool_errors": run.tool_errors,
    }
