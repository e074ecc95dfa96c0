"""Responses as answers: whole, and as the events of a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from agentkit.models.model import Usage
from agentkit.server.openai_endpoints.openai_requests import ResponsesRequest
from agentkit.server.turns.turn import TurnAnswer

__all__ = ["ResponseAnswers"]

Json = dict[str, Any]


class ResponseAnswers:
    """Writes the answer to one request.

    Args:
        id: Id of the response.
        request: What was asked.
    """

    def __init__(self, id: str, request: ResponsesRequest) -> None:
        self._id = id
        self._request = request
        self._created = int(time.time())
        self._message_id = f"msg_{os.urandom(12).hex()}"
        self._sequence = 0
        self._has_text = False

    def whole(self, answer: TurnAnswer) -> Json:
        """Return a whole response."""
        items: list[Json] = [self._message(answer.text, answer.refusal)] if answer.text or not answer.calls else []
        items += [self._call(call, "completed") for call in answer.calls]
        is_cut = answer.finish_reason in ("length", "content_filter")
        return self._response("incomplete" if is_cut else "completed", items, answer)

    def begin(self) -> Iterator[tuple[str, Json]]:
        """Yield the events that begin a response."""
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))

    def text(self, text: str) -> Iterator[tuple[str, Json]]:
        """Yield the events of a piece of text."""
        where = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
        if not self._has_text:
            self._has_text = True
            opened = {"id": self._message_id, "type": "message", "role": "assistant", "status": "in_progress"}
            yield self._event("response.output_item.added", output_index=0, item={**opened, "content": []})
            yield self._event("response.content_part.added", **where, part=_part(""))
        yield self._event("response.output_text.delta", **where, delta=text, logprobs=[])

    def end(self, answer: TurnAnswer) -> Iterator[tuple[str, Json]]:
        """Yield the events that end a response."""
        if not self._has_text and answer.text and not answer.refusal:
            yield from self.text(answer.text)
        at = 0
        if self._has_text:
            where = {"item_id": self._message_id, "output_index": 0, "content_index": 0}
            yield self._event("response.output_text.done", **where, text=answer.text, logprobs=[])
            yield self._event("response.content_part.done", **where, part=_part(answer.text))
            item = self._message(answer.text, refusal=False)
            yield self._event("response.output_item.done", output_index=0, item=item)
            at = 1
        for call in answer.calls:
            done = self._call(call, "completed")
            yield self._event(
                "response.output_item.added", output_index=at, item={**done, "arguments": "", "status": "in_progress"}
            )
            where = {"item_id": done["id"], "output_index": at}
            yield self._event("response.function_call_arguments.delta", **where, delta=call.arguments)
            named = {"name": call.name, "arguments": call.arguments}
            yield self._event("response.function_call_arguments.done", **where, **named)
            yield self._event("response.output_item.done", output_index=at, item=done)
            at += 1
        whole = self.whole(answer)
        yield self._event(f"response.{whole['status']}", response=whole)

    def failed(self, error: Json) -> tuple[str, Json]:
        """Return the event that ends a response which failed."""
        response = self._response("failed", [])
        response["error"] = {"code": "server_error", "message": error["message"]}
        return self._event("response.failed", response=response)

    def _event(self, kind: str, **data: Any) -> tuple[str, Json]:
        self._sequence += 1
        return kind, {"type": kind, "sequence_number": self._sequence - 1, **data}

    def _message(self, text: str, refusal: bool) -> Json:
        content = {"type": "refusal", "refusal": text} if refusal else _part(text)
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [content],
        }

    def _call(self, call: Any, status: str) -> Json:
        return {
            "id": f"fc_{call.id.removeprefix('call_')}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": status,
        }

    def _response(self, status: str, output: list[Json], answer: TurnAnswer | None = None) -> Json:
        asked = self._request
        reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
        reason = None if answer is None else reasons.get(answer.finish_reason)
        dumped = asked.model_dump(mode="json", by_alias=True)
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": asked.model,
            "output": output,
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
            "store": asked.store is not False,
            "temperature": asked.temperature,
            "text": {"format": (dumped["text"] or {}).get("format") or {"type": "text"}},
            "tool_choice": dumped["tool_choice"] or "auto",
            "tools": [{"strict": None, **tool} for tool in dumped["tools"] or []],
            "top_p": asked.top_p,
            "truncation": "disabled",
            "usage": None if answer is None else _usage(answer.usage),
            "user": asked.user,
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
