"""`RunStream`: the events of a run, which accepts messages while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.ground.sync_driver import streamed
from agentkit.run.engine.async_stream import AsyncStream
from agentkit.run.engine.event_sink import PassOn, streaming
from agentkit.run.parts.cancel_note import checked_reason
from agentkit.run.parts.run_inbox import Inbox, Moment
from agentkit_prompts.context.parts import Part

T = TypeVar("T")


class RunStream(AsyncStream[T]):
    """The events of a run, which accepts messages while it runs."""

    __slots__ = ("_inbox",)

    def __init__(self, events: AsyncGenerator[T, None], inbox: Inbox) -> None:
        super().__init__(events, "agent.stream_sync(text)")
        self._inbox = inbox

    def send(self, message: str | Part | Iterable[str | Part], *, when: Moment = "next_step", by: str = "") -> None:
        """Send a message to the run, from any thread.

        Args:
            message: Text, or parts, of a user.
            when: `next_step`: the run receives the message before its next model call; `idle`: the run receives it when
                it would end with its answer.
            by: Name of the sender.

        Raises:
            RunEnded: The run has ended, so that it would never receive the message.
            ContextError: The message is not text or parts.
            AgentDefinitionError: `when` or `by` is invalid.
        """
        self._inbox.send(message, when=when, by=by)

    async def aclose(self) -> None:
        """Cancel the run if it has not ended, and wait for its end."""
        try:
            await super().aclose()
        finally:
            self._inbox.close()

    async def cancel(self, reason: str = "") -> None:
        """Cancel the run, and wait for its end.

        Args:
            reason: Reason of the cancellation: the results of cancelled calls and the session contain it, so that the
                model of the next run reads it.

        Raises:
            AgentDefinitionError: The reason is not text, or is too long; nothing was cancelled.
        """
        self._inbox.reason = checked_reason(reason)
        await self.aclose()


class SyncRunStream(Iterator[T]):
    """The events of a run for synchronous code, which accepts messages while it runs."""

    __slots__ = ("_events", "_inbox")

    def __init__(self, events: Generator[T], inbox: Inbox) -> None:
        self._events = events
        self._inbox = inbox

    def __next__(self) -> T:
        return next(self._events)

    def send(self, message: str | Part | Iterable[str | Part], *, when: Moment = "next_step", by: str = "") -> None:
        """Send a message to the run, from any thread; see `RunStream.send`."""
        self._inbox.send(message, when=when, by=by)

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait for its end."""
        try:
            self._events.close()
        finally:
            self._inbox.close()

    def cancel(self, reason: str = "") -> None:
        """Cancel the run, and wait for its end; see `RunStream.cancel`."""
        self._inbox.reason = checked_reason(reason)
        self.close()


def run_stream(
    run: Callable[[Inbox], Callable[[PassOn[T]], Coroutine[Any, Any, object]]], options: Mapping[str, Any]
) -> RunStream[T]:
    """Return the stream of a run. `run` returns the run with an inbox: the inbox of its options, or a new inbox.

    Raises:
        AgentDefinitionError: The option `inbox` is not an `Inbox`.
    """
    inbox = _inbox(options)
    return RunStream(streaming(run(inbox)), inbox)


def sync_run_stream(
    run: Callable[[Inbox], Callable[[PassOn[T]], Coroutine[Any, Any, object]]], options: Mapping[str, Any]
) -> SyncRunStream[T]:
    """Return the stream of a run for synchronous code; see `run_stream`."""
    inbox = _inbox(options)
    return SyncRunStream(streamed(run(inbox)), inbox)


def _inbox(options: Mapping[str, Any]) -> Inbox:
    inbox = options.get("inbox") or Inbox()
    if not isinstance(inbox, Inbox):
        raise AgentDefinitionError(f"inbox: expected an Inbox, got {type(inbox).__name__}", name="inbox")
    return inbox
