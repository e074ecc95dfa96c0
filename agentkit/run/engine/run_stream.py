"""`RunStream`: the events of a run, which accepts messages while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.run.engine.async_stream import AsyncStream
from agentkit.run.engine.event_sink import PassOn, streaming
from agentkit.run.parts.run_inbox import Inbox, Moment
from agentkit_prompts.context.parts import Part

__all__ = ["RunStream", "run_stream"]

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

    async def cancel(self, reason: str = "") -> None:
        """Cancel the run, and wait for its end.

        Args:
            reason: Reason of the cancellation: the results of cancelled calls and the session contain it, so that the
                model of the next run reads it.
        """
        self._inbox.reason = reason
        await self.aclose()


def run_stream(
    run: Callable[[Inbox], Callable[[PassOn[T]], Coroutine[Any, Any, object]]], options: Mapping[str, Any]
) -> RunStream[T]:
    """Return the stream of a run. `run` returns the run with an inbox: the inbox of its options, or a new inbox.

    Raises:
        AgentDefinitionError: The option `inbox` is not an `Inbox`.
    """
    inbox = options.get("inbox") or Inbox()
    if not isinstance(inbox, Inbox):
        raise AgentDefinitionError(f"inbox: expected an Inbox, got {type(inbox).__name__}", name="inbox")
    return RunStream(streaming(run(inbox)), inbox)
