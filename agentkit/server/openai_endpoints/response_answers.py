"""Answers of the Responses API, whole and as events of a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from agentkit.models.model import Usage
from agentkit.server.openai_endpoints.openai_requests import ResponsesRequest
from agentkit.server.request_runs.request_run import RequestAnswer
from agentkit_prompts.context.messages import ToolCall

__all__ = ["ResponseAnswers"]

Json = dict[str, Any]
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of an incomplete response by finish reason."""


class ResponseAnswers:
    """Writes the answer to one request.

    Args:
        id: Id of the response.
        request: The request, whose settings a response repeats.
    """

    def __init__(self, id: str, request: ResponsesRequest) -> None:
        self._id = id
        self._request = request
        self._created = int(time.time())
        self._message_id = f"msg_{os.urandom(12).hex()}"
        self._sequence = 0
        self._has_text = False

    def whole(self, answer: RequestAnswer) -> Json:
        """Return a whole response."""
        items: list[Json] = []
        if answer.text or not answer.calls:
            items.append(self._message(answer.text, answer.refusal))
        items += [self._call(call) for call in answer.calls]
        response = self._response("completed", items)
        reason = _INCOMPLETE_REASONS.get(answer.finish_reason)
        if reason is not None:
            response |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        response["usage"] = _usage(answer.usage)
        return response

    def start(self) -> Iterator[tuple[str, Json]]:
        """Yield the events that start a response."""
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))

    def text(self, text: str) -> Iterator[tuple[str, Json]]:
        """Yield the events of a text delta."""
        position = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        if not self._has_text:
            self._has_text = True
            item = {"id": self._message_id, "type": "message", "role": "assistant", "status": "in_progress"}
            yield self._event("response.output_item.added", output_index=0, item={**item, "content": []})
            yield self._event("response.content_part.added", **position, part=_part(""))
        yield self._event("response.output_text.delta", **position, delta=text, logprobs=[])

    def end(self, answer: RequestAnswer) -> Iterator[tuple[str, Json]]:
        """Yield the events that finish a response."""
        if not self._has_text and answer.text and not answer.refusal:
            yield from self.text(answer.text)
        index = 0
        if self._has_text:
            position = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
            yield self._event("response.output_text.done", **position, text=answer.text, logprobs=[])
            yield self._event("response.content_part.done", **position, part=_part(answer.text))
            item = self._message(answer.text, refusal=False)
            yield self._event("response.output_item.done", output_index=0, item=item)
            index = 1
        for output_index, call in enumerate(answer.calls, index):
            yield from self._call_events(call, output_index)
        response = self.whole(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def _call_events(self, call: ToolCall, output_index: int) -> Iterator[tuple[str, Json]]:
        item = self._call(call)
        started = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=output_index, item=started)
        position = {"item_id": item["id"], "output_index": output_index}
        yield self._event("response.function_call_arguments.delta", **position, delta=call.arguments)
        arguments = {"name": call.name, "arguments": call.arguments}
        yield self._event("response.function_call_arguments.done", **position, **arguments)
        yield self._event("response.output_item.done", output_index=output_index, item=item)

    def failed(self, error: Json) -> tuple[str, Json]:
        """Return the last event of a failed response."""
        response = self._response("failed", [])
        response["error"] = {"code": "server_error", "message": error["message"]}
        return self._event("response.failed", response=response)

    def _event(self, kind: str, **data: Any) -> tuple[str, Json]:
        self._sequence += 1
        return kind, {"type": kind, "sequence_number": self._sequence - 1, **data}

    def _message(self, text: str, refusal: bool) -> Json:
        content = _part(text)
        if refusal:
            content = {"type": "refusal", "refusal": text}
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [content],
        }

    def _call(self, call: ToolCall) -> Json:
        return {
            "id": f"fc_{call.id.removeprefix('call_')}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }

    def _response(self, status: str, output: list[Json]) -> Json:
        request = self._request
        effort = None
        if request.reasoning is not None:
            effort = request.reasoning.effort
        form = request.model_dump(mode="json", by_alias=True)
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": effort, "summary": None},
            "store": request.store is not False,
            "temperature": request.temperature,
            "text": {"format": (form["text"] or {}).get("format") or {"type": "text"}},
            "tool_choice": form["tool_choice"] or "auto",
            "tools": [{"strict": None, **tool} for tool in form["tools"] or []],
            "top_p": request.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
        }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
