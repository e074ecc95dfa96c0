"""Answers as chat completions, whole and in chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from agentkit.models.model import Usage
from agentkit.server.request_runs.request_run import RequestAnswer


class ChatAnswers:
    """Writes the answer to one request.

    Args:
        id: Id of the completion.
        model: Name of the agent.
    """

    def __init__(self, id: str, model: str) -> None:
        self._head = {"id": id, "created": int(time.time()), "model": model, "system_fingerprint": None}

    def whole(self, answer: RequestAnswer) -> dict[str, Any]:
        """Return a whole completion."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.refusal:
            message |= {"content": None, "refusal": answer.text}
        elif answer.calls and not answer.text:
            message["content"] = None
        if answer.calls:
            message["tool_calls"] = _calls(answer)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(answer)}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(answer.usage)}

    def first(self) -> dict[str, Any]:
        """Return the chunk that starts a message."""
        return self._chunk({"role": "assistant", "content": ""})

    def text(self, text: str) -> dict[str, Any]:
        """Return a chunk of text."""
        return self._chunk({"content": text})

    def last(self, answer: RequestAnswer, *, has_text: bool, include_usage: bool) -> Iterator[dict[str, Any]]:
        """Yield the last chunks: text that was not streamed, calls, finish reason and usage."""
        if answer.text and not has_text:
            field = "refusal" if answer.refusal else "content"
            yield self._chunk({field: answer.text})
        if answer.calls:
            calls = [{"index": index, **call} for index, call in enumerate(_calls(answer))]
            yield self._chunk({"tool_calls": calls})
        yield self._chunk({}, _reason(answer))
        if include_usage:
            yield {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": _usage(answer.usage)}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


def _calls(answer: RequestAnswer) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]


def _reason(answer: RequestAnswer) -> str:
    if answer.finish_reason in ("length", "content_filter", "tool_calls"):
        return answer.finish_reason
    return "stop"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
