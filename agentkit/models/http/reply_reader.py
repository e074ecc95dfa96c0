"""`ReplyReader`: reader of chat completions.

A whole reply is read as a stream of one document, so each wire form needs one reader. The reader tolerates the
differences of servers, which omit an index, an id, a finish reason or the usage, and send arguments in pieces, at once,
or as an object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import uuid4

from agentkit.models.http.error_reply import ErrorReply
from agentkit.models.http.json_end import JsonEnd
from agentkit.models.http.piece_joiner import PieceJoiner, without_half
from agentkit.models.http.reader import (
    JsonObject,
    ProtocolError,
    Reader,
    brief,
    check_cut,
    count_of,
    nonempty,
    object_of,
    sendable,
)
from agentkit.models.model import Delta, Reply, Usage
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import REASONING, thought_in

__all__ = ["ReplyReader"]

_MESSAGE_KEYS = frozenset(("role", "content", "refusal", "tool_calls", "function_call"))
"""Keys of a message that the reader uses; other keys are stored for the provider."""
_CALL_KEYS = frozenset(("index", "id", "type", "function"))
"""Keys of a tool call that the reader uses; other keys are stored for the provider."""


class ReplyReader(Reader):
    """Reads chat completions.

    Unknown fields and the thinking of the model are stored for `provider`, the endpoint that sent them.
    """

    def __init__(self, provider: str = "openai") -> None:
        super().__init__()
        self._provider = provider
        self._unknown: JsonObject = {}
        """Unknown fields of the message, and its thinking."""
        self.usage = Usage()
        self._joiner, self._thought = PieceJoiner(), PieceJoiner()
        self._refused = self._has_content = self._has_message = False
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def _add(self, data: JsonObject) -> list[Delta]:
        self._read_model(data)
        if data.get("usage"):
            self.usage = _usage(object_of(data["usage"], "usage"))
        choices = data.get("choices") or []
        if not isinstance(choices, list):
            raise ProtocolError(f"choices: expected a list, got {brief(choices)}")
        deltas: list[Delta] = []
        for item in choices:
            choice = object_of(item, "choices[0]")
            # Only one reply is read; a server that sends several ignores `n`.
            if choice.get("index") in (0, None):
                deltas += self._add_choice(choice)
        return deltas

    def end(self) -> list[Delta]:
        return self._add_text("", last=True)

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("the reply has no choices")
        self.end()
        seen: set[str] = set()
        calls = tuple(call.tool_call(position, seen, self._provider) for position, call in enumerate(self._calls))
        reason = self._reason(calls)
        # The token limit explains an empty reply, so `_reason` checks it first.
        if not calls and not self._text:
            self._check_empty(reason)
        return Reply(self._message(calls), self.usage, clean(reason or "stop"), clean(self.model or model))

    def _reason(self, calls: tuple[ToolCall, ...]) -> str | None:
        """Return the finish reason; raises IncompleteCall if the reply was cut too early to be used."""
        reason = self.finish_reason
        if reason == "length":
            last = None
            if calls:
                last = (calls[-1].name, calls[-1].arguments)
            check_cut(last, is_empty=not calls and not self._text)
        # Several servers send "stop" with tool calls.
        if calls and reason in (None, "stop", "function_call"):
            return "tool_calls"
        if self._refused and reason in (None, "stop"):
            return "refusal"
        return reason

    def _check_empty(self, reason: str | None) -> None:
        """Refuse a reply without text and calls, unless its content or its finish reason explains that."""
        if self._has_content or reason not in (None, "stop", "tool_calls", "function_call"):
            return
        problem = "no message"
        if self._has_message:
            problem = "neither text nor tool calls"
            if thought_in(self._unknown):
                problem += ", only thinking"
        raise ProtocolError(f"the reply has {problem} (finish_reason: {reason})")

    def _message(self, calls: tuple[ToolCall, ...]) -> Message:
        unknown = sendable(self._unknown)
        thinking: tuple[Thinking, ...] = ()
        if (thought := thought_in(unknown)) is not None:
            key, text = thought
            del unknown[key]
            # Another key than the first must be sent back under its name.
            opaque = {}
            if key != REASONING[0]:
                opaque = {self._provider: {key: text}}
            thinking = (Thinking(text, self._provider, opaque=opaque),)
        return Message("assistant", self.text, calls, thinking=thinking, opaque=_opaque(self._provider, unknown))

    def _add_choice(self, choice: JsonObject) -> list[Delta]:
        self.has_started = True
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise ErrorReply("", "the endpoint failed during the reply (finish_reason: error)")
            self.finish_reason = reason
        delta = self._message_delta(choice)
        if not delta:
            return []
        self._has_message = True
        delta = object_of(delta, "the message")
        _collect_unknown(delta, _MESSAGE_KEYS, self._unknown)
        deltas = self._add_thought(delta)
        content = delta.get("content")
        self._has_content = self._has_content or content is not None
        deltas += self._add_text(_text_of(content))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            deltas += [piece._replace(kind="refusal") for piece in self._add_text(refusal)]
        return deltas + self._add_calls(delta)

    def _add_thought(self, delta: JsonObject) -> list[Delta]:
        for key in REASONING:
            if isinstance(thought := delta.get(key), str):
                return nonempty(Delta(self._thought.cleaned(thought), "thinking"))
        return []

    def _add_calls(self, delta: JsonObject) -> list[Delta]:
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ProtocolError(f"tool_calls: expected a list, got {brief(calls)}")
        deltas = [piece for call in calls for piece in self._add_call(object_of(call, "tool_calls"))]
        # Old form of a reply with one call.
        if delta.get("function_call"):
            deltas += self._add_call({"function": delta["function_call"], "index": 0})
        return deltas

    def _message_delta(self, choice: JsonObject) -> object:
        """Return the part of the message in a choice."""
        return choice.get("delta") or choice.get("message")

    def _visible(self, text: str, *, last: bool) -> str:
        """Return the text that may be emitted now; held-back text follows, at the latest with `last`."""
        return text

    def _add_text(self, text: str, *, last: bool = False) -> list[Delta]:
        text = self._visible(self._joiner.cleaned(text, last=last), last=last)
        if text:
            self._text.append(text)
        return nonempty(Delta(text))

    def _add_call(self, data: JsonObject) -> list[Delta]:
        function = object_of(data.get("function") or {}, "function")
        index, id_, name = data.get("index"), data.get("id") or "", function.get("name") or ""
        if not isinstance(id_, str) or not isinstance(name, str):
            raise ProtocolError(f"tool_calls: expected a text id and name, got {brief(data)}")
        arguments = function.get("arguments")
        call = self._open_call(index, id_, name)
        if call is None or call.is_over(id_, name, arguments):
            call = _Call(id_, len(self._calls))
            self._calls.append(call)
        _collect_unknown(data, _CALL_KEYS, call.unknown)
        if isinstance(index, int):
            self._by_index[index] = call
        piece = call.add(id_, name, arguments)
        if call.id:
            self._by_id.setdefault(call.id, call)
        return nonempty(Delta(piece, "arguments", call.position, call.name))

    def _open_call(self, index: object, id_: str, name: str) -> _Call | None:
        """Return the call that a piece may continue, found by its index or id, or the last call for a bare piece."""
        if isinstance(index, int):
            return self._by_index.get(index)
        call = self._by_id.get(id_)
        if call is None and self._calls and not name:
            return self._calls[-1]
        return call


class _Call:
    """A tool call while it is read."""

    __slots__ = ("_arguments", "_end", "_half", "_walked", "id", "name", "position", "unknown")

    def __init__(self, id_: str, position: int) -> None:
        self.id = id_
        self.name = ""
        self.unknown: JsonObject = {}
        """Unknown fields."""
        self.position = position
        self._arguments: list[str] = []
        self._half = ""
        self._end: JsonEnd | None = None
        self._walked = 0
        """Number of pieces that `_end` has read."""

    def is_over(self, id_: str, name: str, arguments: object) -> bool:
        """True if a piece starts another call: some servers send the index 0 with every call."""
        if not name or (id_ and id_ == self.id):
            return False
        # Two ids are two calls.
        if id_ and self.id:
            return True
        if not self._arguments or name != self.name:
            return bool(self._arguments)
        return bool(arguments) and self._is_complete()

    def _is_complete(self) -> bool:
        """True if the arguments so far are one JSON value; each piece is walked once."""
        end = self._end = self._end or JsonEnd()
        for piece in self._arguments[self._walked :]:
            end.add(piece)
        self._walked = len(self._arguments)
        return end.is_whole

    def add(self, id_: str, name: str, arguments: object) -> str:
        """Add a piece, and return the new text of the arguments."""
        self.id = self.id or id_
        # Some servers repeat the name in every piece, some send the name in pieces.
        if name != self.name:
            self.name += name
        if arguments is None or arguments == "":
            return ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        piece: str = arguments
        self._arguments.append(piece)
        piece, self._half = without_half(self._half + piece)
        return clean(piece)

    def tool_call(self, position: int, seen: set[str], provider: str) -> ToolCall:
        """Return the whole call; `seen` contains the ids of earlier calls."""
        if not self.name:
            raise ProtocolError(f"tool_calls[{position}] has no function name")
        id_ = clean(self.id)
        # Every call needs a unique id, because results are matched by id.
        if not id_ or id_ in seen:
            id_ = f"call_{uuid4().hex[:24]}"
        seen.add(id_)
        opaque = _opaque(provider, sendable(self.unknown))
        return ToolCall(id_, clean(self.name), clean("".join(self._arguments)) or "{}", opaque=opaque)


def _opaque(provider: str, data: JsonObject) -> JsonObject:
    if not data:
        return {}
    return {provider: data}


def _collect_unknown(data: Mapping[str, object], read_keys: frozenset[str], unknown: JsonObject) -> None:
    """Add the unknown fields of a piece to `unknown`: texts and lists are appended, other values are replaced."""
    for key, value in data.items():
        if key in read_keys or value is None:
            continue
        before = unknown.get(key)
        if isinstance(before, str) and isinstance(value, str):
            # Python appends in place, without a copy, to a text with one reference.
            unknown[key] = None
            before += value
            unknown[key] = before
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        elif isinstance(value, list):
            unknown[key] = [*value]
        else:
            unknown[key] = value


def _text_of(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ProtocolError(f"content: expected text, got {brief(content)}")
    texts: list[str] = []
    # Parts of other types are not text.
    for part in content:
        text = part
        if isinstance(part, dict):
            text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)


def _usage(data: JsonObject) -> Usage:
    details = data.get("prompt_tokens_details")
    cached = data.get("prompt_cache_hit_tokens")
    if isinstance(details, dict):
        cached = details.get("cached_tokens")
    return Usage(*map(count_of, (data.get("prompt_tokens"), data.get("completion_tokens"), cached)))
