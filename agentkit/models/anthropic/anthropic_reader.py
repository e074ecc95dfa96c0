"""Reads the replies of Anthropic's messages API, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

from agentkit.models.http.json_end import is_json
from agentkit.models.http.reply_checks import checked_calls, messages_in
from agentkit.models.http.reply_reader import (
    PieceJoiner,
    ProtocolError,
    Reader,
    brief,
    count_of,
    object_of,
    sendable,
)
from agentkit.models.model import Delta, Reply, Usage
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean

__all__ = ["AnthropicReader"]

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_PAUSES = ("pause_turn", "compaction")


class _Block:
    """A content block while it is read."""

    __slots__ = ("arguments", "citations", "data", "grown", "position")

    def __init__(self, data: dict[str, Any], position: int) -> None:
        self.data = data
        self.citations: list[Any] = []
        """Those that came one by one."""
        self.position = position
        """Of a tool call: which it is."""
        self.grown: dict[str, PieceJoiner] = {}
        self.arguments = PieceJoiner()

    def read(self) -> dict[str, Any]:
        block = {**self.data, **{key: str(text) for key, text in self.grown.items()}}
        if self.citations:
            begun = block.get("citations")
            if not isinstance(begun, list):
                begun = []
            block["citations"] = [*begun, *self.citations]
        if self.arguments.pieces:
            block["input"] = str(self.arguments)
            # The arguments of our tools stay text: incomplete arguments show that the reply was cut.
            if self.data.get("type") != "tool_use":
                block["input"] = _object_in(block["input"])
        return block


class AnthropicReader(Reader):
    """Reads messages. What the model thought, its signature and steps of the provider go back with the next request.

    `before` is what read the turn that this message continues, where the provider had paused it.
    """

    def __init__(self, before: AnthropicReader | None = None) -> None:
        super().__init__()
        self._before = before
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._last = -1
        """The last of the blocks."""
        self._counts: dict[str, Any] = {}
        if before is not None:
            self.earlier_text = before.text
            self._calls = before._calls

    @property
    def is_paused(self) -> bool:
        """Whether the turn goes on when it is sent back; with calls in it, it goes on with their results."""
        return self.finish_reason in _PAUSES and not any(
            block.data.get("type") == "tool_use" for block in self._blocks.values()
        )

    @property
    def usage(self) -> Usage:
        """The tokens of the whole turn."""
        usage = _usage(self._counts)
        if self._before is not None:
            usage = self._before.usage + usage
        return usage

    def content(self) -> list[dict[str, Any]]:
        """Return the blocks of the turn so far, as the provider sent them and as it takes them back."""
        blocks = [block for block in self._read() if not _is_blank(block)]
        return [
            {**block, "input": _object_in(block["input"])} if isinstance(block.get("input"), str) else block
            for block in blocks
        ]

    def _read(self) -> list[dict[str, Any]]:
        blocks = [block.read() for _, block in sorted(self._blocks.items())]
        if self._before is not None:
            blocks = self._before._read() + blocks
        return blocks

    def _add(self, data: dict[str, Any]) -> list[Delta]:
        kind = data.get("type")
        if kind == "message" or (kind is None and isinstance(data.get("content"), list)):
            return self._whole(data)
        if kind == "message_start":
            self._begin(object_of(data.get("message") or {}, "message"))
        elif kind == "content_block_start":
            return self._open(self._index(data), object_of(data.get("content_block"), "content_block"))
        elif kind == "content_block_delta":
            return self._grow(self._index(data), object_of(data.get("delta"), "delta"))
        elif kind == "message_delta":
            self._end(object_of(data.get("delta") or {}, "delta"), data)
        elif kind == "message_stop":
            self.is_over = True
        elif kind not in ("content_block_stop", "ping") and not isinstance(kind, str):
            raise ProtocolError(f"expected a message or an event of one, got {brief(data)}")
        return []

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("there is no message in it")
        blocks = self._read()
        reason = self.finish_reason
        calls = checked_calls(blocks, "toolu", is_cut=reason == "length", has_text=bool(self.text))
        if reason is None and not calls and not self.text:
            raise ProtocolError("the message has neither text nor tool calls, and no stop_reason")
        message = _message(blocks)
        if message.tool_calls and reason in (None, "stop", *_PAUSES):
            reason = "tool_calls"
        return Reply(message, self.usage, clean(reason or "stop"), clean(self.model or model))

    def _whole(self, data: dict[str, Any]) -> list[Delta]:
        self._begin(data)
        content = data.get("content")
        if not isinstance(content, list):
            raise ProtocolError(f"content: expected a list of blocks, got {brief(content)}")
        new = [delta for at, block in enumerate(content) for delta in self._open(at, object_of(block, "content"))]
        self._end(data, data)
        self.is_over = True
        return new

    def _begin(self, data: dict[str, Any]) -> None:
        self.has_started = True
        self._read_model(data)
        self._count(data.get("usage"))

    def _end(self, data: dict[str, Any], around: dict[str, Any]) -> None:
        self.has_started = True
        reason = data.get("stop_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = _REASONS.get(reason, reason)
        self._count(around.get("usage"))

    def _count(self, usage: object) -> None:
        if usage is not None:
            self._counts.update({key: value for key, value in object_of(usage, "usage").items() if value is not None})

    def _index(self, data: dict[str, Any]) -> int:
        """Return which block an event is about; where the server does not say, the one that is open."""
        index = data.get("index")
        if isinstance(index, int):
            return index
        if data.get("type") == "content_block_start":
            return self._last + 1
        return max(self._last, 0)

    def _open(self, index: int, data: dict[str, Any]) -> list[Delta]:
        self.has_started = True
        if not isinstance(kind := data.get("type"), str):
            raise ProtocolError(f"content: a block without a type: {brief(data)}")
        block = self._blocks[index] = _Block(dict(data), self._calls)
        self._last = max(self._last, index)
        self._calls += kind == "tool_use"
        if kind in ("text", "thinking"):
            begun = block.data.pop(kind, None) or ""
            return self._grow(index, {"type": f"{kind}_delta", kind: begun})
        if kind == "tool_use" and (given := data.get("input")):
            if not isinstance(given, str):
                given = json.dumps(given, ensure_ascii=False)
            return [Delta(clean(given), "arguments", block.position, str(data.get("name") or ""))]
        # The delta has no text yet; it shows that the stream is alive.
        return [Delta("", "arguments")]

    def _grow(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        block = self._blocks.get(index)
        if block is None:
            self._open(index, {"type": str(delta.get("type")).removesuffix("_delta")})
            block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                piece = self._joined(block, "text", delta.get("text"))
                self._text.append(piece)
                return _heard(Delta(piece, "text"))
            case "thinking_delta":
                return _heard(Delta(self._joined(block, "thinking", delta.get("thinking")), "thinking"))
            case "signature_delta":
                self._joined(block, "signature", delta.get("signature"))
                return [Delta("", "thinking")]
            case "input_json_delta":
                return self._grow_arguments(block, delta.get("partial_json") or "")
            case "citations_delta" if delta.get("citation") is not None:
                block.citations.append(delta["citation"])
        return []

    def _grow_arguments(self, block: _Block, piece: object) -> list[Delta]:
        if not isinstance(piece, str):
            raise ProtocolError(f"partial_json: expected text, got {brief(piece)}")
        new = Delta(block.arguments.keep(piece), "arguments", block.position, str(block.data.get("name") or ""))
        if new.text and block.data.get("type") != "tool_use":
            # Arguments of a tool that the provider runs are not shown. They are a sign of life all the same.
            return [Delta("", "arguments")]
        return _heard(new)

    def _joined(self, block: _Block, name: str, piece: object) -> str:
        if not isinstance(piece, str | None):
            raise ProtocolError(f"{name}: expected text, got {brief(piece)}")
        before = block.data.pop(name, None)
        if not isinstance(before, str):
            before = ""
        joiner = block.grown.setdefault(name, PieceJoiner())
        return joiner.keep(before + (piece or ""))


def _heard(delta: Delta) -> list[Delta]:
    """Return a delta in a list, or an empty list if nothing is new."""
    if delta.text:
        return [delta]
    return []


def _object_in(text: str) -> Any:
    if is_json(text):
        return json.loads(text)
    # The arguments were cut.
    return {}


def _message(blocks: list[dict[str, Any]]) -> Message:
    kept = [block for block in map(_sent_back, blocks) if not _is_blank(block)]
    messages = messages_in([{"role": "assistant", "content": kept}], "anthropic")
    if not messages:
        return Message("assistant", "")
    return messages[0]


def _sent_back(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without what is empty, but for the fields that it must have."""
    made = sendable(block)
    if block.get("type") == "thinking":
        # A thought that was redacted has a signature and no text.
        made.setdefault("thinking", "")
    elif block.get("type") == "tool_use":
        made["input"] = made.get("input") or {}
    return made


def _is_blank(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _usage(data: dict[str, Any]) -> Usage:
    # `input_tokens` leaves out what the cache wrote and read.
    fresh, written, read, output = (
        count_of(data.get(key))
        for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return Usage(fresh + written + read, output, read)
