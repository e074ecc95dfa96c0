"""Reads the replies of OpenAI's Responses API, whole or streamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.reply_checks import checked_calls, messages_in
from agentkit.models.http.reply_reader import PieceJoiner, ProtocolError, Reader, brief, count_of, object_of, sendable
from agentkit.models.model import Delta, DeltaKind, Reply, Usage
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.write_openai_responses import ITEMS

__all__ = ["ResponsesReader"]

_GROWING: Mapping[str, DeltaKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "arguments",
}
_BEGINNINGS = ("response.created", "response.in_progress", "response.queued")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class _Item:
    """An output item while it is read."""

    __slots__ = ("data", "grown", "position")

    def __init__(self, data: dict[str, Any], position: int) -> None:
        self.data = data
        self.position = position
        """Of a tool call: which it is."""
        self.grown: dict[str, PieceJoiner] = {}

    def heard(self, kind: str) -> str:
        """Return what was heard of a kind so far; joined anew by every call."""
        if kind in self.grown:
            return "".join(self.grown[kind].pieces)
        return ""

    def rest(self, kind: DeltaKind, whole: str) -> list[Delta]:
        """Return what of a whole text was not heard yet."""
        size = 0
        if kind in self.grown:
            size = self.grown[kind].size
        # The length is compared first, because joining what was heard for every repetition is slow.
        if len(whole) <= size or not whole.startswith(self.heard(kind)):
            return []
        return self.add(kind, whole[size:])

    def whole(self) -> dict[str, Any]:
        """Return the item; where only pieces of it came, they make up for what is missing."""
        data = self.data
        if data.get("type") == "function_call":
            data["arguments"] = clean(data.get("arguments") or self.heard("arguments") or "{}")
        elif data.get("type") == "message" and not data.get("content"):
            text, refusal = self.heard("text"), self.heard("refusal")
            data["content"] = []
            if text or not refusal:
                data["content"].append({"type": "output_text", "text": text})
            if refusal:
                data["content"].append({"type": "refusal", "refusal": refusal})
        return data

    def add(self, kind: DeltaKind, piece: str) -> list[Delta]:
        piece = self.grown.setdefault(kind, PieceJoiner()).keep(piece)
        if not piece:
            return []
        if kind == "arguments":
            return [Delta(piece, "arguments", self.position, str(self.data.get("name") or ""))]
        return [Delta(piece, kind)]


class ResponsesReader(Reader):
    """Reads responses. Reasoning items, and steps of the provider, go back with the next request."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[object, _Item] = {}
        self._calls = 0
        self._usage: dict[str, Any] = {}

    def _add(self, data: dict[str, Any]) -> list[Delta]:
        kind = data.get("type")
        if not isinstance(kind, str):
            kind = ""
        if kind in _GROWING:
            return self._grow(data, _GROWING[kind])
        if kind == "response.output_item.added":
            self._open(data)
            # The delta has no text yet; it shows that the stream is alive.
            return [Delta("", "arguments")]
        if kind == "response.output_item.done":
            return self._close(self._open(data), object_of(data.get("item"), "item"))
        if kind in _ENDS:
            return self._whole(object_of(data.get("response"), "response"))
        if kind in _BEGINNINGS:
            self._begin(object_of(data.get("response") or {}, "response"))
            return []
        if kind.startswith("response."):
            # A tool that the provider runs grows. Its pieces are a sign of life and nothing else.
            if kind.endswith(".delta") and data.get("delta"):
                return [Delta("", "arguments")]
            return []
        if kind in ("keepalive", "ping"):
            return []
        if data.get("object") == "response" or isinstance(data.get("output"), list):
            return self._whole(data)
        raise ProtocolError(f"expected a response or an event of one, got {brief(data)}")

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("there is no response in it")
        items = [item.whole() for item in self._items.values()]
        reason = self.finish_reason or "stop"
        calls = checked_calls(items, "call", is_cut=reason == "length", has_text=bool(self.text))
        if reason == "stop" and not calls and all(item.get("type") != "message" for item in items):
            raise ProtocolError("the response has neither text nor tool calls")
        message = _message([sent for item in items if (sent := _sent_back(item))])
        # The API has no reason for calls and refusals: both end with the status `completed`.
        if reason == "stop" and message.tool_calls:
            reason = "tool_calls"
        elif reason == "stop" and any(getattr(part, "kind", "") == "refusal" for part in message.parts):
            reason = "refusal"
        return Reply(message, _usage(self._usage), clean(reason), clean(self.model or model))

    def _begin(self, data: dict[str, Any]) -> None:
        self.has_started = True
        self._read_model(data)

    def _whole(self, data: dict[str, Any]) -> list[Delta]:
        self._begin(data)
        _check_status(data)
        if data.get("usage") is not None:
            self._usage = object_of(data["usage"], "usage")
        output = data.get("output")
        if not isinstance(output, list | None):
            raise ProtocolError(f"output: expected a list, got {brief(output)}")
        if output:
            self._replace_items([object_of(item, "output") for item in output])
        new = [delta for item in self._items.values() for delta in self._close(item, item.data)]
        self.finish_reason = _reason_of(data)
        self.is_over = True
        return new

    def _replace_items(self, output: list[dict[str, Any]]) -> None:
        """Replace the data of the items by that of the whole response; what was heard of them is kept."""
        known = list(self._items.values())
        self._items = {}
        for at, data in enumerate(output):
            if at < len(known) and known[at].data.get("type") == data.get("type"):
                item = known[at]
            else:
                item = _Item({}, self._calls)
                self._calls += data.get("type") == "function_call"
            item.data = dict(data)
            self._items[at] = item

    def _key(self, data: dict[str, Any]) -> object:
        """Return how an item is known: by its place; else by its id, or as the last one."""
        # Servers that imitate the API leave out one of the two, or both.
        index, name = data.get("output_index"), data.get("item_id")
        if isinstance(index, int):
            return index
        if isinstance(item := data.get("item"), dict) and isinstance(item.get("id"), str):
            name = item["id"]
        if isinstance(name, str):
            return name
        return next(reversed(self._items), 0)

    def _open(self, data: dict[str, Any]) -> _Item:
        self.has_started = True
        item, key = object_of(data.get("item"), "item"), self._key(data)
        known = self._items.get(key)
        if known is None:
            known = self._items[key] = _Item({}, self._calls)
            self._calls += item.get("type") == "function_call"
        known.data.update(item)
        return known

    def _grow(self, data: dict[str, Any], kind: DeltaKind) -> list[Delta]:
        self.has_started = True
        key, piece = self._key(data), data.get("delta")
        if not isinstance(piece, str):
            raise ProtocolError(f"delta: expected text, got {brief(piece)}")
        item = self._items.get(key)
        if item is None:
            # Some servers send pieces of an item that they never opened.
            types = {"arguments": "function_call", "thinking": "reasoning"}
            item = self._items[key] = _Item({"type": types.get(kind, "message")}, self._calls)
            self._calls += kind == "arguments"
        new = item.add(kind, piece)
        if kind in ("text", "refusal"):
            self._text += [delta.text for delta in new]
        return new

    def _close(self, item: _Item, data: dict[str, Any]) -> list[Delta]:
        """Return what of an item was not heard yet; what came of it now is in `data`, and only that is read."""
        new: list[Delta] = []
        kind = item.data.get("type")
        if kind == "function_call":
            given = data.get("arguments")
            if given and not isinstance(given, str):
                raise ProtocolError(f"arguments: expected text, got {brief(given)}")
            new = item.rest("arguments", given or "")
        elif kind == "message":
            content = data.get("content")
            if not isinstance(content, list | None):
                raise ProtocolError(f"content: expected a list of parts, got {brief(content)}")
            kinds: tuple[DeltaKind, ...] = ("text", "refusal")
            for part_kind in kinds:
                texts = [one.get(part_kind) for one in content or () if isinstance(one, dict)]
                new += item.rest(part_kind, "".join([text for text in texts if isinstance(text, str)]))
            self._text += [delta.text for delta in new]
        elif not isinstance(kind, str):
            raise ProtocolError(f"output: an item without a type: {brief(item.data)}")
        return new


