"""Reads the replies of the chat-completions protocol, whole or streamed, as servers really send them.

A whole reply is read like a stream of one piece, so there is one reader. Servers differ in what they leave out: an
index, an id, a finish reason, the usage; arguments come in pieces, at once, or as an object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias
from uuid import uuid4

from agentkit.models.json_end import JsonEnd
from agentkit.models.model import Reply, Usage
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.messages import Message, Thinking, ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.read_messages import REASONING, thought_in

__all__ = ["ProtocolError", "ReplyReader"]

_Object: TypeAlias = dict[str, object]

_MESSAGE_KEYS = frozenset(("role", "content", "refusal", "tool_calls", "function_call"))
_CALL_KEYS = frozenset(("index", "id", "type", "function"))
"""What is read; everything else of a reply is kept for the provider."""


class ProtocolError(ValueError):
    """What a server sent is not a chat completion."""


class ReplyReader:
    """Puts a reply together from what a server sends.

    `add` takes each chunk (or the one whole completion) as decoded JSON and returns the text that is new in it, `end`
    returns text that waited for more, `reply` what all of it amounts to.

    What it does not know is kept for `provider`, the endpoint that sent it, and so is what the model thought.

    Raises:
        ProtocolError: What was sent is not a chat completion.
    """

    def __init__(self, provider: str = "openai") -> None:
        self._provider = provider
        self._kept: _Object = {}
        self.finish_reason: str | None = None
        self.model = ""
        self._usage = Usage()
        self._text: list[str] = []
        self._held = ""
        self._refused = False
        self.started = False
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def add(self, chunk: object) -> str:
        """Take one chunk in, and return the text that it adds."""
        data = _object(chunk, "the reply")
        if data.get("error") and not data.get("choices"):
            raise ProtocolError(f"the endpoint answered with an error: {_brief(data['error'])}")
        if isinstance(model := data.get("model"), str) and model:
            self.model = model
        if data.get("usage"):
            self._usage = _usage(_object(data["usage"], "usage"))
        choices = data.get("choices") or []
        if not isinstance(choices, list):
            raise ProtocolError(f"choices: expected a list, got {_brief(choices)}")
        new = ""
        for item in choices:
            choice = _object(item, "choices[0]")
            if choice.get("index") in (0, None):
                new += self._choose(choice)
        return new

    def end(self) -> str:
        """Return the text that `add` held back."""
        return self._take_text("", last=True)

    def reply(self, model: str) -> Reply:
        """Return the whole reply; `model` names it where the endpoint did not."""
        if not self.started:
            raise ProtocolError("the reply has no choices")
        self.end()
        seen: set[str] = set()
        calls = tuple(call.read(position, seen, self._provider) for position, call in enumerate(self._calls))
        reason = self.finish_reason
        if calls and reason in (None, "stop", "function_call"):
            reason = "tool_calls"  # several servers say "stop" here
        elif self._refused and reason in (None, "stop"):
            reason = "refusal"
        return Reply(self._message(calls), self._usage, reason or "stop", self.model or model)

    def _message(self, calls: tuple[ToolCall, ...]) -> Message:
        kept = _sendable(self._kept)
        if (thought := thought_in(kept)) is None:
            return Message("assistant", self.text, calls, opaque={self._provider: kept} if kept else {})
        key, text = thought
        del kept[key]
        own = {} if key == REASONING[0] else {self._provider: {key: text}}
        thinking = (Thinking(text, self._provider, opaque=own),)
        return Message("assistant", self.text, calls, thinking=thinking, opaque={self._provider: kept} if kept else {})

    def _choose(self, choice: _Object) -> str:
        self.started = True
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason
        delta = self._delta(choice)
        if not delta:
            return ""
        delta = _object(delta, "the message")
        _keep(delta, _MESSAGE_KEYS, self._kept)
        text = _text_of(delta.get("content"))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            text += refusal
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise ProtocolError(f"tool_calls: expected a list, got {_brief(calls)}")
        for call in calls:
            self._add_call(_object(call, "tool_calls"))
        return self._take_text(text)

    def _delta(self, choice: _Object) -> object:
        """Return what a choice adds to the message."""
        return choice.get("delta") or choice.get("message")

    def _spoken(self, text: str, *, last: bool) -> str:
        """Return what of the text is to be heard; what it holds back comes in a later call, at the `last` one."""
        return text

    def _take_text(self, text: str, *, last: bool = False) -> str:
        """Keep `text`; a surrogate pair cut in two by the server waits for its other half."""
        text = self._held + text
        self._held = ""
        if not last and text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        text = self._spoken(clean(text), last=last)
        if text:
            self._text.append(text)
        return text

    def _add_call(self, data: _Object) -> None:
        function = _object(data.get("function") or {}, "function")
        index, id_, name = data.get("index"), data.get("id") or "", function.get("name") or ""
        if not isinstance(id_, str) or not isinstance(name, str):
            raise ProtocolError(f"tool_calls: expected a text id and name, got {_brief(data)}")
        if isinstance(index, int):
            call = self._by_index.get(index)
        else:
            call = self._by_id.get(id_)
            if call is None and self._calls and not name:
                call = self._calls[-1]
        if call is None or call.is_over(id_, name, function.get("arguments")):
            call = _Call(id_)
            self._calls.append(call)
        _keep(data, _CALL_KEYS, call.kept)
        if isinstance(index, int):
            self._by_index[index] = call
        call.add(id_, name, function.get("arguments"))
        if call.id:
            self._by_id.setdefault(call.id, call)


class _Call:
    __slots__ = ("_arguments", "_end", "_walked", "id", "kept", "name")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.name = ""
        self.kept: _Object = {}
        self._arguments: list[str] = []
        self._end = JsonEnd()
        self._walked = 0

    def is_over(self, id_: str, name: str, arguments: object) -> bool:
        """Whether this piece begins another call, for servers that give every call the index 0."""
        if not name or (id_ and id_ == self.id):
            return False
        if id_ and self.id:
            return True
        return bool(self._arguments) and (name != self.name or bool(arguments and self._is_complete()))

    def _is_complete(self) -> bool:
        for piece in self._arguments[self._walked :]:
            self._end.add(piece)
        self._walked = len(self._arguments)
        return self._end.is_whole

    def add(self, id_: str, name: str, arguments: object) -> None:
        self.id = self.id or id_
        if name != self.name:  # some servers repeat the name in every piece, others send it in pieces
            self.name += name
        if isinstance(arguments, str):
            if arguments:
                self._arguments.append(arguments)
        elif arguments is not None:
            self._arguments.append(json.dumps(arguments, ensure_ascii=False))

    def read(self, position: int, seen: set[str], provider: str) -> ToolCall:
        if not self.name:
            raise ProtocolError(f"tool_calls[{position}] has no function name")
        id_ = clean(self.id)
        if not id_ or id_ in seen:  # every call needs an id of its own: results are matched by it
            id_ = f"call_{uuid4().hex[:24]}"
        seen.add(id_)
        kept = _sendable(self.kept)
        opaque = {provider: kept} if kept else {}
        return ToolCall(id_, clean(self.name), clean("".join(self._arguments)) or "{}", opaque=opaque)


def _sendable(kept: _Object) -> _Object:
    """Return what was kept, without what is empty, as data that can be sent and stored."""
    try:
        read: _Object = json.loads(clean(json.dumps(kept, ensure_ascii=False))) if kept else kept
        freeze(read)
    except RecursionError:
        raise ProtocolError("the reply nests too deeply") from None
    return {key: value for key, value in read.items() if value not in ("", [], {})}


def _keep(data: Mapping[str, object], known: frozenset[str], kept: _Object) -> None:
    """Add what is unknown in a piece of a reply to what came before: text and lists grow, other values replace."""
    for key, value in data.items():
        if key in known or value is None:
            continue
        before = kept.get(key)
        if isinstance(before, str) and isinstance(value, str):
            kept[key] = None  # text that nothing else refers to grows in its place
            before += value
            kept[key] = before
        elif isinstance(before, list) and isinstance(value, list):
            before += value
        else:
            kept[key] = [*value] if isinstance(value, list) else value


def _object(value: object, what: str) -> _Object:
    if not isinstance(value, dict):
        raise ProtocolError(f"{what}: expected a JSON object, got {_brief(value)}")
    return value


def _text_of(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):  # content parts, of which only text is ours to read
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(text for text in texts if isinstance(text, str))
    raise ProtocolError(f"content: expected text, got {_brief(content)}")


def _usage(data: _Object) -> Usage:
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(*(_count(value) for value in (data.get("prompt_tokens"), data.get("completion_tokens"), cached)))


def _count(value: object) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 63 else 0


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
