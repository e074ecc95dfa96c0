"""A server on loopback with the batch APIs of OpenAI and Anthropic, as their documentation describes them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.loopback import serving

Answer = Callable[[str, dict[str, Any]], Any]
"""Returns, for a key and a body: text, the answer; an exception of a line: a dict; or None, to omit the line."""


class BatchServer:
    """The endpoints `/v1/files`, `/v1/batches` and `/v1/messages/batches`.

    Attributes:
        sent: The bodies of the requests of each batch by key, by the id of the batch.
        polls: Number of requests for the state of a batch until it ends.
        end: State of OpenAI's batches after the last poll.
        broken: Statuses of the next responses instead of states.
        fields: Fields of new batches and of states that replace the fields of the documentation.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self.sent: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.polls = 0
        self.end = "completed"
        self.broken: list[int] = []
        self.fields: dict[str, Any] = {}
        self.answer: Answer = lambda key, body: "ok"
        self._files: dict[str, str] = {}
        self._polled: dict[str, int] = {}
        self._numbers = itertools.count(1)

    @contextmanager
    def run(self) -> Iterator[BatchServer]:
        """Answer requests while the block runs."""
        routes = [
            Route("/v1/files", self._upload, methods=["POST"]),
            Route("/v1/files/{file}/content", self._content),
            Route("/v1/batches", self._create, methods=["POST"]),
            Route("/v1/batches/{batch}", self._state),
            Route("/v1/messages/batches", self._create_messages, methods=["POST"]),
            Route("/v1/messages/batches/{batch}", self._messages_state),
            Route("/v1/messages/batches/{batch}/results", self._messages_results),
        ]
        with serving(Starlette(routes=routes), lifespan="off") as (self.url, _):
            yield self

    # OpenAI

    async def _upload(self, request: Request) -> Response:
        form = await request.form()
        if form.get("purpose") != "batch":
            return _refused(400, "purpose")
        file = form["file"]
        assert not isinstance(file, str)
        name = f"file-{next(self._numbers)}"
        self._files[name] = (await file.read()).decode()
        return JSONResponse({"id": name, "object": "file", "purpose": "batch", "filename": file.filename})

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        lines = [json.loads(line) for line in self._files[body["input_file_id"]].splitlines()]
        if body["completion_window"] != "24h" or any(
            (line["method"], line["url"]) != ("POST", body["endpoint"]) for line in lines
        ):
            return _refused(400, "endpoint")
        batch = f"batch_{next(self._numbers)}"
        self.sent[batch] = {line["custom_id"]: line["body"] for line in lines}
        return JSONResponse({"id": batch, "object": "batch", "status": "validating", **body, **self.fields})

    async def _state(self, request: Request) -> Response:
        batch = request.path_params["batch"]
        if (broken := self._broken(batch)) is not None:
            return broken
        state: dict[str, Any] = {"id": batch, "object": "batch", "status": "in_progress"}
        if self._is_over(batch):
            state["status"] = self.end
            if self.end == "failed":
                state["errors"] = {"object": "list", "data": [{"code": "x", "message": "no such model", "line": 1}]}
            else:
                state.update(output_file_id=f"out-{batch}", error_file_id=f"err-{batch}")
        return JSONResponse({**state, **self.fields})

    async def _content(self, request: Request) -> Response:
        kind, _, batch = request.path_params["file"].partition("-")
        lines: list[dict[str, Any]] = []
        for key, body in reversed(self.sent[batch].items()):
            answer = self.answer(key, body)
            if answer is None:
                continue
            line: dict[str, Any] = {"id": f"batch_req_{key}", "custom_id": key, "error": None}
            if isinstance(answer, dict):
                line.update(answer)
            else:
                line["response"] = {"status_code": 200, "request_id": "r", "body": self._openai_reply(body, answer)}
            if isinstance(answer, dict) == (kind == "err"):
                lines.append(line)
        return PlainTextResponse("".join([json.dumps(line, ensure_ascii=False) + "\n" for line in lines]))

    def _openai_reply(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        if "input" in body:
            part = {"type": "output_text", "text": text, "annotations": []}
            item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
            usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
            return {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage}
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}

    # Anthropic

    async def _create_messages(self, request: Request) -> Response:
        body = await request.json()
        batch = f"msgbatch_{next(self._numbers)}"
        self.sent[batch] = {line["custom_id"]: line["params"] for line in body["requests"]}
        return JSONResponse({"id": batch, "type": "message_batch", "processing_status": "in_progress", **self.fields})

    async def _messages_state(self, request: Request) -> Response:
        batch = request.path_params["batch"]
        if (broken := self._broken(batch)) is not None:
            return broken
        status = "ended" if self._is_over(batch) else "in_progress"
        # The key must not be sent to this address.
        url = "http://127.0.0.1:9/results" if status == "ended" else None
        return JSONResponse({"id": batch, "type": "message_batch", "processing_status": status, "results_url": url})

    async def _messages_results(self, request: Request) -> Response:
        lines: list[dict[str, Any]] = []
        for key, body in reversed(self.sent[request.path_params["batch"]].items()):
            answer = self.answer(key, body)
            if isinstance(answer, dict):
                lines.append({"custom_id": key, "result": answer})
            elif answer is not None:
                message = {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "claude",
                    "content": [{"type": "text", "text": answer}],
                    "stop_reason": "end_turn",
                    "usage": {"input_tokens": 100, "output_tokens": 10},
                }
                lines.append({"custom_id": key, "result": {"type": "succeeded", "message": message}})
        return PlainTextResponse("".join([json.dumps(line, ensure_ascii=False) + "\n" for line in lines]))

    def _is_over(self, batch: str) -> bool:
        self._polled[batch] = self._polled.get(batch, 0) + 1
        return self._polled[batch] > self.polls

    def _broken(self, batch: str) -> Response | None:
        self.asked.append(batch)
        if self.broken:
            return _refused(self.broken.pop(0), "try later")
        if batch not in self.sent:
            return _refused(404, "unknown batch")
        return None


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status)
