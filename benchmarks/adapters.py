"""A tool loop with each adapter: two successive tool calls, then the answer; the limit is the chat completions adapter.

A server in a separate process replies without a delay, so that only the client is measured: runs of three requests, in
a new conversation and after 200 turns, as whole replies and as streams.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from harness import Figure, Work, figures, interleave, main

from agentkit import Agent, AnthropicModel, Message, OpenAIModel, OpenAIResponsesModel, ToolCall, tool
from agentkit.prompts import PromptContext
from agentkit_prompts.context.conversation import Conversation

ARGUMENTS = '{"a": 2, "b": 3}'
PATHS = {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "anthropic"}
MODELS: dict[str, Any] = {"chat": OpenAIModel, "responses": OpenAIResponsesModel, "anthropic": AnthropicModel}
TURNS = 200


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# Replies of the server


def documents(form: str, step: int) -> tuple[Any, list[Any]]:
    """Return a reply as one document and as the events of a stream: a tool call in the first two steps, then text."""
    is_call, id_ = step < 2, f"call_{step}"
    if form == "chat":
        call = {"id": id_, "type": "function", "function": {"name": "add", "arguments": ARGUMENTS}}
        message = {
            "role": "assistant",
            "content": None if is_call else "Five.",
            **({"tool_calls": [call]} if is_call else {}),
        }
        reason = "tool_calls" if is_call else "stop"
        usage = {"prompt_tokens": 12, "completion_tokens": 5}
        whole = {
            "id": "c",
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": usage,
        }
        delta = {"tool_calls": [{**call, "index": 0}]} if is_call else {"content": "Five."}
        return whole, [
            {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
        ]
    if form == "responses":
        item: dict[str, Any] = {
            "id": "fc",
            "type": "function_call",
            "call_id": id_,
            "name": "add",
            "arguments": ARGUMENTS,
        }
        if not is_call:
            part = {"type": "output_text", "text": "Five.", "annotations": []}
            item = {"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        usage = {"input_tokens": 12, "output_tokens": 5}
        whole = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item], "usage": usage}
        return whole, [
            {"type": "response.created", "response": {**whole, "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]
    block: dict[str, Any] = {"type": "tool_use", "id": id_, "name": "add", "input": json.loads(ARGUMENTS)}
    if not is_call:
        block = {"type": "text", "text": "Five."}
    reason, usage = ("tool_use" if is_call else "end_turn"), {"input_tokens": 12, "output_tokens": 5}
    whole = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": reason,
        "usage": usage,
    }
    return whole, [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def http_responses() -> dict[tuple[str, bool, int], bytes]:
    """Return the HTTP responses by path, streaming and step."""
    responses = {}
    for path, form in PATHS.items():
        for step in range(3):
            whole, events = documents(form, step)
            stream = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
            for is_streamed, body in ((False, json.dumps(whole).encode()), (True, stream)):
                kind = b"text/event-stream" if is_streamed else b"application/json"
                head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(body))
                responses[path, is_streamed, step] = head + body
    return responses


async def serve() -> None:
    """Print a free port and serve requests on it until the standard input is closed."""
    responses = http_responses()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:  # the client has disconnected
                return
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            body = json.loads(await reader.readexactly(length))
            path = head.split(b" ", 2)[1].decode()
            messages = body.get("messages") or body["input"]
            last_input = [at for at, item in enumerate(messages) if "And 2+3?" in json.dumps(item)][-1]
            step = sum("call_" in json.dumps(item) for item in messages[last_input:]) // 2
            writer.write(responses[path, bool(body.get("stream")), step])
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# The loop


def history() -> list[Message]:
    messages: list[Message] = []
    for turn in range(TURNS):
        call = ToolCall(f"old_{turn}", "add", ARGUMENTS)
        messages += [Message("user", f"{turn}+3?"), Message("assistant", "", (call,))]
        messages += [Message("tool", "5", tool_call_id=call.id, name="add"), Message("assistant", "Five.")]
    return messages


def loop_of(form: str, port: str, *, is_streamed: bool, is_long: bool) -> Work:
    url = f"http://127.0.0.1:{port}"
    model = MODELS[form]("m", api_key="no-key-at-all", base_url=url)
    agent = Agent(model, "You add.", tools=[add])
    parts: dict[str, Any] = {"conversation": Conversation(history())} if is_long else {}

    async def runs(n: int) -> None:
        for _ in range(n):
            context = PromptContext(user_input="And 2+3?", **parts)
            result = await agent.run(context, on_event=(lambda event: None) if is_streamed else None)
            assert (result.output, result.steps) == ("Five.", 3)

    return lambda n: asyncio.run(runs(n))


def workload(rounds: int) -> Iterable[Figure]:
    """Yield a row per adapter, length of conversation and kind of reply."""
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    try:
        for is_long in (False, True):
            for is_streamed in (False, True):
                candidates = {form: loop_of(form, port, is_streamed=is_streamed, is_long=is_long) for form in MODELS}
                title = f"loop, {'200 turns' if is_long else 'new'}, {'streamed' if is_streamed else 'whole'}"
                yield from figures(title, interleave(candidates, 20, rounds), unit="ms")
    finally:
        server.communicate()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve())
    else:
        main(__doc__, {"loop": workload})
