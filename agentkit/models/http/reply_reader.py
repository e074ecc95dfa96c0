"""`ReplyReader`: reader of chat completions.

A whole reply is read as a stream of one document, so each wire form needs one reader. The reader tolerates the
differences of servers, which omit an index, an id, a finish reason or the usage, and send arguments in pieces, at once,
or as an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.models.http.chat_call import ChatCall
from agentkit.models.http.chat_content import Content, content_of, joined_details, joined_parts, thought_text
from agentkit.models.http.distinct_calls import DistinctCalls
from agentkit.models.http.finish_reasons import check_reason
from agentkit.models.http.generated_images import image_at, with_images
from agentkit.models.http.piece_joiner import PieceJoiner
from agentkit.models.http.reader import (
    JsonObject,
    ProtocolError,
    Reader,
    check_cut,
    index_of,
    is_no_call,
    nonempty,
    object_of,
    sendable,
)
from agentkit.models.http.sent_usage import chat_usage, usage_in
from agentkit.models.model import NO_USAGE, Delta, Reply, Usage
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.parts import Image
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.thought_fields import DETAILS, THOUGHT_FIELDS, take_thought, thought_text_in
from agentkit_prompts.errors import brief

_MESSAGE_KEYS = frozenset(("role", "content", "refusal", "tool_calls", "function_call"))
"""Keys of a message that the reader uses; other keys are stored for the provider."""
_CALL_KEYS = frozenset(("index", "id", "type", "function"))
"""Keys of a tool call that the reader uses; other keys are stored for the provider."""
_WEB = "web"
"""Key in the opaque data for cited pages outside of the message, which no endpoint accepts in a message."""
_NO_ENDPOINT = Owner("openai")


class ReplyReader(Reader):
    """Reads chat completions.

    Unknown fields and the thinking of the model are stored for `owner`, the endpoint that sent them.
    """

    def __init__(self, owner: Owner = _NO_ENDPOINT) -> None:
        super().__init__()
        self._owner = owner
        self._unknown: JsonObject = {}
        """Unknown fields of the message, and its thinking."""
        self._thought_parts: tuple[list[JsonObject], list[JsonObject]] = ([], [])
        """Parts of the content with thinking, before and after the text."""
        self._usage: Usage = NO_USAGE
        self._joiner, self._thought = PieceJoiner(), PieceJoiner()
        self._image_parts: list[JsonObject] = []
        """Parts of the content with images."""
        self._refused = self._has_content = self._has_message = False
        self._has_deltas = False
        """True if a piece of the message arrived as `delta`."""
        self._pages: list[Any] = []
        """Web pages that the endpoint cited, as its latest event contains them."""
        self._calls: list[ChatCall] = []
        self._by_index: dict[int, ChatCall] = {}
        self._by_id: dict[str, ChatCall] = {}

    @property
    def usage(self) -> Usage:
        return self._usage

    def _add(self, data: JsonObject) -> list[Delta]:
        self._read_model(data)
        if usage := usage_in(data):
            self._usage = chat_usage(usage, self._usage)
        # Each event repeats the list; the results of the search also have titles.
        pages = data.get("search_results") or data.get("citations")
        if isinstance(pages, list) and pages:
            self._pages = pages
        choices = data.get("choices") or []
        if not isinstance(choices, list):
            raise ProtocolError(f"choices: expected a list, got {brief(choices)}")
        deltas: list[Delta] = []
        for item in choices:
            choice = object_of(item, "choices[0]")
            # Only one reply is read; a server that sends several ignores `n`.
            if index_of(choice.get("index")) in (0, None):
                deltas += self._add_choice(choice)
        return deltas

    def end(self) -> list[Delta]:
        deltas = self._add_text("", last=True)
        for call in self._calls:
            deltas += nonempty(Delta(call.arguments.rest(), "arguments", call.position, call.name))
        return deltas

    def reply(self, model: str) -> Reply:
        if not self.has_started:
            raise ProtocolError("the reply has no choices")
        self.end()
        self._calls = self._distinct_calls()
        seen: set[str] = set()
        calls = tuple(call.tool_call(position, seen, self._owner) for position, call in enumerate(self._calls))
        reason = self._reason(calls)
        # The token limit explains an empty reply, so `_reason` checks it first.
        if not calls and not self._text:
            self._check_empty(reason)
        if not calls and reason == "tool_calls":
            reason = "stop"
        message = self._message(calls)
        if images := self._images():
            message = with_images(message, images)
        return Reply(message, self._usage, clean(reason or "stop"), clean(self.model or model))

    def _distinct_calls(self) -> list[ChatCall]:
        """Return the calls; from a stream, without a call that is an earlier call again, at another index."""
        if not self._has_deltas:
            return self._calls
        calls = DistinctCalls()
        return [call for call in self._calls if not calls.repeats((call.id,), call.name, str(call.arguments))]

    def _reason(self, calls: tuple[ToolCall, ...]) -> str | None:
        """Return the finish reason; raises IncompleteCall if the reply was cut too early to be used."""
        reason = self.finish_reason
        last = None
        if self._calls:
            last = (self._calls[-1].name, str(self._calls[-1].arguments))
        check_cut(reason, last, is_empty=not calls and not self._text)
        # Several servers send "stop" with tool calls.
        if calls and reason in (None, "stop"):
            return "tool_calls"
        if self._refused and reason in (None, "stop"):
            return "refusal"
        return reason

    def _check_empty(self, reason: str | None) -> None:
        """Refuse a reply without text and calls, unless its content or its finish reason explains that."""
        if self._has_content or reason not in (None, "stop", "tool_calls") or self._images():
            return
        problem = "no message"
        if self._has_message:
            problem = "neither text nor tool calls"
            if thought_text_in(self._unknown) or any(self._thought_parts):
                problem += ", only thinking"
        raise ProtocolError(f"the reply has {problem} (finish_reason: {reason})")

    def _images(self) -> list[Image]:
        """Return the generated images: servers send them in the field `images`, or in the content."""
        field = self._unknown.get("images")
        entries = [*field] if isinstance(field, list) else []
        images = [image for entry in [*entries, *self._image_parts] if (image := image_at(entry)) is not None]
        # The last event of a stream can repeat the whole message.
        return list({image.source: image for image in images}.values())

    def _message(self, calls: tuple[ToolCall, ...]) -> Message:
        unknown = sendable(self._unknown)
        if isinstance(details := unknown.get(DETAILS), list):
            unknown[DETAILS] = joined_details(details)
        thinking = self._thinking()
        if (thought := take_thought(unknown, self._owner)) is not None:
            thinking = (thought, *thinking)
        return Message("assistant", self.text, calls, thinking=thinking, opaque=self._opaque(unknown))

    def _thinking(self) -> tuple[Thinking, ...]:
        """Return the thinking in the content, whose parts are sent back as they came."""
        thinking: list[Thinking] = []
        for at, parts in enumerate(self._thought_parts):
            for part in map(sendable, joined_parts(parts)):
                owner = self._owner.key(part)
                # Thinking after the text follows one part of the message.
                thinking.append(Thinking(thought_text(part), owner, at=at, opaque={owner: part}))
        return tuple(thinking)

    def _opaque(self, unknown: JsonObject) -> dict[str, JsonObject]:
        """Return unknown fields as opaque data, each field for its owner."""
        opaque: dict[str, JsonObject] = {}
        for key, value in unknown.items():
            opaque.setdefault(self._owner.key({key: value}), {})[key] = value
        if self._pages:
            opaque[_WEB] = sendable({"citations": self._pages})
        return opaque

    def _add_choice(self, choice: JsonObject) -> list[Delta]:
        self.has_started = True
        reason = choice.get("finish_reason")
        data = self._message_delta(choice)
        deltas: list[Delta] = []
        if data:
            message = object_of(data, "the message")
            add = self._add_message
            # The last piece of some servers repeats the message from its start.
            if self._repeats(message, choice):
                add = self._add_rest
            deltas = add(message)
            self._has_deltas = self._has_deltas or data is choice.get("delta")
        self.finish_reason = check_reason(reason) or self.finish_reason
        return deltas

    def _repeats(self, message: JsonObject, choice: JsonObject) -> bool:
        """True if a piece repeats the message from its start."""
        if not self._has_message:
            return False
        is_whole = message is choice.get("message")
        # The text of a last piece is the whole text only by repetition, unless the whole text is one piece.
        if not is_whole and (choice.get("finish_reason") is None or len(self._text) < 2):
            return False
        text = content_of(message.get("content")).text
        if not is_whole:
            return text == self.text
        # A whole message after pieces; servers that send pieces as `message` may also repeat the text so far.
        return self._has_deltas or (bool(self._text) and text.startswith(self.text))

    def _add_rest(self, message: JsonObject) -> list[Delta]:
        """Add the part of a repeated message that no piece contained."""
        content = content_of(message.get("content"))
        rest: JsonObject = {"content": _rest(self.text, content.text)}
        if isinstance(refusal := message.get("refusal"), str):
            rest["refusal"] = _rest(self.text, refusal)
        fields = {key: value for key, value in message.items() if key not in _MESSAGE_KEYS and value is not None}
        for key in THOUGHT_FIELDS:
            if isinstance(thought := fields.get(key), str):
                del fields[key]
                rest[key] = _rest(str(self._unknown.get(key) or ""), thought)
        self._unknown.update(fields)
        if not any(self._thought_parts):
            rest["content"] = [*content.thoughts, rest["content"]]
        deltas = self._add_message(rest)
        for position, call in enumerate(_calls_in(message)):
            deltas += self._add_whole_call(position, call)
        return deltas

    def _add_whole_call(self, position: int, data: JsonObject) -> list[Delta]:
        """Add a call of a repeated message, found by its id or its position."""
        function = object_of(data.get("function") or {}, "function")
        call = self._by_id.get(str(data.get("id")))
        if call is None and position < len(self._calls) and self._calls[position].name == function.get("name"):
            call = self._calls[position]
        if call is None:
            return self._add_call(data)
        piece = call.arguments.replace(function.get("arguments"))
        return nonempty(Delta(piece, "arguments", call.position, call.name))

    def _add_message(self, message: JsonObject) -> list[Delta]:
        """Add a piece of the message."""
        self._has_message = True
        _collect_unknown(message, _MESSAGE_KEYS, self._unknown)
        deltas = self._add_thought(message)
        content = message.get("content")
        if isinstance(content, str):
            self._has_content = True
            deltas += self._add_text(content)
        elif content is not None:
            deltas += self._add_parts(content_of(content))
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            deltas += [piece._replace(kind="refusal") for piece in self._add_text(refusal)]
        calls = _calls_in(message)
        # Old form of a reply with one call; gateways send both forms of a call.
        if not calls and message.get("function_call"):
            calls = [{"function": message["function_call"], "index": 0}]
        for call in calls:
            deltas += self._add_call(call)
        return deltas

    def _add_parts(self, content: Content) -> list[Delta]:
        """Add a content of parts, which may contain thinking."""
        self._has_content = self._has_content or content.has_text
        self._image_parts += content.images
        deltas: list[Delta] = []
        for part in content.thoughts:
            self._thought_parts[bool(self._text) or content.is_thought_last].append(part)
            deltas += nonempty(Delta(self._thought.cleaned(thought_text(part)), "thinking"))
        return deltas + self._add_text(content.text)

    def _add_thought(self, delta: JsonObject) -> list[Delta]:
        # Gateways repeat the text of the other fields in the details.
        if DETAILS in delta and any(self._unknown.get(key) for key in THOUGHT_FIELDS):
            delta = {key: delta.get(key) for key in THOUGHT_FIELDS}
        return nonempty(Delta(self._thought.cleaned(thought_text_in(delta)), "thinking"))

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
        index, id_, name = index_of(data.get("index")), data.get("id") or "", function.get("name") or ""
        if not isinstance(id_, str) or not isinstance(name, str):
            raise ProtocolError(f"tool_calls: expected a text id and name, got {brief(data)}")
        arguments = function.get("arguments")
        call = self._open_call(index, id_, name, arguments)
        # Gateways send all fields of a call in every piece.
        if call is None and is_no_call(id_, name, arguments):
            return []
        if call is None or call.is_over(id_, name, arguments):
            call = ChatCall(id_, len(self._calls))
            self._calls.append(call)
        _collect_unknown(data, _CALL_KEYS, call.unknown)
        if index is not None:
            self._by_index[index] = call
        call.add_names(id_, name)
        piece = call.arguments.add(arguments)
        if call.id:
            self._by_id.setdefault(call.id, call)
        return nonempty(Delta(piece, "arguments", call.position, call.name))

    def _open_call(self, index: int | None, id_: str, name: str, arguments: object) -> ChatCall | None:
        """Return the call that a piece may continue, found by its index or id, or the last call for a bare piece."""
        if index is not None:
            call = self._by_index.get(index)
            same_id = self._by_id.get(id_)
            # The calls of one document are listed together: an id that occurs twice belongs to separate calls.
            if call is None and same_id is not None and self._has_deltas and same_id.continues_at(name, arguments):
                return same_id
            return call
        call = self._by_id.get(id_)
        if call is None and self._calls and not name:
            return self._calls[-1]
        return call


def _calls_in(delta: JsonObject) -> list[JsonObject]:
    """Return the tool calls of a piece.

    Raises:
        ProtocolError: The calls are not a list of objects.
    """
    calls = delta.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ProtocolError(f"tool_calls: expected a list, got {brief(calls)}")
    return [object_of(call, "tool_calls") for call in calls if call is not None]


def _rest(before: str, whole: str) -> str:
    """Return the part of a repeated text that is new; empty if it does not repeat the text before."""
    if whole.startswith(before):
        return whole[len(before) :]
    return ""


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
