"""Call ids that are unique in a run."""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from agentkit_prompts.context.messages import Message


def with_unique_ids(message: Message, seen: set[str], step: int) -> Message:
    """Replace call ids that are not unique in the run: results, approvals and idempotency keys use the id.

    An id with a slash is replaced too: a slash separates the id of a call from the call ids of an inner agent.
    """
    calls = []
    for number, call in enumerate(message.tool_calls, 1):
        call_id = call.id
        if not call_id or call_id in seen or "/" in call_id:
            call_id = f"call_{step}_{number}"
            while call_id in seen:
                call_id += "_"
            call = replace(call, id=call_id)
        seen.add(call_id)
        calls.append(call)
    if all(map(is_, calls, message.tool_calls)):
        return message
    return replace(message, tool_calls=tuple(calls))