def _check_status(data: dict[str, Any]) -> None:
    """Refuse a response that failed, or that has not ended."""
    status = data.get("status")
    if status in ("failed", "cancelled") or data.get("error"):
        error = error_in({"error": data.get("error")})
        raise error or ErrorReply("", f"the response ended with the status {status!r}")
    if status in ("queued", "in_progress"):
        raise ProtocolError(f"the response is not there yet: its status is {status!r}")


def _reason_of(data: dict[str, Any]) -> str:
    """Return why a response ended."""
    details = data.get("incomplete_details")
    reason = None
    if isinstance(details, dict):
        reason = details.get("reason")
    if data.get("status") != "incomplete" and not reason:
        return "stop"
    return _REASONS.get(str(reason), str(reason or "length"))


def _sent_back(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is read and goes back: without what is empty, and without probabilities of tokens."""
    made = sendable(item)
    if item.get("type") == "reasoning":
        # The API requires a summary, empty or not.
        made["summary"] = made.get("summary") or []
    elif item.get("type") == "message":
        content = made.get("content") or []
        if not isinstance(content, list):
            raise ProtocolError(f"content: expected a list of parts, got {brief(content)}")
        parts = [part for part in content if isinstance(part, dict)]
        kept = ({key: value for key, value in part.items() if key != "logprobs"} for part in parts)
        made = {
            **made,
            "role": "assistant",
            "content": [part for part in kept if part.get("text") or part.get("refusal")],
        }
    return made


def _message(items: list[dict[str, Any]]) -> Message:
    """Return all items as one message, which says in which order they came where that is not the usual one."""
    found = messages_in(items, "responses")
    if not found:
        return Message("assistant", "")
    if len(found) == 1:
        return found[0]
    parts: list[Part] = []
    calls: list[ToolCall] = []
    thinking: list[Thinking] = []
    # One reply may have several messages, such as comments before its tool calls.
    for one in found:
        size = len(parts) + len(calls)
        thinking += [replace(thought, at=thought.at + size) for thought in one.thinking]
        parts += one.parts
        calls += one.tool_calls
    order = {"responses": {ITEMS: _order(items)}}
    return replace(found[0], content=tuple(parts), tool_calls=tuple(calls), thinking=tuple(thinking), opaque=order)


def _order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return of each item what the message does not hold: of a message how many parts it has, and its other keys."""
    made: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type")
        if kind == "message":
            kept = {key: value for key, value in item.items() if key not in ("role", "content")}
            made.append({"parts": len(item["content"]), **kept})
        else:
            if kind != "function_call":
                kind = "thinking"
            made.append({"type": kind})
    return made


def _usage(data: dict[str, Any]) -> Usage:
    details = data.get("input_tokens_details")
    cached = None
    if isinstance(details, dict):
        cached = details.get("cached_tokens")
    return Usage(count_of(data.get("input_tokens")), count_of(data.get("output_tokens")), count_of(cached))
