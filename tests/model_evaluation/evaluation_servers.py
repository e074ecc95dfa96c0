"""Answers of endpoints to the prompts of an evaluation: replies by prompt, and texts with log probabilities."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response

from tests.servers import Asked, Handler, completion

_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+$")


def texts_of(asked: Asked) -> list[str]:
    """Return the texts of a request: its messages, or its prompt."""
    if "prompt" in asked.body:
        return [asked.body["prompt"]]
    return [message["content"] for message in asked.body["messages"]]


def answers(reply: Callable[[list[str]], str]) -> Handler:
    """Answer chats and completions with the result of `reply` for their texts."""

    def handler(asked: Asked) -> Response:
        text = reply(texts_of(asked))
        if "messages" in asked.body:
            return JSONResponse(completion(text))
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        return JSONResponse({"id": "c1", "model": "served", "choices": [choice]})

    return handler


def likely(value: Callable[[str, str], float], *, writes: str = "!") -> Handler:
    """Echo a text with the log probability of each token: `value` gets the token and the text before it."""

    def handler(asked: Asked) -> Response:
        text = asked.body["prompt"]
        tokens = _TOKEN.findall(text)
        assert "".join(tokens) == text and asked.body["echo"] is True
        at, values = 0, []
        for token in tokens:
            values.append(None if not at else value(token, text[:at]))
            at += len(token)
        logprobs: dict[str, Any] = {"tokens": [*tokens, writes], "token_logprobs": [*values, -9.0]}
        choice = {"index": 0, "text": text + writes, "finish_reason": "length", "logprobs": logprobs}
        usage = {"prompt_tokens": len(tokens), "completion_tokens": 1, "total_tokens": len(tokens) + 1}
        return JSONResponse({"id": "c1", "model": "served", "choices": [choice], "usage": usage})

    return handler
