"""Reader of replies of OpenAI's Responses API, whole or streamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.finish_reasons import check_reason
from agentkit.models.http.generated_images import image_in_item, with_images
from agentkit.models.http.reader import ProtocolError, Reader, index_of, object_of, sendable
from agentkit.models.http.reply_checks import (
    checked_calls,
    messages_in,
    without_empty_calls,
    without_repeated_calls,
)
from agentkit.models.http.sent_usage import chat_usage, usage_in
from agentkit.models.model import NO_USAGE, Delta, DeltaKind, Reply, Usage
from agentkit.models.openai.output_item import OutputItem
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_openai_responses import ITEMS
from agentkit_prompts.errors import brief

_DELTA_KINDS: Mapping[str, DeltaKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "arguments",
}
_DONE_EVENTS: Mapping[str, str] = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning_summary_text.done": "text",
    "response.reasoning_text.done": "text",
    "response.function_call_arguments.done": "arguments",
}
"""Events that repeat a whole text, and the key of the text."""
_ANNOTATION_EVENT = "response.output_text.annotation.added"
_PART_EVENTS = ("response.content_part.added", "response.content_part.done")
_UNFINISHED = ("in_progress", "incomplete")
"""Status of an item whose end has not arrived."""
_START_EVENTS = ("response.created", "response.in_progress", "response.queued")
_END_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
_NO_ENDPOINT = Owner("responses")


class ResponsesReader(Reader):
    """Reads responses. Reasoning items and tool results of the provider are sent back with the next request."""

    def __init__(self, owner: Owner = _NO_ENDPOINT) -> None:
        super().__init__()
        self._owner = owner
        self._items: list[OutputItem] = []
        self._by_index: dict[int, OutputItem] = {}
        """The latest item of each index: servers use an index again."""
        self._by_id: dict[str, OutputItem] = {}
        self._calls = 0
        self._has_events = False
        """True if an item arrived in an event."""
        self._usage: Usage = NO_USAGE

    @property
    def usage(self) -> Usage:
        return self._usage

    def _add(self, data: dict[str, Any]) -> list[Delta]:
        kind = data.get("type")
        # Some servers add other events, such as rate limits.
        if isinstance(kind, str) and ("." in kind or kind in ("keepalive", "ping")):
            return self._add_event(kind, data)
        if data.get("object") == "response" or isinstance(data.get("output"), list):
            return self._whole(data)
        raise ProtocolError(f"expected a response or an event of a response, got {brief(data)}")

    def _add_event(self, kind: str, data: dict[str, Any]) -> list[Delta]:
        if kind in _DELTA_KINDS:
            return self._add_delta(data, _DELTA_KINDS[kind])
        if kind in _DONE_EVENTS:
            delta_kind = _DELTA_KINDS[f"{kind.removesuffix('done')}delta"]
            return self._add_text_of_event(data, delta_kind, data.get(_DONE_EVENTS[kind]))
        if kind == _ANNOTATION_EVENT and data.get("annotation") is not None:
            item = self._item_of_text(data, "text")
            item.annotations.setdefault(_part_index(data), []).append(data["annotation"])
            return []
        if kind in _PART_EVENTS:
            return self._add_part(data, object_of(data.get("part") or {}, "part"))
        if kind == "response.output_item.done":
            return self._end_item(data)
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
        reason = self.finish_reason or "stop"
        # A call that was only announced has no arguments yet.
        items = without_empty_calls([item.content() for item in self._items if not item.is_announced(reason)])
        if self._has_events:
            items = without_repeated_calls(items)
        calls = checked_calls(items, "call", reason, has_text=bool(self.text))
        images = [image for image in map(image_in_item, items) if image is not None]
        if reason == "stop":
            _check_content(items, [*calls, *images])
        message = _message([item for item in map(_sendable_item, items) if item], self._owner)
        if reason == "stop":
            reason = _completed_reason(message)
        if images:
            message = with_images(message, images)
        return Reply(message, self._usage, clean(reason), clean(self.model or model))

    def end(self) -> list[Delta]:
        return [delta for item in self._items for delta in item.rest()]

    def _start(self, data: dict[str, Any]) -> None:
        self.has_started = True
        self._read_model(data)

    def _whole(self, data: dict[str, Any]) -> list[Delta]:
        """Read a whole response, which may follow its deltas."""
        self._start(data)
        if usage := usage_in(data):
            self._usage = chat_usage(usage)
        _check_status(data)
        output = data.get("output")
        if not isinstance(output, list | None):
            raise ProtocolError(f"output: expected a list, got {brief(output)}")
        if output:
            self._replace_items([object_of(item, "output") for item in output])
        deltas = [delta for item in self._items for delta in self._finish_item(item, item.data)]
        self.finish_reason = _reason_of(data)
        self.is_over = True
        return deltas

    def _replace_items(self, output: list[dict[str, Any]]) -> None:
        """Replace the data of the items by the data of the whole response; their deltas stay."""
        items, self._items = self._items, []
        for index, data in enumerate(output):
            item = self._by_id.get(str(data.get("id")))
            if item is None and index < len(items) and items[index].data.get("type") == data.get("type"):
                item = items[index]
            if item is None or item in self._items:
                item = OutputItem({}, self._calls)
                self._calls += data.get("type") == "function_call"
            item.data = dict(data)
            item.is_over = data.get("status") not in _UNFINISHED
            item.is_stopped = not item.is_over
            self._items.append(item)

    def _item_of(self, data: dict[str, Any]) -> OutputItem | None:
        """Return the item of an event by its id, else by its index, else the last item; None for a new item."""
        # Compatible servers omit the index, the id, or both; some send another id with each event.
        index, item_id = index_of(data.get("output_index")), data.get("item_id")
        if isinstance(item := data.get("item"), dict) and isinstance(item.get("id"), str):
            item_id = item["id"]
        if isinstance(item_id, str) and item_id in self._by_id:
            return self._by_id[item_id]
        if index is not None:
            return self._by_index.get(index)
        if isinstance(item_id, str) or not self._items:
            return None
        return self._items[-1]

    def _start_item(self, data: dict[str, Any]) -> OutputItem:
        """Return a new item for the event that starts it."""
        self.has_started = self._has_events = True
        fields, index = object_of(data.get("item"), "item"), index_of(data.get("output_index"))
        item = OutputItem(dict(fields), self._calls)
        self._calls += fields.get("type") == "function_call"
        self._items.append(item)
        if index is not None:
            self._by_index[index] = item
        for item_id in (fields.get("id"), data.get("item_id")):
            if isinstance(item_id, str) and item_id:
                self._by_id[item_id] = item
        return item

    def _end_item(self, data: dict[str, Any]) -> list[Delta]:
        """Read the event that ends an item, which some servers send without the event that starts it."""
        self.has_started = True
        fields, item = object_of(data.get("item"), "item"), self._item_of(data)
        if item is None or item.is_over or item.data.get("type") not in (None, fields.get("type")):
            item = self._start_item(data)
        item.data.update(fields)
        item.is_over = True
        return self._finish_item(item, fields)

    def _item_of_text(self, data: dict[str, Any], kind: DeltaKind) -> OutputItem:
        """Return the item of a text; a new item if the server did not send the event that starts it."""
        self.has_started = True
        item = self._item_of(data)
        if item is None:
            types = {"arguments": "function_call", "thinking": "reasoning"}
            # The event that ends arguments contains the name of the tool.
            names = {key: data[key] for key in ("name", "call_id") if key in data}
            item = self._start_item({**data, "item": {"type": types.get(kind, "message"), **names}})
        return item

    def _add_delta(self, data: dict[str, Any], kind: DeltaKind) -> list[Delta]:
        piece = data.get("delta")
        if not isinstance(piece, str):
            raise ProtocolError(f"delta: expected text, got {brief(piece)}")
        deltas = self._item_of_text(data, kind).add(kind, _part_index(data), piece)
        return self._with_text(deltas)

    def _add_text_of_event(self, data: dict[str, Any], kind: DeltaKind, whole: object) -> list[Delta]:
        """Read an event that repeats the whole text of a part, or the whole arguments."""
        if whole is None or whole == "":
            return []
        if not isinstance(whole, str) and (kind != "arguments" or not isinstance(whole, dict)):
            raise ProtocolError(f"{data.get('type')}: expected text, got {brief(whole)}")
        item = self._item_of_text(data, kind)
        return self._with_text(item.missing_of_part(kind, _part_index(data), whole))

    def _add_part(self, data: dict[str, Any], part: dict[str, Any]) -> list[Delta]:
        """Read an event with a part of a message or of reasoning."""
        kind: DeltaKind = "text"
        if part.get("type") == "refusal":
            kind = "refusal"
        elif part.get("type") in ("reasoning_text", "summary_text"):
            kind = "thinking"
        return self._add_text_of_event(data, kind, part.get("refusal") or part.get("text"))

    def _with_text(self, deltas: list[Delta]) -> list[Delta]:
        """Store the text of deltas, and return the deltas."""
        self._text += [delta.text for delta in deltas if delta.kind in ("text", "refusal")]
        return deltas

    def _finish_item(self, item: OutputItem, data: dict[str, Any]) -> list[Delta]:
        """Return the part of an item not emitted yet; `data` is the item as the last event contains it."""
        kind = item.data.get("type")
        if not isinstance(kind, str):
            raise ProtocolError(f"output: an item without a type: {brief(item.data)}")
        if kind == "function_call":
            arguments = data.get("arguments") or ""
            if not isinstance(arguments, str | dict):
                raise ProtocolError(f"arguments: expected text, got {brief(arguments)}")
            # An announcement can contain empty arguments.
            if not item.is_over and arguments in ({}, "{}"):
                return []
            return item.replace_arguments(arguments)
        if kind == "reasoning":
            parts = [*_parts(data.get("summary")), *_parts(data.get("content"))]
            return item.missing_deltas("thinking", _joined_texts(parts, "text"))
        if kind != "message":
            return []
        parts = _parts(data.get("content"))
        deltas = item.missing_deltas("text", _joined_texts(parts, "text"))
        return self._with_text([*deltas, *item.missing_deltas("refusal", _joined_texts(parts, "refusal"))])


def _part_index(data: dict[str, Any]) -> int:
    """Return the index of the part of an event; 0 if the server sent none."""
    for key in ("content_index", "summary_index"):
        if (index := index_of(data.get(key))) is not None:
            return index
    return 0


def _parts(content: object) -> list[dict[str, Any]]:
    """Return the parts of a message, without parts of an unknown form."""
    if not isinstance(content, list | None):
        raise ProtocolError(f"content: expected a list of parts, got {brief(content)}")
    return [part for part in content or () if isinstance(part, dict)]


def _joined_texts(parts: list[dict[str, Any]], key: str) -> str:
    return "".join([text for part in parts if isinstance(text := part.get(key), str)])


def _check_content(items: list[dict[str, Any]], others: list[Any]) -> None:
    """Refuse a completed response without a message and without other content."""
    if not others and all(item.get("type") != "message" for item in items):
        raise ProtocolError("the response has neither text nor tool calls")


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
    return check_reason(reason) or "length"


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


def _message(items: list[dict[str, Any]], owner: Owner) -> Message:
    """Return all items as one message, with the order of the items if the reply has several messages."""
    messages = messages_in(items, owner)
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
    order = {owner.key({}): {ITEMS: _order(items)}}
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
