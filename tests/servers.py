"""Servers on loopback for tests: real sockets, real HTTP, and every fault of an endpoint.

`ChatServer` implements the protocols of chat completions and of raw completions. The model name of a request selects
the handler: a test registers a handler for a name (`server.on("cut", streams(..., cut=True))`) and calls a model with
this name.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.loopback import serving

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORDS = re.compile(r"\s*\S+|\s+")


@dataclass
class Asked:
    """A request in the form in which the server received it."""

    model: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    client: tuple[str, int] | None
    """Address of the connection that the request came through."""
    cut: Callable[[bytes], None] = field(repr=False)
    """Write raw bytes to the socket, then reset the connection."""


Handler = Callable[[Asked], Response]


class ChatServer:
    """A chat-completions endpoint on 127.0.0.1, in a separate thread.

    Attributes:
        url: The base URL, ending in /v1.
        asked: The requests, in the order of their arrival.
        finished: The number of streams that were read to their end.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.finished = 0
        self.dropped = 0
        self._handlers: dict[str, Handler] = {}

    @contextmanager
    def run(self) -> Iterator[ChatServer]:
        """Answer requests while the block runs."""
        routes = [Route(path, self._chat, methods=["POST"]) for path in _CHECKS]
        # The client closes its connections, not the server between two requests.
        with serving(Starlette(routes=routes), lifespan="off", timeout_keep_alive=600) as (address, self._server):
            self.host = address.removeprefix("http://")
            self.url = f"{address}/v1"
            yield self

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._server.server_state.connections)

    def on(self, model: str, handler: Handler) -> str:
        """Answer requests for `model` with `handler`; return the name."""
        self._handlers[model] = handler
        return model

    def to(self, model: str) -> list[Asked]:
        """Return the requests for one model."""
        return [asked for asked in self.asked if asked.model == model]

    async def _chat(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except ValueError as error:
            return _refusal(f"the body is not JSON: {error}")
        scope = request.scope

        def cut(raw: bytes) -> None:
            for protocol in list(self._server.server_state.connections):
                if getattr(protocol, "scope", None) is scope:
                    protocol.transport.write(raw)
                    protocol.transport.close()

        check = _CHECKS[request.url.path]
        if problem := next(check(body), None):
            return _refusal(problem)
        asked = Asked(body["model"], body, dict(request.headers), request.scope["client"], cut)
        self.asked.append(asked)
        handler = self._handlers.get(asked.model)
        if handler is None:
            error = {"message": f"The model `{asked.model}` does not exist", "code": "model_not_found"}
            return JSONResponse({"error": error}, 404)
        response = handler(asked)
        if isinstance(response, StreamingResponse):
            response.body_iterator = self._counted(response.body_iterator)
        return response

    async def _counted(self, pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
        try:
            async for piece in pieces:
                yield piece
        except BaseException:
            self.dropped += 1
            raise
        self.finished += 1


def serve() -> AbstractContextManager[ChatServer]:
    """Run a `ChatServer` while the block runs."""
    return ChatServer().run()


def problems(body: Any) -> Iterator[str]:
    """Yield the errors of a strict endpoint about a request body."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        yield "the body must be an object with a model"
        return
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: expected a list with at least one message"
        return
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role, content = message.get("role"), message.get("content")
        if role not in ("system", "user", "assistant", "tool"):
            yield f"{where}.role: {role!r}"
        if role == "tool":
            if message.get("tool_call_id") not in open_calls:
                yield f"{where}: answers no tool call before it"
            open_calls.discard(message.get("tool_call_id"))
        elif open_calls:
            yield f"{where}: tool calls {sorted(open_calls)} were not answered"
        if not isinstance(content, str | list) and not (role == "assistant" and message.get("tool_calls")):
            yield f"{where}.content: {content!r}"
        for part in content if isinstance(content, list) else ():
            if part.get("type") not in ("text", "image_url", "input_audio", "file"):
                yield f"{where}.content: part of type {part.get('type')!r}"
        for call in message.get("tool_calls", ()):
            if call["type"] != "function" or not _NAME.fullmatch(call["function"]["name"]):
                yield f"{where}.tool_calls: {call!r}"
            open_calls.add(call["id"])
    if open_calls:
        yield f"tool calls {sorted(open_calls)} were not answered"
    if "tools" in body and not body["tools"]:
        yield "tools: an empty list"
    for tool in body.get("tools", ()):
        if tool.get("type") != "function" or not _NAME.fullmatch(tool["function"]["name"]):
            yield f"tools: {tool!r}"
        try:
            Draft202012Validator.check_schema(tool["function"].get("parameters", {}))
        except SchemaError as error:
            yield f"tools: {error.message}"


def completion_problems(body: Any) -> Iterator[str]:
    """Yield the errors of a strict endpoint about the body of a raw completion."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        yield "the body must be an object with a model"
        return
    prompt = body.get("prompt")
    if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(type(token) is int for token in prompt)):
        yield f"prompt: expected a string or token ids, got {prompt!r}"
    if not isinstance(body.get("max_tokens", 16), int):
        yield f"max_tokens: {body['max_tokens']!r}"
    if not isinstance(body.get("stop", ""), str | list):
        yield f"stop: {body['stop']!r}"
    for unknown in {"messages", "tools"} & body.keys():
        yield f"{unknown}: not an argument of raw completions"


def responses_problems(body: Any) -> Iterator[str]:
    """Yield the errors of the Responses API about a body."""
    if not isinstance(body.get("input"), list) or not body["input"]:
        yield "input: expected a list with at least one item"
        return
    for unknown in {"messages", "max_tokens", "stop", "seed", "response_format", "reasoning_effort"} & body.keys():
        yield f"Unknown parameter: {unknown}"
    open_calls: set[str] = set()
    thought = ""
    for index, item in enumerate(body["input"]):
        where, kind = f"input[{index}]", item.get("type", "message")
        if thought and (kind not in ("message", "function_call") or item.get("role", "assistant") != "assistant"):
            yield f"{where}: the reasoning item {thought} was provided without its required following item"
        thought = ""
        if kind == "function_call_output":
            if item.get("call_id") not in open_calls:
                yield f"No tool call found for function call output with call_id {item.get('call_id')}"
            open_calls.discard(item["call_id"])
        elif kind == "function_call":
            open_calls.add(item["call_id"])
            json.loads(item["arguments"])
        elif kind == "compaction":
            if not item.get("encrypted_content"):
                yield f"{where}: compaction without encrypted_content"
        elif kind == "reasoning":
            thought = item.get("id", "?")
            if not item.get("encrypted_content") or not isinstance(item.get("summary"), list):
                yield f"{where}: reasoning without its encrypted_content or summary"
        elif kind == "image_generation_call":
            if not item.get("id") or not isinstance(item.get("result"), str):
                yield f"{where}: an image without its id or result"
        elif kind != "message" or item.get("role") not in ("user", "assistant", "system", "developer"):
            yield f"{where}: {kind} of {item.get('role')}"
        elif not isinstance(item.get("content"), str | list):
            yield f"{where}.content: {item.get('content')!r}"
    if open_calls:
        yield f"No tool output found for function call {sorted(open_calls)}"
    for tool in body.get("tools", ()):
        if tool.get("type") == "function" and ("strict" not in tool or not _NAME.fullmatch(tool["name"])):
            yield f"tools: {tool!r}"


def anthropic_problems(body: Any) -> Iterator[str]:
    """Yield the errors of Anthropic's messages API about a body."""
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    for unknown in {"response_format", "stop", "seed", "reasoning_effort", "instructions"} & body.keys():
        yield f"{unknown}: Extra inputs are not permitted"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or messages[0]["role"] != "user":
        yield "messages: first message must use the user role"
        return
    waiting: set[str] = set()
    marks = sum([json.dumps(body.get(key, "")).count('"cache_control"') for key in ("system", "tools", "messages")])
    if marks > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
    for index, message in enumerate(messages):
        blocks = message["content"]
        where = f"messages.{index}"
        if message["role"] not in ("user", "assistant") or not blocks:
            yield f"{where}: {message!r:.200}"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "user" and set(results) != waiting:
            yield f"{where}: tool_use ids {sorted(waiting)} were found without tool_result blocks, got {results}"
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                yield f"{where}: text content blocks must be non-empty"
            if block["type"] == "thinking" and not block.get("signature"):
                yield f"{where}: thinking.signature: Field required"
            if block["type"] == "tool_use" and not isinstance(block["input"], dict):
                yield f"{where}: input: {block['input']!r}"
        is_thinking = body.get("thinking", {}).get("type") == "enabled"
        if is_thinking and waiting and blocks[0]["type"] not in ("thinking", "redacted_thinking"):
            yield f"{where}: Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`"
    if waiting:
        yield f"tool_use ids {sorted(waiting)} were found without tool_result blocks"


_CHECKS: Mapping[str, Callable[[Any], Iterator[str]]] = {
    "/v1/chat/completions": problems,
    "/v1/completions": completion_problems,
    "/v1/responses": responses_problems,
    "/v1/messages": anthropic_problems,
}


def _refusal(problem: str) -> Response:
    return JSONResponse({"error": {"message": problem, "type": "invalid_request_error", "code": None}}, 400)


USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}


