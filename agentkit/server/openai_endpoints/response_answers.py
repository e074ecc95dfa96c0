"""Answers of the Responses API, whole and as events of a stream.

They have all fields that Open Responses (https://www.openresponses.org) requires.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from agentkit.models.settings import ModelSettings
from agentkit.server.openai_endpoints.input_items import output_item_id
from agentkit.server.openai_endpoints.openai_requests import ResponsesRequest
from agentkit.server.request_runs.request_run import RequestAnswer
from agentkit_prompts.context.messages import ToolCall

Json = dict[str, Any]
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of an incomplete response by finish reason."""


class ResponseAnswers:
    """Writes the answer to one request.

    Args:
        run_id: Id of the run, which the ids of the response and of its items contain.
        request: The request, whose settings a response repeats.
        defaults: Settings of the model of the agent, which apply if the request has none.
    """

    def __init__(self, run_id: str, request: ResponsesRequest, defaults: ModelSettings) -> None:
        self._run_id = run_id
        self._request = request
        self._defaults = defaults
        self._created = int(time.time())
        self._completed: int | None = None
        """When the whole answer was returned first, in seconds since 1970."""
        self._message_id = output_item_id("message", run_id, 0)
        self._sequence = 0
        self._has_text = False

    def whole(self, answer: RequestAnswer) -> Json:
        """Return a whole response."""
        items: list[Json] = []
        if answer.text or not answer.calls:
            items.append(self._message(answer))
        items += [self._call(call, index) for index, call in enumerate(answer.calls)]
        response = self._response(_status(answer), items)
        if response["status"] == "incomplete":
            response["incomplete_details"] = {"reason": _INCOMPLETE_REASONS[answer.finish_reason]}
        else:
            # The answer is written twice, for the client and for the store, with one time.
            self._completed = self._completed or int(time.time())
            response["completed_at"] = self._completed
        response["usage"] = {
            "input_tokens": answer.usage.input_tokens,
            "input_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
            "output_tokens": answer.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": answer.usage.reasoning_tokens},
            "total_tokens": answer.usage.input_tokens + answer.usage.output_tokens,
        }
        return response

    def start(self) -> Iterator[tuple[str, Json]]:
        """Yield the events that start a response."""
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))

    def text(self, text: str) -> Iterator[tuple[str, Json]]:
        """Yield the events of a text delta."""
        if not self._has_text:
            self._has_text = True
            yield from self._message_started(_part(""))
        yield self._event("response.output_text.delta", **self._position, delta=text, logprobs=[])

    @property
    def _position(self) -> Json:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _message_started(self, part: Json) -> Iterator[tuple[str, Json]]:
        item = {"id": self._message_id, "type": "message", "role": "assistant", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=0, item={**item, "content": []})
        yield self._event("response.content_part.added", **self._position, part=part)

    def _message_ended(self, answer: RequestAnswer, part: Json) -> Iterator[tuple[str, Json]]:
        yield self._event("response.content_part.done", **self._position, part=part)
        yield self._event("response.output_item.done", output_index=0, item=self._message(answer))

    def end(self, answer: RequestAnswer) -> Iterator[tuple[str, Json]]:
        """Yield the events that finish a response."""
        if not self._has_text and answer.text and not answer.refusal:
            yield from self.text(answer.text)
        first_index = 0
        if self._has_text:
            yield self._event("response.output_text.done", **self._position, text=answer.text, logprobs=[])
            yield from self._message_ended(answer, _part(answer.text))
            first_index = 1
        elif answer.refusal:
            yield from self._refusal(answer)
        for index, call in enumerate(answer.calls):
            yield from self._call_events(self._call(call, index), first_index + index)
        response = self.whole(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def _refusal(self, answer: RequestAnswer) -> Iterator[tuple[str, Json]]:
        """Yield the events of a refusal that was not streamed as text."""
        yield from self._message_started({"type": "refusal", "refusal": ""})
        yield self._event("response.refusal.delta", **self._position, delta=answer.text)
        yield self._event("response.refusal.done", **self._position, refusal=answer.text)
        yield from self._message_ended(answer, {"type": "refusal", "refusal": answer.text})

    def _call_events(self, item: Json, output_index: int) -> Iterator[tuple[str, Json]]:
        started = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=output_index, item=started)
        position = {"item_id": item["id"], "output_index": output_index}
        yield self._event("response.function_call_arguments.delta", **position, delta=item["arguments"])
        arguments = {"name": item["name"], "arguments": item["arguments"]}
        yield self._event("response.function_call_arguments.done", **position, **arguments)
        yield self._event("response.output_item.done", output_index=output_index, item=item)

    def failed(self, error: Json) -> tuple[str, Json]:
        """Return the last event of a failed response."""
        response = self.failure("failed")
        response["error"]["message"] = error["message"]
        return self._event("response.failed", response=response)

    def failure(self, state: str) -> Json:
        """Return the response of a run that failed or was cancelled."""
        response = self._response(state, [])
        if state == "failed":
            response["error"] = {"code": "server_error", "message": "the run failed"}
        return response

    def _event(self, kind: str, **data: Any) -> tuple[str, Json]:
        self._sequence += 1
        return kind, {"type": kind, "sequence_number": self._sequence - 1, **data}

    def _message(self, answer: RequestAnswer) -> Json:
        content = _part(answer.text)
        if answer.refusal:
            content = {"type": "refusal", "refusal": answer.text}
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": _status(answer),
            "content": [content],
        }

    def _call(self, call: ToolCall, index: int) -> Json:
        return {
            "id": output_item_id("function_call", self._run_id, index),
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }

    def _response(self, status: str, output: list[Json]) -> Json:
        request = self._request
        form = request.model_dump(mode="json", by_alias=True)
        reasoning = form["reasoning"] or {}
        return {
            "id": f"resp_{self._run_id}",
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": request.max_tool_calls,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "store": request.store is not False,
            "background": False,
            "temperature": _first_number(request.temperature, self._defaults.temperature),
            "text": _text_field(form["text"] or {}),
            "tool_choice": form["tool_choice"] or "auto",
            "tools": form["tools"] or [],
            "top_p": _first_number(request.top_p, self._defaults.top_p),
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "top_logprobs": 0,
            "truncation": request.truncation or "disabled",
            "service_tier": "default",
            "prompt_cache_key": request.prompt_cache_key,
            "safety_identifier": request.safety_identifier,
            "usage": None,
            "user": request.user,
        }


def _status(answer: RequestAnswer) -> str:
    if answer.finish_reason in _INCOMPLETE_REASONS:
        return "incomplete"
    return "completed"


def _first_number(*numbers: float | None) -> float:
    """Return the first number; the default of the API without a number, because a response has no null here."""
    return next((number for number in numbers if number is not None), 1.0)


def _text_field(text: Json) -> Json:
    """Return the format of a text, and its verbosity if the request has one."""
    field: Json = {"format": text.get("format") or {"type": "text"}}
    if field["format"]["type"] == "json_schema":
        field["format"]["strict"] = field["format"]["strict"] is True
    if text.get("verbosity") is not None:
        field["verbosity"] = text["verbosity"]
    return field


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
