"""Reader of replies of OpenAI's Responses API, whole or streamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.piece_joiner import PieceJoiner
from agentkit.models.http.reader import ProtocolError, Reader, brief, count_of, nonempty, object_of, sendable
from agentkit.models.http.reply_checks import checked_calls, messages_in
from agentkit.models.model import Delta, DeltaKind, Reply, Usage
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.write_openai_responses import ITEMS

__all__ = ["ResponsesReader"]

_DELTA_KINDS: Mapping[str, DeltaKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "arguments",
}
_START_EVENTS = ("response.created", "response.in_progress", "response.queued")
_END_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class _Item:
    """An output item while it is read."""

    __slots__ = ("data", "position", "texts")

    def __init__(self, data: dict[str, Any], position: int) -> None:
        self.data = data
        self.position = position
        """Position of a tool call among the tool calls of the reply."""
        self.texts: dict[str, PieceJoiner] = {}
        """Texts from deltas, by kind."""

    def text(self, kind: str) -> str:
        """Return the joined deltas of a kind."""
        if kind in self.texts:
            return "".join(self.texts[kind].pieces)
        return ""

    def missing_deltas(self, kind: DeltaKind, whole: str) -> list[Delta]:
        """Return the rest of a whole text that no delta has contained."""
        size = 0
        if kind in self.texts:
            size = self.texts[kind].size
        # The length is compared first, because joining the deltas for every repetition is slow.
        if len(whole) <= size or not whole.startswith(self.text(kind)):
            return []
        return self.add(kind, whole[size:])

    def content(self) -> dict[str, Any]:
        """Return the item; its deltas replace missing fields."""
        data = self.data
        if data.get("type") == "function_call":
            data["arguments"] = clean(data.get("arguments") or self.text("arguments") or "{}")
        elif data.get("type") == "message" and not data.get("content"):
            text, refusal = self.text("text"), self.text("refusal")
            data["content"] = []
            if text or not refusal:
                data["content"].append({"type": "output_text", "text": text})
            if refusal:
                data["content"].append({"type": "refusal", "refusal": refusal})
        return data

    def add(self, kind: DeltaKind, piece: str) -> list[Delta]:
        """Store a piece of text and return its delta."""
        delta = Delta(self.texts.setdefault(kind, PieceJoiner()).append(piece), kind)
        if kind == "arguments":
            delta = delta._replace(call=self.position, name=str(self.data.get("name") or ""))
        return nonempty(delta)


class ResponsesReader(Reader):
    """Reads responses. Reasoning items and tool results of the provider are sent back with the next request."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[object, _Item] = {}
        self._calls = 0
        self._usage: dict[str, Any] = {}

    def _add(self, data: dict[str, Any]) -> list[Delta]:
        kind = data.get("type")
        if isinstance(kind, str) and (kind.startswith("response.") or kind in ("keepalive", "ping")):
            return self._add_event(kind, data)
        if data.get("object") == "response" or isinstance(data.get("output"), list):
            return self._whole(data)
        raise ProtocolError(f"expected a response or an event of a response, got {brief(data)}")

    def _add_event(self, kind: str, data: dict[str, Any]) -> list[Delta]:
        if kind in _DELTA_KINDS:
            return self._add_delta(data, _DELTA_KINDS[kind])
        if kind == "response.output_item.done":
            return self._finish_item(self._start_item(data), object_of(data.get("item"), "item"))
        if kind in _END_EVENTS:
            return self._whole(object_of(data.get("response"), "response"))
        if kind in _START_EVENTS:
            self._start(object_of(data.get("response") or {}, "response"))
        elif kind == "response.output_item.added":
            self._start_item(data)
            # An empty delta restarts the timeout of the stream.
            return [Delta("", "arguments")]
        elif kind.endswith(".delta") and data.get("delta"):
            # A delta of a tool of the provider is not shown.
            return [Delta("", "arguments")]
        return []

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("the stream contains no response")
        items = [item.content() for item in self._items.values()]
        reason = self.finish_reason or "stop"
        calls = checked_calls(items, "call", is_cut=reason == "length", has_text=bool(self.text))
        if reason == "stop" and not calls and all(item.get("type") != "message" for item in items):
            raise ProtocolError("the response has neither text nor tool calls")
        message = _message([item for item in map(_sendable_item, items) if item])
        if reason == "stop":
            reason = _completed_reason(message)
        return Reply(message, _usage(self._usage), clean(reason), clean(self.model or model))

    def _start(self, data: dict[str, Any]) -> None:
        self.has_started = True
        self._read_model(data)

    def _whole(self, data: dict[str, Any]) -> list[Delta]:
        """Read a whole response, which may follow its deltas."""
        self._start(data)
        _check_status(data)
        if data.get("usage") is not None:
            self._usage = object_of(data["usage"], "usage")
        output = data.get("output")
        if not isinstance(output, list | None):
            raise ProtocolError(f"output: expected a list, got {brief(output)}")
        if output:
            self._replace_items([object_of(item, "output") for item in output])
        deltas = [delta for item in self._items.values() for delta in self._finish_item(item, item.data)]
        self.finish_reason = _reason_of(data)
        self.is_over = True
        return deltas

    def _replace_items(self, output: list[dict[str, Any]]) -> None:
        """Replace the data of the items by the data of the whole response; their deltas stay."""
        items = list(self._items.values())
        self._items = {}
        for index, data in enumerate(output):
            if index < len(items) and items[index].data.get("type") == data.get("type"):
                item = items[index]
            else:
                item = _Item({}, self._calls)
                self._calls += data.get("type") == "function_call"
            item.data = dict(data)
            self._items[index] = item

    def _key(self, data: dict[str, Any]) -> object:
        """Return the key of the item of an event: its index, else its id, else the key of the last item."""
        # Compatible servers omit the index, the id, or both.
        index, item_id = data.get("output_index"), data.get("item_id")
        if isinstance(index, int):
            return index
        if isinstance(item := data.get("item"), dict) and isinstance(item.get("id"), str):
            item_id = item["id"]
        if isinstance(item_id, str):
            return item_id
        return next(reversed(self._items), 0)

    def _start_item(self, data: dict[str, Any]) -> _Item:
        self.has_started = True
        fields, key = object_of(data.get("item"), "item"), self._key(data)
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item({}, self._calls)
            self._calls += fields.get("type") == "function_call"
        item.data.update(fields)
        return item

    def _add_delta(self, data: dict[str, Any], kind: DeltaKind) -> list[Delta]:
        self.has_started = True
        key, piece = self._key(data), data.get("delta")
        if not isinstance(piece, str):
            raise ProtocolError(f"delta: expected text, got {brief(piece)}")
        item = self._items.get(key)
        if item is None:
            # Some servers send deltas without an event that starts the item.
            types = {"arguments": "function_call", "thinking": "reasoning"}
            item = self._items[key] = _Item({"type": types.get(kind, "message")}, self._calls)
            self._calls += kind == "arguments"
        deltas = item.add(kind, piece)
        if kind in ("text", "refusal"):
            self._text += [delta.text for delta in deltas]
        return deltas

    def _finish_item(self, item: _Item, data: dict[str, Any]) -> list[Delta]:
        """Return the part of an item not emitted yet; `data` is the item as the last event contains it."""
        kind = item.data.get("type")
        if not isinstance(kind, str):
            raise ProtocolError(f"output: an item without a type: {brief(item.data)}")
        if kind == "function_call":
            arguments = data.get("arguments") or ""
            if not isinstance(arguments, str):
                raise ProtocolError(f"arguments: expected text, got {brief(arguments)}")
            return item.missing_deltas("arguments", arguments)
        if kind != "message":
            return []
        parts = _parts(data.get("content"))
        deltas = [
            *item.missing_deltas("text", _joined_texts(parts, "text")),
            *item.missing_deltas("refusal", _joined_texts(parts, "refusal")),
        ]
        self._text += [delta.text for delta in deltas]
        return deltas


