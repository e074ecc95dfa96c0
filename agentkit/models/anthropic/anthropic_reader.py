"""Reader of replies of Anthropic's messages API, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

from agentkit.models.http.call_arguments import CallArguments, arguments_text
from agentkit.models.http.finish_reasons import check_reason
from agentkit.models.http.json_end import is_json
from agentkit.models.http.piece_joiner import PieceJoiner
from agentkit.models.http.reader import ProtocolError, Reader, count_of, index_of, nonempty, object_of, sendable
from agentkit.models.http.reply_checks import (
    checked_calls,
    messages_in,
    without_empty_calls,
    without_repeated_calls,
)
from agentkit.models.model import Delta, Reply, Usage
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.errors import brief

_PAUSES = ("pause_turn", "compaction")
_NO_ENDPOINT = Owner("anthropic")


class _Block:
    """A content block while it is read."""

    __slots__ = ("arguments", "citations", "data", "index", "is_over", "position", "texts")

    def __init__(self, data: dict[str, Any], index: int, position: int) -> None:
        self.data = data
        self.index = index
        self.is_over = False
        """True if the end of the block has arrived."""
        self.citations: list[Any] = []
        """Citations from deltas."""
        self.position = position
        """Position of a tool call among the tool calls of the reply."""
        self.texts: dict[str, PieceJoiner] = {}
        """Texts from deltas, by the key of the block."""
        self.arguments = CallArguments()

    def is_announced(self) -> bool:
        """True for a tool call of which only the start has arrived."""
        if self.data.get("type") != "tool_use":
            return False
        return not (self.is_over or self.arguments or self.data.get("input"))

    def content(self) -> dict[str, Any]:
        """Return the block with the content of its deltas."""
        block = {**self.data, **{key: str(text) for key, text in self.texts.items()}}
        if self.citations:
            first = block.get("citations")
            if not isinstance(first, list):
                first = []
            block["citations"] = [*first, *self.citations]
        text = str(self.arguments)
        # A whole input at the start is not replaced by empty arguments.
        if text and not (isinstance(block.get("input"), dict) and block["input"] and text.strip() == "{}"):
            block["input"] = text
            # The arguments of local tools stay text: incomplete arguments show that the reply was cut.
            if self.data.get("type") != "tool_use":
                block["input"] = _object_in(text)
        return block


class AnthropicReader(Reader):
    """Reads messages. Thinking, signatures and tool results of the provider are sent back with the next request.

    Args:
        owner: Endpoint and model that send the message.
        before: Reader of the paused turn that this message continues.
    """

    def __init__(self, owner: Owner = _NO_ENDPOINT, before: AnthropicReader | None = None) -> None:
        super().__init__()
        self.owner = owner
        self._before = before
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        """The latest block of each index: servers use an index again."""
        self._calls = 0
        self._has_events = False
        """True if a block arrived in an event."""
        self._last = -1
        """Index of the last block."""
        self._counts: dict[str, Any] = {}
        if before is not None:
            self.earlier_text = before.text
            self._calls = before._calls

    @property
    def is_paused(self) -> bool:
        """True if the turn must be sent back to be continued; a turn with tool calls continues with their results."""
        return self.finish_reason in _PAUSES and not any(block.data.get("type") == "tool_use" for block in self._blocks)

    @property
    def usage(self) -> Usage:
        """Tokens of the whole turn."""
        # `input_tokens` does not contain the tokens that were written to the cache or read from it.
        fresh, written, read, output = (
            count_of(self._counts.get(key))
            for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        )
        usage = Usage(fresh + written + read, output, read)
        if self._before is not None:
            usage = self._before.usage + usage
        return usage

    def end(self) -> list[Delta]:
        deltas: list[Delta] = []
        for block in self._blocks:
            if block.data.get("type") == "tool_use":
                deltas += nonempty(_arguments_delta(block, block.arguments.rest()))
        return deltas

    def content(self) -> list[dict[str, Any]]:
        """Return the blocks of the turn so far, in the form in which the provider accepts them back."""
        blocks = [block for block in self._turn() if not _is_blank(block)]
        for block in blocks:
            if isinstance(block.get("input"), str):
                block["input"] = _object_in(block["input"])
        return blocks

    def _turn(self) -> list[dict[str, Any]]:
        """Return new dicts of all blocks of the turn."""
        read = self._blocks
        # Blocks with different indexes may arrive in another order.
        if len(self._by_index) == len(read):
            read = sorted(read, key=lambda block: block.index)
        # A call that was only announced has no arguments yet; a cut reply may end in such a call.
        is_cut = self.finish_reason == "length"
        blocks = [block.content() for block in read if is_cut or not block.is_announced()]
        if self._has_events:
            blocks = without_repeated_calls(blocks)
        if self._before is not None:
            blocks = self._before._turn() + blocks
        return blocks

    def _add(self, data: dict[str, Any]) -> list[Delta]:
        kind = data.get("type")
        if kind == "message" or (kind is None and isinstance(data.get("content"), list)):
            return self._whole(data)
        if not isinstance(kind, str):
            raise ProtocolError(f"expected a message or an event of a message, got {brief(data)}")
        match kind:
            case "message_start":
                self._start(object_of(data.get("message") or {}, "message"))
            case "content_block_start":
                self._has_events = True
                return self._start_block(self._index(data), object_of(data.get("content_block"), "content_block"))
            case "content_block_delta":
                return self._add_delta(self._index(data), object_of(data.get("delta"), "delta"))
            case "content_block_stop":
                if (block := self._by_index.get(self._index(data))) is not None:
                    block.is_over = True
            case "message_delta":
                self._finish(object_of(data.get("delta") or {}, "delta"), data)
            case "message_stop":
                self.is_over = True
        return []

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("the response contains no message")
        blocks = without_empty_calls(self._turn())
        reason = self.finish_reason
        calls = checked_calls(blocks, "toolu", reason, has_text=bool(self.text))
        if reason in (None, "tool_calls") and not calls and not self.text:
            raise ProtocolError(f"the message has neither text nor tool calls (stop_reason: {reason})")
        message = _message(blocks, self.owner)
        if message.tool_calls and reason in (None, "stop", *_PAUSES):
            reason = "tool_calls"
        if not message.tool_calls and reason == "tool_calls":
            reason = "stop"
        return Reply(message, self.usage, clean(reason or "stop"), clean(self.model or model))

    def _whole(self, data: dict[str, Any]) -> list[Delta]:
        """Read a whole message, which may repeat the blocks of its events."""
        self._start(data)
        content = data.get("content")
        if not isinstance(content, list):
            raise ProtocolError(f"content: expected a list of blocks, got {brief(content)}")
        deltas: list[Delta] = []
        read = [*self._blocks]
        for position, item in enumerate(content):
            block = object_of(item, "content")
            if position < len(read) and read[position].data.get("type") == block.get("type"):
                deltas += self._add_rest(read[position], block)
            else:
                deltas += self._start_block(self._last + 1, block)
                self._blocks[-1].is_over = True
        self._finish(data, data)
        self.is_over = True
        return deltas

    def _add_rest(self, block: _Block, whole: dict[str, Any]) -> list[Delta]:
        """Add the part of a repeated block that no event contained."""
        block.is_over = True
        kind = str(whole["type"])
        if kind == "tool_use":
            return nonempty(_arguments_delta(block, block.arguments.replace(whole.get("input"))))
        before, text = str(block.texts.get(kind, "")), whole.get(kind)
        if isinstance(text, str) and text.startswith(before) and self._by_index[block.index] is block:
            return self._add_delta(block.index, {"type": f"{kind}_delta", kind: text[len(before) :]})
        return []

    def _start(self, data: dict[str, Any]) -> None:
        self.has_started = True
        self._read_model(data)
        self._count(data.get("usage"))

    def _finish(self, data: dict[str, Any], event: dict[str, Any]) -> None:
        self.has_started = True
        self._count(event.get("usage") or data.get("usage"))
        self.finish_reason = check_reason(data.get("stop_reason")) or self.finish_reason

    def _count(self, usage: object) -> None:
        if usage is None:
            return
        for key, value in object_of(usage, "usage").items():
            # A later count of 0 is the default of a gateway.
            if value or key not in self._counts:
                self._counts[key] = value

    def _index(self, data: dict[str, Any]) -> int:
        """Return the index of the block of an event; the last block if the server sent no index."""
        index = index_of(data.get("index"))
        if index is not None:
            return index
        if data.get("type") == "content_block_start":
            return self._last + 1
        return max(self._last, 0)

    def _start_block(self, index: int, data: dict[str, Any]) -> list[Delta]:
        self.has_started = True
        if not isinstance(kind := data.get("type"), str):
            raise ProtocolError(f"content: a block without a type: {brief(data)}")
        block = self._new_block(index, data)
        if kind in ("text", "thinking"):
            text = block.data.pop(kind, None) or ""
            return self._add_delta(index, {"type": f"{kind}_delta", kind: text})
        if kind == "tool_use" and (arguments := data.get("input")):
            if isinstance(arguments, str):
                return self._append_arguments(block, arguments)
            arguments = clean(json.dumps(arguments, ensure_ascii=False))
            return [Delta(arguments, "arguments", block.position, str(data.get("name") or ""))]
        # An empty delta restarts the timeout of the stream.
        return [Delta("", "arguments")]

    def _new_block(self, index: int, data: dict[str, Any]) -> _Block:
        """Store and return a new block, which replaces a block that was announced with the same id before."""
        before = self._by_index.get(index)
        if before is not None and data.get("id") and before.data.get("id") == data["id"] and before.is_announced():
            before.data.update(data)
            return before
        block = self._by_index[index] = _Block(dict(data), index, self._calls)
        self._blocks.append(block)
        self._last = max(self._last, index)
        self._calls += data.get("type") == "tool_use"
        return block

    def _add_delta(self, index: int, delta: dict[str, Any]) -> list[Delta]:
        block = self._by_index.get(index)
        if block is None:
            kind = str(delta.get("type")).removesuffix("_delta")
            # A citation belongs to a text, which can follow it.
            self._start_block(index, {"type": "text" if kind == "citations" else kind})
            block = self._by_index[index]
        match delta.get("type"):
            case "text_delta":
                piece = self._append_text(block, "text", delta.get("text"))
                self._text.append(piece)
                return nonempty(Delta(piece, "text"))
            case "thinking_delta":
                return nonempty(Delta(self._append_text(block, "thinking", delta.get("thinking")), "thinking"))
            case "signature_delta":
                self._append_text(block, "signature", delta.get("signature"))
                return [Delta("", "thinking")]
            case "input_json_delta":
                return self._append_arguments(block, delta.get("partial_json") or "")
            case "citations_delta" if delta.get("citation") is not None:
                block.citations.append(delta["citation"])
        return []

    def _append_arguments(self, block: _Block, piece: object) -> list[Delta]:
        if not isinstance(piece, str):
            raise ProtocolError(f"partial_json: expected text, got {brief(piece)}")
        delta = _arguments_delta(block, block.arguments.add(piece))
        if delta.text and block.data.get("type") != "tool_use":
            # Arguments of a tool of the provider are not shown; an empty delta restarts the timeout of the stream.
            return [Delta("", "arguments")]
        return nonempty(delta)

    def _append_text(self, block: _Block, name: str, piece: object) -> str:
        if not isinstance(piece, str | None):
            raise ProtocolError(f"{name}: expected text, got {brief(piece)}")
        before = block.data.pop(name, None)
        if not isinstance(before, str):
            before = ""
        joiner = block.texts.setdefault(name, PieceJoiner())
        return joiner.append(before + (piece or ""))


def _arguments_delta(block: _Block, text: str) -> Delta:
    return Delta(text, "arguments", block.position, str(block.data.get("name") or ""))


def _object_in(text: str) -> Any:
    text = arguments_text(text)
    if is_json(text):
        return json.loads(text)
    # The arguments were cut.
    return {}


def _message(blocks: list[dict[str, Any]], owner: Owner) -> Message:
    content = [block for block in map(_sendable_block, blocks) if not _is_blank(block)]
    messages = messages_in([{"role": "assistant", "content": content}], owner)
    if not messages:
        return Message("assistant", "")
    return messages[0]


def _sendable_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without empty fields, except required fields."""
    content = sendable(block)
    if block.get("type") == "thinking":
        # Redacted thinking has a signature and no text.
        content.setdefault("thinking", "")
    elif block.get("type") == "tool_use":
        content["input"] = content.get("input") or {}
    return content


def _is_blank(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and not block.get("text")
