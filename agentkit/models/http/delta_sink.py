"""`DeltaSink`: forwards the deltas of a reply to a listener."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.models.model import Delta, OnDelta, send_delta

__all__ = ["DeltaSink", "ListenerError"]


class ListenerError(Exception):
    """Wrapper of an error that a listener raised, so that it is not translated."""

    def __init__(self, raised: Exception) -> None:
        super().__init__(str(raised))
        self.raised = raised


class DeltaSink:
    """Forwards deltas to a listener and remembers if any were sent."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self.on_delta = on_delta
        self.has_sent = False

    async def send(self, deltas: Sequence[Delta]) -> None:
        if self.on_delta is None:
            return
        for delta in deltas:
            if delta.text:
                self.has_sent = True
                try:
                    await send_delta(delta, self.on_delta)
                except Exception as error:
                    raise ListenerError(error) from error
