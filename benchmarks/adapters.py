"""W11, a tool loop with each adapter: two successive tool calls, then the answer.

A server in a separate process replies without a delay, so that only the client is measured: runs of three requests
over loopback HTTP. `sdk` compares each adapter with the same loop written with the official SDK alone; `custom` has
layers, a custom template, limits and a listener of streamed replies. `loop` compares the adapters with each other, in
a new conversation and after 200 turns, as whole replies and as streams; its limit is the chat completions adapter.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from harness import Figure, Work, figures, interleave, main

from agentkit import Agent, AnthropicModel, Limits, Message, OpenAIModel, OpenAIResponsesModel, ToolCall, tool
from agentkit.prompts import Layers, PromptContext, UserInputPrompt, WrapPrompt
from agentkit_prompts.context.conversation import Conversation

ARGUMENTS = '{"a": 2, "b": 3}'
PATHS = {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "anthropic"}
MODELS: dict[str, Any] = {"chat": OpenAIModel, "responses": OpenAIResponsesModel, "anthropic": AnthropicModel}
TURNS = 200
Runs: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]
"""A function that makes `n` runs."""
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
"""Schema of the arguments of `add`."""


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
            except (asyncio.IncompleteReadError, asyncio.CancelledError):  # the client has disconnected, or the end
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


def loop_of(form: str, port: str, *, is_streamed: bool, is_long: bool) -> Runs:
    url = f"http://127.0.0.1:{port}"
    model = MODELS[form]("m", api_key="no-key-at-all", base_url=url)
    agent = Agent(model, "You add.", tools=[add])
    parts: dict[str, Any] = {"conversation": Conversation(history())} if is_long else {}

    async def runs(n: int) -> None:
        for _ in range(n):
            context = PromptContext(user_input="And 2+3?", **parts)
            result = await agent.run(context, on_event=(lambda event: None) if is_streamed else None)
            assert (result.output, result.steps) == ("Five.", 3)

    return runs


async def bare_chat(client: Any) -> str:
    """Return the answer by the chat completions of the SDK."""
    tools = [{"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": SCHEMA}}]
    messages: list[Any] = [{"role": "system", "content": "You add."}, {"role": "user", "content": "And 2+3?"}]
    while True:
        reply = await client.chat.completions.create(model="m", messages=messages, tools=tools)
        message = reply.choices[0].message
        if not message.tool_calls:
            return str(message.content)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = await add.function(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})


async def bare_responses(client: Any) -> str:
    """Return the answer by the Responses API of the SDK."""
    tools = [{"type": "function", "name": "add", "description": "Add two numbers.", "parameters": SCHEMA}]
    items: list[Any] = [{"role": "user", "content": "And 2+3?"}]
    while True:
        reply = await client.responses.create(model="m", instructions="You add.", input=items, tools=tools, store=False)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return str(reply.output_text)
        for call in calls:
            result = await add.function(**json.loads(call.arguments))
            items.append(call.model_dump(exclude_none=True))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": str(result)})


async def bare_anthropic(client: Any) -> str:
    """Return the answer by the messages of the SDK."""
    tools = [{"name": "add", "description": "Add two numbers.", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": "And 2+3?"}]
    while True:
        reply = await client.messages.create(
            model="m", max_tokens=1024, system="You add.", messages=messages, tools=tools
        )
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return str(reply.content[0].text)
        messages.append({"role": "assistant", "content": [block.model_dump() for block in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": str(await add.function(**call.input))}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


def bare_loop(form: str, port: str) -> Runs:
    """Return runs of the same loop with the SDK alone."""
    import anthropic
    import openai

    url = f"http://127.0.0.1:{port}"
    kind, loop = {
        "chat": (openai.AsyncOpenAI, bare_chat),
        "responses": (openai.AsyncOpenAI, bare_responses),
        "anthropic": (anthropic.AsyncAnthropic, bare_anthropic),
    }[form]

    client = kind(api_key="no-key-at-all", base_url=url)

    async def runs(n: int) -> None:
        for _ in range(n):
            assert await loop(client) == "Five."

    return runs


def custom_loop(form: str, port: str) -> Runs:
    """Return runs of an agent with layers, a custom template, limits and a listener of streamed replies."""
    model = MODELS[form]("m", api_key="no-key-at-all", base_url=f"http://127.0.0.1:{port}")
    layers = Layers(system="You add.", input=WrapPrompt((UserInputPrompt(),), "Sum: {{ wrapped_str }}\nAdd."))
    agent = Agent(model, layers=layers, tools=[add], limits=Limits(steps=5, tokens=100_000, seconds=60))

    async def runs(n: int) -> None:
        for _ in range(n):
            assert (await agent.run("And 2+3?", on_event=lambda event: None)).output == "Five."

    return runs


@contextmanager
def served() -> Iterator[str]:
    """Yield the port of a server process."""
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.communicate()


def sdk(rounds: int) -> Iterable[Figure]:
    """Yield a row per adapter, with its SDK as the limit."""
    for form in MODELS:
        with served() as port, asyncio.Runner() as runner:
            candidates = {
                "bare SDK": bare_loop(form, port),
                "agentkit": loop_of(form, port, is_streamed=False, is_long=False),
                "agentkit, custom": custom_loop(form, port),
            }
            works = {name: _works(runs, runner) for name, runs in candidates.items()}
            yield from figures(f"W11 SDK, {form}", interleave(works, 20, rounds), unit="ms")


def _works(runs: Runs, runner: asyncio.Runner) -> Work:
    return lambda n: runner.run(runs(n))


def workload(rounds: int) -> Iterable[Figure]:
    """Yield a row per adapter, length of conversation and kind of reply."""
    for is_long in (False, True):
        for is_streamed in (False, True):
            with served() as port, asyncio.Runner() as runner:
                works = {
                    form: _works(loop_of(form, port, is_streamed=is_streamed, is_long=is_long), runner)
                    for form in MODELS
                }
                title = f"loop, {'200 turns' if is_long else 'new'}, {'streamed' if is_streamed else 'whole'}"
                yield from figures(title, interleave(works, 10, rounds), unit="ms")


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve())
    else:
        main(__doc__, {"sdk": sdk, "loop": workload})
