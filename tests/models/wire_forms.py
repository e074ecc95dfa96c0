"""The wire forms of adapters, as data: a reply in each form, whole and streamed, and the model that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from agentkit import AnthropicModel, CompletionModel, ModelSettings, OpenAIModel, OpenAIResponsesModel
from agentkit.models import Model
from agentkit.models.anthropic.anthropic_reader import AnthropicReader
from agentkit.models.http.reader import Reader
from agentkit.models.http.reply_reader import ReplyReader
from agentkit.models.openai.responses_reader import ResponsesReader
from tests.models.asking import ADD, composed
from tests.models.raw import ChatML
from tests.servers import USAGE, Asked, ChatServer, Handler, chunk, completion, sends, streams
from tests.servers import calls as chat_calls

Calls = Sequence[tuple[str, str, str]]


class Wire(NamedTuple):
    """A wire form."""

    name: str
    model: Callable[..., Any]
    reader: Callable[[], Reader]
    whole: Callable[[str, str, Calls], Any]
    """Thought, text and calls as one document."""
    events: Callable[[str, str, Calls], list[Any]]
    """The same as the documents of a stream."""
    done: bool
    """True if `[DONE]` ends a stream."""
    thought_in: Callable[[Any], list[Any]]
    """Thoughts that a request body sends back."""


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece]


_CHAT_USAGE: Any = {
    "prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens": 5,
    "completion_tokens_details": {"reasoning_tokens": 2},
}  # fmt: skip


def _chat_whole(thought: str, text: str, calls: Calls) -> Any:
    extra = {"reasoning_content": thought} if thought else {}
    reason = "tool_calls" if calls else "stop"
    return {**completion(text, chat_calls(*calls) or None, reason, **extra), "usage": _CHAT_USAGE}


def _chat_events(thought: str, text: str, calls: Calls) -> list[Any]:
    made = [chunk(role="assistant", content="")]
    made += [chunk(reasoning_content=piece) for piece in _pieces(thought)]
    made += [chunk(content=piece) for piece in _pieces(text)]
    for index, call in enumerate(chat_calls(*calls)):
        arguments = call["function"]["arguments"]
        made.append(chunk(tool_calls=[{**call, "index": index, "function": {**call["function"], "arguments": ""}}]))
        made += [chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}]) for piece in _pieces(arguments)]
    return [*made, chunk("tool_calls" if calls else "stop"), {**chunk(), "choices": [], "usage": _CHAT_USAGE}]


def _thoughts_of_chat(body: Any) -> list[Any]:
    return [message["reasoning_content"] for message in body["messages"] if "reasoning_content" in message]


SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"


def _blocks(thought: str, text: str, calls: Calls) -> list[Any]:
    made: list[Any] = [{"type": "thinking", "thinking": thought, "signature": SIGNATURE}] if thought else []
    made += [{"type": "text", "text": text}] if text else []
    return made + [
        {"type": "tool_use", "id": name, "name": tool, "input": json.loads(given)} for name, tool, given in calls
    ]


def _anthropic_message(content: list[Any], reason: str | None, output: int) -> Any:
    usage = {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8, "output_tokens": output}
    shape = {"id": "msg_1", "type": "message", "role": "assistant", "model": "served", "stop_sequence": None}
    return {**shape, "content": content, "stop_reason": reason, "usage": usage}


def _anthropic_whole(thought: str, text: str, calls: Calls) -> Any:
    return _anthropic_message(_blocks(thought, text, calls), "tool_use" if calls else "end_turn", 5)


def _anthropic_events(thought: str, text: str, calls: Calls) -> list[Any]:
    made: list[Any] = [{"type": "message_start", "message": _anthropic_message([], None, 1)}]
    for index, block in enumerate(_blocks(thought, text, calls)):
        kind = block["type"]
        empty = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}, "tool_use": {"input": {}}}[kind]
        deltas: list[Any] = []
        if kind == "tool_use":
            given = ["", *_pieces(calls[index - bool(thought) - bool(text)][2])]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in given]
        else:
            deltas = [{"type": f"{kind}_delta", kind: piece} for piece in _pieces(block[kind])]
        if kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": SIGNATURE})
        made.append({"type": "content_block_start", "index": index, "content_block": {**block, **empty}})
        made.append({"type": "ping"})
        made += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        made.append({"type": "content_block_stop", "index": index})
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return [*made, {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]


def _thoughts_of_anthropic(body: Any) -> list[Any]:
    blocks = [block for message in body["messages"] for block in message["content"] if block["type"] == "thinking"]
    assert all(block["signature"] == SIGNATURE for block in blocks)
    return [block["thinking"] for block in blocks]


def _items(thought: str, text: str, calls: Calls) -> list[Any]:
    made: list[Any] = []
    if thought:
        summary = [{"type": "summary_text", "text": thought}]
        made.append({"id": f"rs_{thought}", "type": "reasoning", "summary": summary, "encrypted_content": "gAAAA"})
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part]}
        made.append(message)
    return made + [
        {"id": f"fc_{name}", "type": "function_call", "status": "completed", "call_id": name, "name": tool,
         "arguments": given}
        for name, tool, given in calls
    ]  # fmt: skip


def _response(output: list[Any], status: str, usage: Any) -> Any:
    shape = {"id": "resp_1", "object": "response", "created_at": 1, "model": "served", "error": None}
    return {**shape, "status": status, "incomplete_details": None, "output": output, "usage": usage}


RESPONSES_USAGE = {
    "input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 5, "total_tokens": 17,
    "output_tokens_details": {"reasoning_tokens": 2},
}  # fmt: skip


def _responses_whole(thought: str, text: str, calls: Calls) -> Any:
    return _response(_items(thought, text, calls), "completed", RESPONSES_USAGE)


def _responses_events(thought: str, text: str, calls: Calls) -> list[Any]:
    items = _items(thought, text, calls)
    made: list[Any] = [
        {"type": "response.created", "response": _response([], "in_progress", None)},
        {"type": "response.in_progress", "response": _response([], "in_progress", None)},
    ]
    for index, item in enumerate(items):
        about = {"output_index": index, "item_id": item["id"]}
        empty = {"reasoning": {"summary": []}, "message": {"content": []}, "function_call": {"arguments": ""}}
        kind = item["type"]
        opening = {**item, **empty[kind], **({"status": "in_progress"} if kind != "reasoning" else {})}
        made.append({"type": "response.output_item.added", "output_index": index, "item": opening})
        named = {
            "reasoning": ("response.reasoning_summary_text.delta", thought, {"summary_index": 0}),
            "message": ("response.output_text.delta", text, {"content_index": 0, "logprobs": []}),
            "function_call": ("response.function_call_arguments.delta", item.get("arguments", ""), {}),
        }
        event, whole, more = named[kind]
        made += [{"type": event, **about, **more, "delta": piece} for piece in _pieces(whole)]
        made.append({"type": event.replace(".delta", ".done"), **about, **more, "text": whole, "arguments": whole})
        made.append({"type": "response.output_item.done", "output_index": index, "item": item})
    made.append({"type": "response.completed", "response": _response(items, "completed", RESPONSES_USAGE)})
    return [{**event, "sequence_number": number} for number, event in enumerate(made)]


def _thoughts_of_responses(body: Any) -> list[Any]:
    items = [item for item in body["input"] if item.get("type") == "reasoning"]
    assert all(item["encrypted_content"] == "gAAAA" for item in items)
    return [item["summary"][0]["text"] for item in items]


WIRES = (
    Wire("chat", OpenAIModel, ReplyReader, _chat_whole, _chat_events, True, _thoughts_of_chat),
    Wire("responses", OpenAIResponsesModel, ResponsesReader, _responses_whole, _responses_events, False,
         _thoughts_of_responses),
    Wire("anthropic", AnthropicModel, AnthropicReader, _anthropic_whole, _anthropic_events, False,
         _thoughts_of_anthropic),
)  # fmt: skip


def _raw_text(thought: str, text: str, calls: Calls) -> str:
    written = [f'<tool_call>{{"name": "{name}", "arguments": {given}}}</tool_call>' for _, name, given in calls]
    return "".join([f"<think>{thought}</think>" if thought else "", text, *written])


def _raw_choice(text: str, reason: str | None) -> Any:
    choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    return {"id": "cmpl_1", "object": "text_completion", "created": 1, "model": "served", "choices": [choice]}


def _raw_whole(thought: str, text: str, calls: Calls) -> Any:
    return {**_raw_choice(_raw_text(thought, text, calls), "stop"), "usage": USAGE}


def _raw_events(thought: str, text: str, calls: Calls) -> list[Any]:
    whole = _raw_text(thought, text, calls)
    size = max(7, len(whole) // 16)
    made = [_raw_choice(whole[at : at + size], None) for at in range(0, len(whole), size)]
    return [*made, _raw_choice("", "stop"), {**_raw_choice("", None), "choices": [], "usage": USAGE}]


def _raw_model(name: str, **options: Any) -> CompletionModel:
    return CompletionModel(name, ChatML(), **options)


def _raw_reader() -> Reader:
    return _raw_model("m")._reader(composed(tools=[ADD]))


COMPLETION = Wire(
    "completion", _raw_model, _raw_reader, _raw_whole, _raw_events, True, _thoughts_of_chat
)  # calls and thoughts are text of the model
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
FORMS = [*WIRES, COMPLETION]
every_form = pytest.mark.parametrize("wire", FORMS, ids=lambda wire: wire.name)
"""All wire forms, with raw completions."""


def model_of(wire: Wire, server: ChatServer, name: str, **options: Any) -> Model:
    url = server.url.removesuffix("/v1") if wire.name == "anthropic" else server.url
    settings = options.pop("settings", {})
    model: Model = wire.model(
        name, base_url=url, max_retries=options.pop("max_retries", 0), settings=ModelSettings(**settings), **options
    )
    return model


def as_event(document: Any) -> bytes:
    """Return a document as a server-sent event, with a name if the form names events."""
    kind = document.get("type") if isinstance(document, dict) else None
    head = f"event: {kind}\n" if isinstance(kind, str) else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def wire_reply(wire: Wire, thought: str = "", text: str = "", *calls: tuple[str, str, str]) -> Handler:
    """Answer with a thought, text and calls, whole or streamed, depending on the request."""

    def handler(asked: Asked) -> Any:
        if not asked.body.get("stream"):
            return sends(wire.whole(thought, text, calls))(asked)
        return streams(*map(as_event, wire.events(thought, text, calls)), done=wire.done)(asked)

    return handler
