"""`Inbox`: messages for a running run, and the protocol by which a run receives them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal, Protocol, TypeAlias, get_args

from agentkit.errors import AgentDefinitionError, Paused, RunBusy, RunEnded
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.user_input import UserInput
from agentkit_prompts.errors import brief

Moment: TypeAlias = Literal["next_step", "idle"]
"""Time at which a run receives a message: before its next model call, or when it would end with its answer."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message of a person or a program to a run."""

    message: Message
    """The message with the role `user`."""
    when: Moment = "next_step"
    by: str = ""
    """Name of the sender; empty if it is unknown."""
    sent_at: float = field(default_factory=time.time)
    """Seconds since 1970."""
    number: int = 0
    """Number of the message in its store; 0 for a message that is not stored."""


class RunInbox(Protocol):
    """The messages of one run that the run has not received yet. The engine calls these methods."""

    @property
    def reason(self) -> str:
        """Reason why the run is cancelled, which the model of the next run reads; empty without a reason."""
        ...

    def attached(self, run_id: str) -> AbstractContextManager[object]:
        """Accept messages for a run in a `with` block; a pause leaves the inbox open."""
        ...

    async def waiting(self, *, is_idle: bool) -> tuple[SentMessage, ...]:
        """Return the messages that the run receives now.

        Args:
            is_idle: True if the run ends unless it receives a message: if no message waits, later messages are refused.
        """
        ...

    def remove(self, received: tuple[SentMessage, ...]) -> None:
        """Remove messages that the run received."""
        ...


class Inbox:
    """Messages for a run of this process; any thread can send them.

    Pass it to `run`, `resume` or `stream`. A message that a run did not receive, because the run failed or was
    cancelled, is in `unread`, and the next run with this inbox receives it.
    """

    __slots__ = ("_is_running", "_lock", "_run_id", "_state", "_unread", "reason")

    def __init__(self) -> None:
        self._lock = Lock()
        self._unread: list[SentMessage] = []
        self._is_running = False
        self._run_id = ""
        self._state = ""
        """State in which the run ended; empty before the end."""
        self.reason = ""
        """Reason why the run is cancelled; see `RunStream.cancel`."""

    def send(self, message: str | Part | Iterable[str | Part], *, when: Moment = "next_step", by: str = "") -> None:
        """Send a message to the run, from any thread; see `RunStream.send`."""
        sent = checked_message(message, when, by)
        with self._lock:
            if self._state:
                raise RunEnded(self._run_id, self._state)
            self._unread.append(sent)

    @property
    def unread(self) -> tuple[SentMessage, ...]:
        """Messages that the run has not received."""
        with self._lock:
            return tuple(self._unread)

    @contextmanager
    def attached(self, run_id: str) -> Generator[None]:
        """Accept messages for a run in a `with` block; see `RunInbox`.

        Raises:
            RunBusy: Another run uses the inbox.
        """
        with self._lock:
            if self._is_running:
                raise RunBusy(self._run_id)
            self._is_running, self._run_id, self._state = True, run_id, ""
            self.reason = ""
        state = "failed"
        try:
            yield
            state = "finished"
        except Paused:
            state = ""
            raise
        except asyncio.CancelledError:
            state = "cancelled"
            raise
        finally:
            with self._lock:
                self._is_running, self._state = False, state

    def close(self) -> None:
        """Refuse messages if no run has used the inbox: its run was cancelled before it started."""
        with self._lock:
            if not self._run_id:
                self._state = "cancelled"

    async def waiting(self, *, is_idle: bool) -> tuple[SentMessage, ...]:
        """Return the messages that the run receives now; see `RunInbox`."""
        if not is_idle and not self._unread:
            return ()
        with self._lock:
            if is_idle and not self._unread:
                self._state = "finished"
            return tuple([sent for sent in self._unread if is_idle or sent.when == "next_step"])

    def remove(self, received: tuple[SentMessage, ...]) -> None:
        """Remove messages that the run received; see `RunInbox`."""
        with self._lock:
            self._unread = [sent for sent in self._unread if all(sent is not each for each in received)]


def checked_inbox(inbox: Any) -> RunInbox | None:
    """Return the argument `inbox` of a run.

    Raises:
        AgentDefinitionError: The value is not an inbox.
    """
    if inbox is not None and not callable(getattr(inbox, "waiting", None)):
        raise AgentDefinitionError(f"inbox: expected an Inbox, got {type(inbox).__name__}", name="inbox")
    checked: RunInbox | None = inbox
    return checked


def checked_message(
    message: str | Part | Iterable[str | Part], when: str = "next_step", by: str = "", key: str | None = None
) -> SentMessage:
    """Return a message to a run, after all checks.

    Raises:
        ContextError: The message is not text or parts.
        AgentDefinitionError: `when`, `by` or `key` is invalid. The error lists all.
    """
    problems: list[tuple[str, str]] = []
    if when not in get_args(Moment):
        problems.append(("when", f"when={brief(when, 40)}: expected 'next_step' or 'idle'"))
    if not isinstance(by, str):
        problems.append(("by", f"by={brief(by, 40)}: expected the name of the sender as text"))
    if key is not None and (not isinstance(key, str) or not key):
        problems.append(("key", f"key={brief(key, 40)}: expected a unique text per message, such as 'mail-17'"))
    if problems:
        names = ", ".join([name for name, _ in problems])
        text = "; ".join([problem for _, problem in problems])
        raise AgentDefinitionError(f"send: {text}; nothing was sent", name=names, problems=problems)
    moment: Moment = "idle" if when == "idle" else "next_step"
    return SentMessage(UserInput(message).message, moment, by)
