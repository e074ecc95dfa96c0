"""`ChatCall`: a tool call of a chat completion while it is read."""

from __future__ import annotations

from uuid import uuid4

from agentkit.models.http.call_arguments import CallArguments, arguments_text
from agentkit.models.http.reader import JsonObject, ProtocolError, sendable
from agentkit_prompts.context.messages import ToolCall
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner


class ChatCall:
    """A tool call while it is read."""

    __slots__ = ("arguments", "id", "name", "position", "unknown")

    def __init__(self, id_: str, position: int) -> None:
        self.id = id_
        self.name = ""
        self.unknown: JsonObject = {}
        """Unknown fields."""
        self.position = position
        self.arguments = CallArguments()

    def is_over(self, id_: str, name: str, arguments: object) -> bool:
        """True if a piece starts another call: some servers send the index 0 with every call."""
        if not name or (id_ and id_ == self.id):
            return False
        # Two ids are two calls.
        if id_ and self.id:
            return True
        if not self.arguments or name != self.name:
            return bool(self.arguments)
        return bool(arguments) and self.arguments.is_complete

    def continues_at(self, name: str, arguments: object) -> bool:
        """True if a piece with the id of this call and another index continues this call, or repeats its arguments.

        Some servers count pieces, or send a call again at the end. Other servers have one id for all calls.
        """
        if not arguments or name not in ("", self.name):
            return False
        return not self.arguments.is_complete or self.arguments.equal(arguments)

    def add_names(self, id_: str, name: str) -> None:
        """Add the id and the name of a piece."""
        self.id = self.id or id_
        # Some servers repeat the name in every piece, some send the name in pieces.
        if name != self.name:
            self.name += name

    def tool_call(self, position: int, seen: set[str], owner: Owner) -> ToolCall:
        """Return the whole call; `seen` contains the ids of earlier calls.

        Raises:
            ProtocolError: The call has no name.
        """
        if not self.name:
            raise ProtocolError(f"tool_calls[{position}] has no function name")
        id_ = clean(self.id)
        # Every call needs a unique id, because results are matched by id.
        if not id_ or id_ in seen:
            id_ = f"call_{uuid4().hex[:24]}"
        seen.add(id_)
        opaque = {}
        if unknown := sendable(self.unknown):
            opaque = {owner.key(unknown): unknown}
        return ToolCall(id_, clean(self.name), arguments_text(str(self.arguments)) or "{}", opaque=opaque)
