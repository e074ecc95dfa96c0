"""Reads the replies of endpoints, whole or streamed, as servers really send them; here those of chat completions.

A whole reply is read like a stream of one piece, so there is one reader for each wire form. Servers differ in what they
leave out: an index, an id, a finish reason, the usage; arguments come in pieces, at once, or as an object.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import uuid4

from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.json_end import JsonEnd, is_json
from agentkit.models.model import Delta, Reply, Usage
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import REASONING, thought_in

__all__ = [
    "IncompleteCall",
    "PieceJoiner",
    "ProtocolError",
    "Reader",
    "ReplyReader",
    "brief",
    "check_cut",
    "count_of",
    "object_of",
    "sendable",
]

_Object: TypeAlias = dict[str, Any]

_MESSAGE_KEYS = frozenset(("role", "content", "refusal", "tool_calls", "function_call"))
_CALL_KEYS = frozenset(("index", "id", "type", "function"))
"""What is read; everything else of a reply is kept for the provider."""


class ProtocolError(ValueError):
    """What a server sent is no reply of its protocol."""


class IncompleteCall(Exception):
    """The reply was cut at its limit of tokens before it was of any use: inside a tool call, or while thinking."""


class Reader(ABC):
    """Puts a reply together from what a server sends.

    `add` takes each document (an event of a stream, or the whole reply) as decoded JSON and returns what is new in it,
    `end` returns what waited for more, `reply` what all of it amounts to.

    Raises:
        ProtocolError: What was sent is no reply.
        ErrorReply: What was sent is an error.
    """

    finish_reason: str | None = None
    """Why the reply ended, in our words; None while it goes on."""
    model = ""
    """Who answers, as the server names it."""
    has_started = False
    """Whether there is anything of a reply."""
    is_over = False
    """Whether nothing more can follow."""
    earlier_text = ""
    """The text of replies before, which this one continues."""

    def __init__(self) -> None:
        self._text: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join([self.earlier_text, *self._text])

    def add(self, document: object) -> list[Delta]:
        """Take a document in, and return the pieces that it adds."""
        if (error := error_in(document)) is not None:
            raise error
        return self._add(object_of(document, "the reply"))

    @abstractmethod
    def _add(self, data: _Object) -> list[Delta]:
        """Take a document in that is no error."""

    def _read_model(self, data: _Object) -> None:
        """Keep who answers, where the server names it."""
        if isinstance(model := data.get("model"), str) and model:
            self.model = model

    def end(self) -> list[Delta]:
        """Return the pieces that `add` held back."""
        return []

    @abstractmethod
    def reply(self, model: str) -> Reply:
        """Return the whole reply; `model` names it where the endpoint did not.

        Raises:
            ProtocolError: There is no reply in it.
            IncompleteCall: It was cut where half of it cannot be used.
        """


def _without_half(piece: str) -> tuple[str, str]:
    """Return a piece of text, and the half of a surrogate pair that it ends in."""
    if piece and "\ud800" <= piece[-1] <= "\udbff":
        return piece[:-1], piece[-1]
    return piece, ""


class PieceJoiner:
    """Joins pieces of text; a surrogate pair that the server cut in two waits for its other half."""

    __slots__ = ("_held", "pieces", "size")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.size = 0
        """Characters in the pieces that are kept."""
        self._held = ""

    def add(self, piece: str, *, last: bool = False) -> str:
        """Return what can be passed on."""
        piece, self._held = (self._held + piece, "") if last else _without_half(self._held + piece)
        return clean(piece)

    def keep(self, piece: str) -> str:
        """Return what can be passed on, and keep it."""
        piece = self.add(piece)
        if piece:
            self.pieces.append(piece)
            self.size += len(piece)
        return piece

    def __str__(self) -> str:
        return "".join(self.pieces) + clean(self._held)


class ReplyReader(Reader):
    """Reads chat completions.

    What it does not know is kept for `provider`, the endpoint that sent it, and so is what the model thought.
    """

    def __init__(self, provider: str = "openai") -> None:
        super().__init__()
        self._provider = provider
        self._kept: _Object = {}
        self.usage = Usage()
        self._joiner, self._thought = PieceJoiner(), PieceJoiner()
        self._refused = self._has_content = self._has_message = False
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def _add(self, data: _Object) -> list[Delta]:
        self._read_model(data)
        if data.get("usage"):
            self.usage = _usage(object_of(data["usage"], "usage"))
        choices = data.get("choices") or []
        if not isinstance(choices, list):
            raise ProtocolError(f"choices: expected a list, got {brief(choices)}")
        new: list[Delta] = []
        for item in choices:
            choice = object_of(item, "choices[0]")
            # One reply is read; a server that sends several ignores `n`.
            if choice.get("index") in (0, None):
                new += self._add_choice(choice)
        return new

    def end(self) -> list[Delta]:
        return self._add_text("", last=True)

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("the reply has no choices")
        self.end()
        seen: set[str] = set()
        calls = tuple(call.read(position, seen, self._provider) for position, call in enumerate(self._calls))
        reason = self.finish_reason
        if reason == "length":
            last = None
            if calls:
                last = (calls[-1].name, calls[-1].arguments)
            check_cut(last, is_empty=not calls and not self._text)
        if calls and reason in (None, "stop", "function_call"):
            # Several servers send "stop" with tool calls.
            reason = "tool_calls"
        elif self._refused and reason in (None, "stop"):
            reason = "refusal"
        # A limit of tokens explains an empty reply, so that was checked first.
        if not calls and not self._text:
            self._check_empty(reason)
        return Reply(self._message(calls), self.usage, clean(reason or "stop"), clean(self.model or model))

    def _check_empty(self, reason: str | None) -> None:
        """Refuse a reply without text and calls, unless the server says that it is empty."""
        if reason in (None, "stop", "tool_calls", "function_call") and not self._has_content:
            thought = ""
            if thought_in(self._kept):
                thought = ", only what the model thought"
            what = "no message"
            if self._has_message:
                what = f"neither text nor tool calls{thought}"
            raise ProtocolError(f"the reply has {what} (finish_reason: {reason})")

    def _message(self, calls: tuple[ToolCall, ...]) -> Message:
        kept = sendable(self._kept)
        if (thought := thought_in(kept)) is None:
            return Message("assistant", self.text, calls, opaque={self._provider: kept} if kept else {})
        key, text = thought
        del kept[key]
        own = {}
        if key != REASONING[0]:
            own = {self._provider: {key: text}}
        thinking = (Thinking(text, self._provider, opaque=own),)
        return Message("assistant", self.text, calls, thinking=thinking, opaque={self._provider: kept} if kept else {})

    def _add_choice(self, choice: _Object) -> list[Delta]:
        self.has_started = True
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise ErrorReply("", "the endpoint failed while it answered (finish_reason: error)")
            self.finish_reason = reason
        delta = self._message_delta(choice)
        if not delta:
            return []
        self._has_message = True
        delta = object_of(delta, "the message")
        _keep(delta, _MESSAGE_KEYS, self._kept)
        new = self._add_thought(delta)
        content = delta.get("content")
        self._has_content = self._has_content or content is not None
        new += self._add_text(_text_of(content))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            new += [piece._replace(kind="refusal") for piece in self._add_text(refusal)]
        return new + self._add_calls(delta)

    def _add_thought(self, delta: _Object) -> list[Delta]:
        for key in REASONING:
            if isinstance(thought := delta.get(key), str):
                piece = self._thought.add(thought)
                return [Delta(piece, "thinking")] if piece else []
        return []

    def _add_calls(self, delta: _Object) -> list[Delta]:
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ProtocolError(f"tool_calls: expected a list, got {brief(calls)}")
        new = [piece for call in calls for piece in self._add_call(object_of(call, "tool_calls"))]
        # The form of a call from before a reply could have several.
        if delta.get("function_call"):
            new += self._add_call({"function": delta["function_call"], "index": 0})
        return new

    def _message_delta(self, choice: _Object) -> object:
        """Return what a choice adds to the message."""
        return choice.get("delta") or choice.get("message")

    def _visible(self, text: str, *, last: bool) -> str:
        """Return what of the text is to be heard; what it holds back comes in a later call, at the `last` one."""
        return text

    def _add_text(self, text: str, *, last: bool = False) -> list[Delta]:
        text = self._visible(self._joiner.add(text, last=last), last=last)
        if text:
            self._text.append(text)
        return [Delta(text)] if text else []

    def _add_call(self, data: _Object) -> list[Delta]:
        function = object_of(data.get("function") or {}, "function")
        index, id_, name = data.get("index"), data.get("id") or "", function.get("name") or ""
        if not isinstance(id_, str) or not isinstance(name, str):
            raise ProtocolError(f"tool_calls: expected a text id and name, got {brief(data)}")
        if isinstance(index, int):
            call = self._by_index.get(index)
        else:
            call = self._by_id.get(id_)
            if call is None and self._calls and not name:
                call = self._calls[-1]
        if call is None or call.is_over(id_, name, function.get("arguments")):
            call = _Call(id_, len(self._calls))
            self._calls.append(call)
        _keep(data, _CALL_KEYS, call.kept)
        if isinstance(index, int):
            self._by_index[index] = call
        piece = call.add(id_, name, function.get("arguments"))
        if call.id:
            self._by_id.setdefault(call.id, call)
        return [Delta(piece, "arguments", call.position, call.name)] if piece else []


class _Call:
    __slots__ = ("_arguments", "_end", "_held", "_walked", "id", "kept", "name", "position")

    def __init__(self, id_: str, position: int) -> None:
        self.id = id_
        self.name = ""
        self.kept: _Object = {}
        self.position = position
        self._arguments: list[str] = []
        self._held = ""
        self._end: JsonEnd | None = None
        self._walked = 0

    def is_over(self, id_: str, name: str, arguments: object) -> bool:
        """Whether this piece begins another call, for servers that give every call the index 0."""
        if not name or (id_ and id_ == self.id):
            return False
        # Two ids are two calls.
        if id_ and self.id:
            return True
        if not self._arguments or name != self.name:
            return bool(self._arguments)
        return bool(arguments) and self._is_complete()

    def _is_complete(self) -> bool:
        """Whether the arguments so far are whole; each piece is looked at once."""
        end = self._end = self._end or JsonEnd()
        for piece in self._arguments[self._walked :]:
            end.add(piece)
        self._walked = len(self._arguments)
        return end.is_whole

    def add(self, id_: str, name: str, arguments: object) -> str:
        """Take a piece in, and return what of the arguments is new."""
        self.id = self.id or id_
        # Some servers repeat the name in every piece, others send it in pieces.
        if name != self.name:
            self.name += name
        if arguments is None or arguments == "":
            return ""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        piece: str = arguments
        self._arguments.append(piece)
        piece, self._held = _without_half(self._held + piece)
        return clean(piece)

    def read(self, position: int, seen: set[str], provider: str) -> ToolCall:
        if not self.name:
            raise ProtocolError(f"tool_calls[{position}] has no function name")
        id_ = clean(self.id)
        # Every call needs a unique id, because results are matched by it.
        if not id_ or id_ in seen:
            id_ = f"call_{uuid4().hex[:24]}"
        seen.add(id_)
        kept = sendable(self.kept)
        opaque = {provider: kept} if kept else {}
        return ToolCall(id_, clean(self.name), clean("".join(self._arguments)) or "{}", opaque=opaque)


def sendable(kept: _Object) -> _Object:
    """Return what was kept, without what is empty, as data that can be sent and stored."""
    try:
        read: _Object = kept
        if kept:
            read = json.loads(clean(json.dumps(kept, ensure_ascii=False)))
        # What is kept has to be storable: this raises if it nests too deeply.
        freeze(read)
    except (RecursionError, ValueError):
        raise ProtocolError("the reply nests too deeply") from None
    return {key: value for key, value in read.items() if value not in ("", [], {})}


def check_cut(call: tuple[str, str] | None, *, is_empty: bool) -> None:
    """Refuse a reply that reached its limit of tokens too early to be used.

    Args:
        call: The name and the arguments of the tool call in which it ends; None where it ends in something else.
        is_empty: Whether there are neither text nor calls.

    Raises:
        IncompleteCall: It was cut inside the arguments, or before anything that can be read.
    """
    if call is not None and not is_json(call[1] or "{}"):
        raise IncompleteCall(f"inside the arguments of the tool {call[0]!r}")
    if is_empty:
        raise IncompleteCall("before the model wrote anything that can be read, such as while it was thinking")


def _keep(data: Mapping[str, Any], known: frozenset[str], kept: _Object) -> None:
    """Add what is unknown in a piece of a reply to what came before: text and lists grow, other values replace."""
    for key, value in data.items():
        if key in known or value is None:
            continue
        before = kept.get(key)
        if isinstance(before, str) and isinstance(value, str):
            # Python appends in place, without a copy, to text that nothing else refers to.
            kept[key] = None
            before += value
            kept[key] = before
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        else:
            kept[key] = [*value] if isinstance(value, list) else value


def object_of(value: object, what: str) -> _Object:
    """Return a value that has to be an object.

    Raises:
        ProtocolError: It is something else.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"{what}: expected a JSON object, got {brief(value)}")
    return value


def _text_of(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    # Parts of other kinds are kept with the rest of the message.
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(text for text in texts if isinstance(text, str))
    raise ProtocolError(f"content: expected text, got {brief(content)}")


def _usage(data: _Object) -> Usage:
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else data.get("prompt_cache_hit_tokens")
    return Usage(*map(count_of, (data.get("prompt_tokens"), data.get("completion_tokens"), cached)))


def count_of(value: object) -> int:
    """Return a number of tokens; 0 for anything else."""
    if isinstance(value, int | float) and 0 <= value < 1 << 63:
        return int(value)
    return 0


def brief(value: object) -> str:
    """Return a value as it is shown in a message."""
    text = repr(value)
    if len(text) <= 200:
        return text
    return f"{text[:200]}..."