def completion(
    content: Any = None, tool_calls: Any = None, finish_reason: str | None = "stop", usage: Any = USAGE, **message: Any
) -> dict[str, Any]:
    """Return the body of a whole reply."""
    said = {"role": "assistant", "content": content, "tool_calls": tool_calls, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish_reason}
    return {"id": "c1", "object": "chat.completion", "model": "served", "choices": [choice], "usage": usage}


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return one chunk of a streamed reply."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "served", "choices": [choice]}


def calls(*named: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Return whole tool calls from (id, name, arguments)."""
    return [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, name, arguments in named
    ]


def chat_reply(text: str = "", *named: tuple[str, str, str]) -> Handler:
    """Answer with text and tool calls, whole or streamed, depending on the request."""

    def handler(asked: Asked) -> Response:
        reason = "tool_calls" if named else "stop"
        if not asked.body.get("stream"):
            return JSONResponse(completion(text or None, calls(*named) or None, reason))
        pieces = [chunk(content=word) for word in _WORDS.findall(text)]
        for index, call in enumerate(calls(*named)):
            arguments = call["function"]["arguments"]
            half = len(arguments) // 2
            opening = {**call, "index": index, "function": {**call["function"], "arguments": arguments[:half]}}
            pieces += [
                chunk(tool_calls=[opening]),
                chunk(tool_calls=[{"index": index, "function": {"arguments": arguments[half:]}}]),
            ]
        pieces.append(chunk(reason))
        if asked.body.get("stream_options", {}).get("include_usage"):
            pieces.append({**chunk(), "choices": [], "usage": USAGE})
        return streams(*pieces)(asked)

    return handler


def completes(text: str, finish_reason: str | None = "stop", size: int = 3) -> Handler:
    """Answer a raw completion with text, whole or streamed in pieces of `size` characters."""

    def piece(said: str, reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "text": said, "finish_reason": reason, "logprobs": None}
        return {"id": "c1", "object": "text_completion", "model": "served", "choices": [choice]}

    def handler(asked: Asked) -> Response:
        if not asked.body.get("stream"):
            return JSONResponse({**piece(text, finish_reason), "usage": USAGE})
        pieces = [piece(text[at : at + size]) for at in range(0, len(text), size)]
        pieces.append(piece("", finish_reason))
        if asked.body.get("stream_options", {}).get("include_usage"):
            pieces.append({**piece(""), "choices": [], "usage": USAGE})
        return streams(*pieces)(asked)

    return handler


def sends(
    body: Any, status: int = 200, *, headers: Mapping[str, str] | None = None, media_type: str = "application/json"
) -> Handler:
    """Answer with any body: bytes and text unchanged, other values as JSON."""
    content = body if isinstance(body, bytes | str) else json.dumps(body)

    def handler(asked: Asked) -> Response:
        return Response(content, status, dict(headers or {}), media_type)

    return handler


def streams(*pieces: Any, cut: bytes | None = None, pause: float = 0.0, done: bool = True) -> Handler:
    """Answer with a stream: bytes unchanged, other values as one event each.

    `cut` is written raw after the pieces and the connection closed then; `pause` is waited before each piece.
    """

    def handler(asked: Asked) -> Response:
        async def events() -> AsyncIterator[bytes]:
            for piece in _endless(pieces):
                await asyncio.sleep(pause)
                yield piece if isinstance(piece, bytes) else b"data: %s\n\n" % json.dumps(piece).encode()
            if cut is not None:
                await asyncio.sleep(0.02)  # so that the written bytes are sent first
                asked.cut(cut)
            elif done:
                yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    return handler


def _endless(pieces: tuple[Any, ...]) -> Iterable[Any]:
    """Return the pieces, or the results of the single function."""
    return pieces[0]() if len(pieces) == 1 and callable(pieces[0]) else pieces


def in_turn(*handlers: Handler) -> Handler:
    """Answer each request with the next handler; the last one stays."""
    left = list(handlers)

    def handler(asked: Asked) -> Response:
        return (left.pop(0) if len(left) > 1 else left[0])(asked)

    return handler


def hangs(seconds: float) -> Handler:
    """Answer after `seconds`."""

    def handler(asked: Asked) -> Response:
        async def late() -> AsyncIterator[bytes]:
            await asyncio.sleep(seconds)
            yield json.dumps(completion("late")).encode()

        return StreamingResponse(late(), media_type="application/json")

    return handler
