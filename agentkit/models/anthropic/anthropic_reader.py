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
_GROWING = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking")}
"""Type of a delta -> the key of its text, and of the block that grows."""


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
        made = {**self.data, **{key: str(text) for key, text in self.grown.items()}}
        if self.citations:
            begun = made.get("citations")
            made["citations"] = [*(begun if isinstance(begun, list) else ()), *self.citations]
        if self.arguments.pieces:
            text = str(self.arguments)
            made["input"] = text if self.data.get("type") == "tool_use" else _object_in(text)
        return made


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
            self.earlier = before.text
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
        own = _usage(self._counts)
        return own if self._before is None else self._before.usage + own

    def content(self) -> list[dict[str, Any]]:
        """Return the blocks of the turn so far, as the provider sent them and as it takes them back."""
        blocks = [block for block in self._read() if not _is_blank(block)]
        return [
            {**block, "input": _object_in(block["input"])} if isinstance(block.get("input"), str) else block
            for block in blocks
        ]

    def _read(self) -> list[dict[str, Any]]:
        before = [] if self._before is None else self._before._read()
        return before + [block.read() for _, block in sorted(self._blocks.items())]

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
        if not self.started:
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
        self.started = True
        self._take_model(data)
        self._count(data.get("usage"))

    def _end(self, data: dict[str, Any], around: dict[str, Any]) -> None:
        self.started = True
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
        return self._last + 1 if data.get("type") == "content_block_start" else max(self._last, 0)

    def _open(self, index: int, data: dict[str, Any]) -> list[Delta]:
        self.started = True
        if not isinstance(kind := data.get("type"), str):
            raise ProtocolError(f"content: a block without a type: {brief(data)}")
        block = self._blocks[index] = _Block(dict(data), self._calls)
        self._last = max(self._last, index)
        self._calls += kind == "tool_use"
        if kind in ("text", "thinking"):
            begun = block.data.pop(kind, None) or ""
            return self._grow(index, {"type": f"{kind}_delta", kind: begun})
        if kind == "tool_use" and (given := data.get("input")):
            text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            return [Delta(clean(text), "arguments", block.position, str(data.get("name") or ""))]
        return [Delta("", "arguments")]  # something new came, though nothing to hear

    def _grow(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        block = self._blocks.get(index)
        if block is None:
            self._open(index, {"type": str(delta.get("type")).removesuffix("_delta")})
            block = self._blocks[index]
        kind = str(delta.get("type"))
        key, name = _GROWING.get(kind, ("", ""))
        if key:
            piece = self._joined(block, name, delta.get(key))
            if key == "text" and piece:
                self._text.append(piece)
            return [Delta(piece, "text" if key == "text" else "thinking")] if piece else []
        if kind == "input_json_delta":
            piece = delta.get("partial_json") or ""
            if not isinstance(piece, str):
                raise ProtocolError(f"partial_json: expected text, got {brief(piece)}")
            piece = block.arguments.keep(piece)
            is_call = block.data.get("type") == "tool_use"
            name = str(block.data.get("name") or "")
            if not is_call:
                return [Delta("", "arguments")] if piece else []  # of a tool that the provider runs
            return [Delta(piece, "arguments", block.position, name)] if piece else []
        if kind == "signature_delta":
            self._joined(block, "signature", delta.get("signature"))
            return [Delta("", "thinking")]
        if kind == "citations_delta" and delta.get("citation") is not None:
            block.citations.append(delta["citation"])
        return []

    def _joined(self, block: _Block, name: str, piece: object) -> str:
        if not isinstance(piece, str | None):
            raise ProtocolError(f"{name}: expected text, got {brief(piece)}")
        before = block.data.pop(name, None)
        joiner = block.grown.setdefault(name, PieceJoiner())
        return joiner.keep((before if isinstance(before, str) else "") + (piece or ""))


def _object_in(text: str) -> Any:
    return json.loads(text) if is_json(text) else {}


def _message(blocks: list[dict[str, Any]]) -> Message:
    kept = [block for block in map(_sent_back, blocks) if not _is_blank(block)]
    found = messages_in([{"role": "assistant", "content": kept}], "anthropic")
    return found[0] if found else Message("assistant", "")


def _sent_back(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without what is empty, but for the fields that it must have."""
    made = sendable(block)
    if block.get("type") == "thinking":
        made.setdefault("thinking", "")
    elif block.get("type") == "tool_use":
        made["input"] = made.get("input") or {}
    return made


def _is_blank(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and not block.get("text")


def _usage(data: dict[str, Any]) -> Usage:
    fresh, written, read, output = (
        count_of(data.get(key))
        for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    )
    return Usage(fresh + written + read, output, read)
