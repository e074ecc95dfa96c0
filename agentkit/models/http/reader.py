"""`Reader`, the base class of readers of replies, and checks of received data."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from typing import Any, TypeAlias

from agentkit.models.http.call_arguments import is_half
from agentkit.models.http.error_reply import error_in
from agentkit.models.http.json_end import is_json
from agentkit.models.model import NO_USAGE, Delta, Reply, Usage
from agentkit_prompts.context.frozen import freeze
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.errors import brief

JsonObject: TypeAlias = dict[str, Any]


class ProtocolError(ValueError):
    """A document of a server that does not follow the protocol.

    Attributes:
        is_event: True for an event of a stream, after which the rest of the reply is lost.
    """

    is_event = False

    def in_event(self, number: int, event: object = None) -> ProtocolError:
        """Return the error with the number and the type of the invalid event of a stream."""
        kind = ""
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            kind = f" ({event['type'][:60]})"
        error = ProtocolError(f"event {number}{kind}: {self}")
        error.is_event = True
        return error


class IncompleteCall(Exception):
    """A reply that was cut inside a tool call or while the model was thinking.

    Attributes:
        reason: Finish reason of the reply.
    """

    def __init__(self, place: str, reason: str | None = "length") -> None:
        super().__init__(place)
        self.reason = reason


class Reader(ABC):
    """Builds a reply from the documents of a server.

    `add` reads a document (an event of a stream, or the whole reply) as decoded JSON and returns its deltas, `end`
    returns the remaining deltas, and `reply` returns the whole reply.

    Raises:
        ProtocolError: The document does not follow the protocol.
        ErrorReply: The document is an error.
    """

    finish_reason: str | None = None
    """Finish reason, one of `FinishReason` if it is known; None before the reply has ended."""
    model = ""
    """Name of the model, as the server sent it."""
    has_started = False
    """True if a part of the reply has arrived."""
    is_over = False
    """True if no further part of the reply can follow."""
    earlier_text = ""
    """Text of the earlier replies that this reply continues."""

    def __init__(self) -> None:
        self._text: list[str] = []

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join([self.earlier_text, *self._text])

    def add(self, document: object) -> list[Delta]:
        """Read a document, and return its deltas."""
        if (error := error_in(document)) is not None:
            raise error
        return self._add(object_of(document, "the reply"))

    @property
    def usage(self) -> Usage:
        """Tokens of the reply so far."""
        return NO_USAGE

    @abstractmethod
    def _add(self, data: JsonObject) -> list[Delta]:
        """Read a document that is not an error."""

    def _read_model(self, data: JsonObject) -> None:
        """Store the name of the model if the document contains it."""
        if isinstance(model := data.get("model"), str) and model:
            self.model = model

    def end(self) -> list[Delta]:
        """Return the deltas that `add` held back."""
        return []

    @abstractmethod
    def reply(self, model: str) -> Reply:
        """Return the whole reply; `model` is its model if the endpoint sent no name.

        Raises:
            ProtocolError: The documents contain no reply.
            IncompleteCall: The reply was cut inside a tool call or while the model was thinking.
        """


def nonempty(delta: Delta) -> list[Delta]:
    """Return a delta in a list, or an empty list if the delta has no text."""
    if delta.text:
        return [delta]
    return []


_INDEX = re.compile("[0-9]{1,9}")
_WHOLE = ("stop", "tool_calls", "refusal")
"""Finish reasons of a reply that the model ended."""


def check_cut(reason: str | None, call: tuple[str, str] | None, *, is_empty: bool) -> None:
    """Refuse a reply that ended too early to be used.

    Args:
        reason: Finish reason of the reply.
        call: Name and arguments of the tool call at the end of the reply; None if the reply does not end in a call.
        is_empty: True if the reply has neither text nor tool calls.

    Raises:
        IncompleteCall: The reply was cut inside the arguments, or at its token limit before any text.
    """
    if call is not None and _is_cut(reason, call[1]):
        raise IncompleteCall(f"inside the arguments of the tool {call[0]!r}", reason)
    if is_empty and reason == "length":
        raise IncompleteCall("before the model wrote any text, such as while it was thinking")


def _is_cut(reason: str | None, arguments: str) -> bool:
    """True if arguments are incomplete, so that they must not be read as wrong arguments."""
    # Servers send the reason of a complete reply with half a call, too.
    if reason in _WHOLE:
        return is_half(arguments)
    if reason == "length":
        return not is_json(arguments)
    return not is_json(arguments or "{}")


def is_no_call(id_: object, name: object, arguments: object) -> bool:
    """True if a tool call has no id, name and arguments: gateways fill all fields of a reply without calls."""
    if isinstance(arguments, str):
        arguments = arguments.strip()
    return not id_ and not name and (not arguments or arguments in ("{}", "[]", "null"))


def sendable(data: JsonObject) -> JsonObject:
    """Return received data without empty values, as data that can be sent and stored."""
    try:
        valid: JsonObject = data
        if data:
            valid = json.loads(clean(json.dumps(data, ensure_ascii=False)))
        # Raises if the data nests too deeply to be stored.
        freeze(valid)
    except (RecursionError, ValueError):
        raise ProtocolError("the reply nests too deeply") from None
    return {key: value for key, value in valid.items() if value not in ("", [], {})}


def object_of(value: object, place: str) -> JsonObject:
    """Return a value that must be a JSON object.

    Raises:
        ProtocolError: The value is not an object.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"{place}: expected a JSON object, got {brief(value)}")
    return value


def count_of(value: object) -> int:
    """Return a number of tokens; 0 for any other value."""
    if isinstance(value, int | float) and 0 <= value < 1 << 63:
        return int(value)
    return 0


def index_of(value: object) -> int | None:
    """Return an index, which some servers send as text or as a float; None for any other value."""
    if isinstance(value, str) and _INDEX.fullmatch(value):
        return int(value)
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return None