def _parts(content: object) -> list[dict[str, Any]]:
    """Return the parts of a message, without parts of an unknown form."""
    if not isinstance(content, list | None):
        raise ProtocolError(f"content: expected a list of parts, got {brief(content)}")
    return [part for part in content or () if isinstance(part, dict)]


def _joined_texts(parts: list[dict[str, Any]], key: str) -> str:
    return "".join([text for part in parts if isinstance(text := part.get(key), str)])


def _completed_reason(message: Message) -> str:
    """Return the finish reason of a completed response: the API has no reason for tool calls and refusals."""
    if message.tool_calls:
        return "tool_calls"
    if any(getattr(part, "kind", "") == "refusal" for part in message.parts):
        return "refusal"
    return "stop"


def _check_status(data: dict[str, Any]) -> None:
    """Refuse a response that failed or is not finished."""
    status = data.get("status")
    if status in ("failed", "cancelled") or data.get("error"):
        error = error_in({"error": data.get("error")})
        raise error or ErrorReply("", f"the response ended with the status {status!r}")
    if status in ("queued", "in_progress"):
        raise ProtocolError(f"the response is not finished: its status is {status!r}")


def _reason_of(data: dict[str, Any]) -> str:
    """Return the finish reason of a response."""
    details = data.get("incomplete_details")
    reason = None
    if isinstance(details, dict):
        reason = details.get("reason")
    if data.get("status") != "incomplete" and not reason:
        return "stop"
    return _REASONS.get(str(reason), str(reason or "length"))


def _sendable_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without empty fields and log probabilities."""
    fields = sendable(item)
    if item.get("type") == "reasoning":
        # The API requires a summary, even if it is empty.
        fields["summary"] = fields.get("summary") or []
    elif item.get("type") == "message":
        parts = [_without_logprobs(part) for part in _parts(fields.get("content"))]
        fields["role"] = "assistant"
        fields["content"] = [part for part in parts if part.get("text") or part.get("refusal")]
    return fields


def _without_logprobs(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "logprobs"}


def _message(items: list[dict[str, Any]]) -> Message:
    """Return all items as one message, with the order of the items if the reply has several messages."""
    messages = messages_in(items, "responses")
    if not messages:
        return Message("assistant", "")
    if len(messages) == 1:
        return messages[0]
    parts: list[Part] = []
    calls: list[ToolCall] = []
    thinking: list[Thinking] = []
    # One reply may have several messages, such as comments before its tool calls.
    for message in messages:
        size = len(parts) + len(calls)
        thinking += [replace(thought, at=thought.at + size) for thought in message.thinking]
        parts += message.parts
        calls += message.tool_calls
    order = {"responses": {ITEMS: _order(items)}}
    return replace(messages[0], content=tuple(parts), tool_calls=tuple(calls), thinking=tuple(thinking), opaque=order)


def _order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the type of each item; instead of the type of a message, its number of parts and its other keys."""
    order: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type")
        if kind == "message":
            fields = {key: value for key, value in item.items() if key not in ("role", "content")}
            order.append({"parts": len(item["content"]), **fields})
        else:
            if kind != "function_call":
                kind = "thinking"
            order.append({"type": kind})
    return order


def _usage(data: dict[str, Any]) -> Usage:
    details = data.get("input_tokens_details")
    cached = None
    if isinstance(details, dict):
        cached = details.get("cached_tokens")
    return Usage(count_of(data.get("input_tokens")), count_of(data.get("output_tokens")), count_of(cached))
