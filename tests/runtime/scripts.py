"""Helpers of the tests of the runtime: models that call tools, sessions that fail, checks of histories."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

from agentkit import Approved, Composition, Denied, Document, Message, Reply, Session, ToolCall
from agentkit.models import OnDelta
from agentkit.prompts import Conversation
from tests.waiting import LONG


def calling(*calls: tuple[Any, ...] | str, text: str = "") -> Message:
    """Return an assistant message with calls, each `(name, arguments)`, `(name, arguments, id)` or a bare name."""
    made = []
    for number, call in enumerate(calls, 1):
        name, arguments, own = (call, {}, "") if isinstance(call, str) else (*call, "")[:3]
        own = own if len(call) == 3 and not isinstance(call, str) else f"id{number}"
        made.append(ToolCall(own, name, arguments if isinstance(arguments, str) else json.dumps(arguments)))
    return Message("assistant", text, tool_calls=tuple(made))


def decided(is_approved: bool, reason: str = "") -> Approved | Denied:
    """Return a decision."""
    return Approved() if is_approved else Denied(reason)


def roles(messages: Sequence[Message]) -> str:
    """Return the roles of messages, such as `user assistant tool`."""
    return " ".join(message.role for message in messages)


def valid(messages: Sequence[Message]) -> bool:
    """Return True if a provider accepts the history: one result directly after each call, and no other results."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        waiting += [call.id for call in message.tool_calls]
    return not waiting and all(call.id for message in messages for call in message.tool_calls)


class Never:
    """A model that never answers; `asked` is set when it is called."""

    name = "never"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class Library:
    """A recaller over fixed chunks; records its queries, and their threads."""

    def __init__(self, *texts: str) -> None:
        self.documents = tuple(Document(text, id=f"d{number}") for number, text in enumerate(texts))
        self.queries: list[str] = []
        self.threads: list[threading.Thread] = []

    def recall(self, query: str) -> tuple[Document, ...]:
        self.queries.append(query)
        self.threads.append(threading.current_thread())
        return self.documents


class Forgetful(Session):
    """A session whose store fails from the `good`-th append."""

    def __init__(self, good: int) -> None:
        super().__init__(id="forgetful")
        self.good = good

    def append(self, *messages: Message, key: str | None = None) -> Conversation:
        if self.good == 0:
            raise OSError("the disk is gone")
        self.good -= 1
        return super().append(*messages, key=key)


class Slow(Session):
    """A session with a slow store: `writing` is set when an append starts, `go` ends the append."""

    def __init__(self) -> None:
        super().__init__(id="slow")
        self.writing = threading.Event()
        self.go = threading.Event()

    def append(self, *messages: Message, key: str | None = None) -> Conversation:
        self.writing.set()
        assert self.go.wait(LONG)
        return super().append(*messages, key=key)

    def append_now(self, *messages: Message, key: str | None = None) -> bool:
        return False
