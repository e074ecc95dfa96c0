"""Tools of the client: a run ends with calls of them, and the client sends what they returned."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentkit.agent.agent import Agent
from agentkit.errors import Paused
from agentkit.run.parts.decisions import Decision, Denied
from agentkit.server.server_errors import BadRequest
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_tools import Tool

__all__ = ["ClientTool", "HeldReplies", "approver", "calls_of", "own_ids", "with_client_tools"]

_NOT_HERE = (
    "it needs the approval of a person, and nobody can approve it here: a run that is started with POST /runs waits "
    "for one"
)


_MAX_CHARACTERS = 64_000_000
"""Text that is held of all clients together."""


class ClientTool(NamedTuple):
    """A tool that the client declares."""

    name: str
    description: str
    parameters: dict[str, Any] | None


def with_client_tools(agent: Agent[Any, Any], declared: Sequence[ClientTool]) -> list[Any]:
    """Return the tools of an agent with those of a client.

    Raises:
        BadRequest: The agent has a tool of that name, or two have one name.
        ToolDefinitionError: A schema is invalid.
    """
    given = agent.definition.tools.given
    own: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    taken = set(agent.tools)
    for at, one in enumerate(declared):
        if one.name in taken:
            raise BadRequest(
                f"tools[{at}]: there is a tool {one.name!r:.80} already, of the agent or before it",
                param=f"tools[{at}]",
                code="duplicate_tool",
            )
        taken.add(one.name)
        own.append(
            Tool.from_json_schema(
                one.name, one.description, one.parameters, _never, trust="untrusted", approval="always", timeout=None
            )
        )
    return own


def _never(**_: Any) -> str:
    raise AssertionError("a tool of the client runs at the client")


def approver(names: Iterable[str]) -> Any:
    """Return what decides about calls: one of the client ends the run, one that needs a person is denied."""
    known = frozenset(names)

    def decide(call: ToolCall) -> Decision:
        if call.name in known:
            raise Paused([call])
        return Denied(_NOT_HERE)

    return decide


def calls_of(paused: Paused, names: Iterable[str]) -> Message:
    """Return the reply that ended a run with calls of the client, without calls of the agent's own tools.

    None of the reply ran: the model calls the others again once it has read what the client's returned.
    """
    known = frozenset(names)
    message: Message = [step.answer.message for step in paused.journal.steps() if step.kind == "model"][-1]
    return replace(message, tool_calls=tuple([call for call in message.tool_calls if call.name in known]))


def own_ids(message: Message) -> Message:
    """Return a message whose calls have ids that no other conversation has."""
    calls = [replace(call, id=f"call_{os.urandom(12).hex()}") for call in message.tool_calls]
    return replace(message, tool_calls=tuple(calls))


class HeldReplies:
    """Replies with calls of clients, and what the agent did before them, until the client sends its results.

    The wire forms show a client one message; what the agent's own tools returned, and what a provider wants back with
    the calls, is kept here. Where it is gone, as after a restart, the client's own messages are what there is.

    Args:
        most: How many to keep; the oldest go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._characters = 0
        self._held: OrderedDict[tuple[tuple[str, ...], str], tuple[Message, ...]] = OrderedDict()

    def hold(self, owner: tuple[str, ...], before: Sequence[Message], reply: Message) -> None:
        """Keep the messages of a run behind its input, and the reply with the calls.

        Args:
            owner: Tenant, user and agent: what nobody else gets.
            before: The messages.
            reply: The reply.
        """
        held = (*before, reply)
        self._held[owner, reply.tool_calls[0].id] = held
        self._characters += _characters(held)
        while len(self._held) > self._most or (self._characters > _MAX_CHARACTERS and len(self._held) > 1):
            self._characters -= _characters(self._held.popitem(last=False)[1])

    def restored(self, owner: tuple[str, ...], messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages of a client with what is kept in the place of the replies that they hold of it."""
        found: list[Message] = []
        for message in messages:
            held = self._held.get((owner, message.tool_calls[0].id)) if message.tool_calls else None
            if held is not None and [call.id for call in held[-1].tool_calls] == [
                call.id for call in message.tool_calls
            ]:
                found += held
            else:
                found.append(message)
        return tuple(found)


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(one.text) + sum(len(call.arguments) for call in one.tool_calls) for one in messages)
