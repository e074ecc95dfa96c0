"""Tools of clients: a run finishes with their calls, and the client sends the results in the next request."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentkit.agent.agent import Agent
from agentkit.errors import Paused
from agentkit.run.journal.accepted_replies import last_reply
from agentkit.run.parts.decisions import Decision, Denied
from agentkit.server.server_errors import BadRequest
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_tools import Tool

_NO_APPROVER = (
    "the call needs the approval of a person, and this endpoint has no approval: start the run with POST /runs instead"
)
_MAX_CHARACTERS = 64_000_000
"""Maximum characters of the stored replies of all clients; a single larger reply is stored."""


class ClientTool(NamedTuple):
    """Declaration of a tool by a client."""

    name: str
    description: str
    parameters: dict[str, Any] | None


def with_client_tools(agent: Agent[Any, Any], declared: Sequence[ClientTool]) -> list[Any]:
    """Return the tools of an agent and the declared tools of a client.

    Raises:
        BadRequest: A tool of the agent or of the client has the same name.
        ToolDefinitionError: A schema is invalid.
    """
    source: Any = agent.definition.tools.argument
    if not isinstance(source, list | tuple):
        source = [source]
    tools = list(source)
    names = set(agent.tools)
    for index, tool in enumerate(declared):
        if tool.name in names:
            raise BadRequest(
                f"tools[{index}]: duplicate name {tool.name!r:.80}: the agent or an earlier entry has this tool",
                param=f"tools[{index}]",
                code="duplicate_tool",
            )
        names.add(tool.name)
        tools.append(
            Tool.from_json_schema(
                tool.name,
                tool.description,
                tool.parameters,
                _unreachable,
                trust="untrusted",
                approval="always",
                timeout=None,
            )
        )
    return tools


def _unreachable(**_: Any) -> str:
    # Every call of a client's tool pauses the run at its approval.
    raise AssertionError("a client tool was called on the server")


def pause_at_client_calls(names: Iterable[str]) -> Any:
    """Return a function that pauses the run at calls of client tools and denies all other calls."""
    client_tools = frozenset(names)

    def decide(call: ToolCall) -> Decision:
        if call.name in client_tools:
            raise Paused([call])
        return Denied(_NO_APPROVER)

    return decide


def reply_with_client_calls(paused: Paused, names: Iterable[str]) -> Message:
    """Return the last reply of a paused run with only the calls of client tools.

    Calls of the agent's tools in the same reply did not run: the model repeats them once it has the results of the
    client.
    """
    client_tools = frozenset(names)
    message = last_reply(paused.journal)
    return replace(message, tool_calls=tuple([call for call in message.tool_calls if call.name in client_tools]))


def with_unique_ids(message: Message) -> Message:
    """Return a message whose tool calls have unique ids."""
    # Some providers count the calls of each reply from 0, so their ids repeat.
    calls = [replace(call, id=f"call_{os.urandom(12).hex()}") for call in message.tool_calls]
    return replace(message, tool_calls=tuple(calls))


class HeldReplies:
    """Replies with calls of client tools, and the messages before them, until the limits drop them.

    The client receives one message. Results of the agent's tools, and fields that the provider requires with the calls,
    stay here. If they are lost, for example after a restart, the run continues with the messages of the client.

    Args:
        limit: Maximum number of replies. The tenant with the most replies, or with the most text, loses its oldest
            reply first, so that no tenant drops the replies of another tenant.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._characters: Counter[str] = Counter()
        """Characters by tenant."""
        self._replies: dict[str, OrderedDict[tuple[tuple[str, ...], str], tuple[Message, ...]]] = {}
        """Messages by tenant, and by the owner and the id of the first call."""

    def add(self, owner: tuple[str, ...], earlier_messages: Sequence[Message], reply: Message) -> None:
        """Store the messages of a run.

        Args:
            owner: Tenant, user and agent, which must match to read the messages.
            earlier_messages: The messages between the input and the reply.
            reply: The reply with the calls.
        """
        messages = (*earlier_messages, reply)
        self._replies.setdefault(owner[0], OrderedDict())[owner, reply.tool_calls[0].id] = messages
        self._characters[owner[0]] += _characters(messages)
        while (tenant := self._full_tenant()) is not None:
            replies = self._replies[tenant]
            _, dropped = replies.popitem(last=False)
            self._characters[tenant] -= _characters(dropped)
            if not replies:
                del self._replies[tenant], self._characters[tenant]

    def _full_tenant(self) -> str | None:
        """Return the tenant that loses a reply; None within the limits."""
        count = sum(map(len, self._replies.values()))
        if count > self._limit:
            return max(self._replies, key=lambda tenant: len(self._replies[tenant]))
        # Text and not the count alone limits the memory: a reply can contain large results.
        if self._characters.total() > _MAX_CHARACTERS and count > 1:
            return max(self._replies, key=self._characters.__getitem__)
        return None

    def restore(self, owner: tuple[str, ...], messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages of a client, with each held reply replaced by its stored messages."""
        restored: list[Message] = []
        for message in messages:
            restored += self._stored(owner, message) or (message,)
        return tuple(restored)

    def _stored(self, owner: tuple[str, ...], message: Message) -> tuple[Message, ...]:
        if not message.tool_calls:
            return ()
        replies = self._replies.get(owner[0])
        if replies is None:
            return ()
        stored = replies.get((owner, message.tool_calls[0].id))
        if stored is None:
            return ()
        # A client may drop calls from a reply; then the message of the client is used.
        if [call.id for call in stored[-1].tool_calls] != [call.id for call in message.tool_calls]:
            return ()
        return stored


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(message.text) + sum(len(call.arguments) for call in message.tool_calls) for message in messages)
