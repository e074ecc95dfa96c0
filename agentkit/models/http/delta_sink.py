"""`DeltaSink`: forwards the deltas of a reply to a listener."""

from __future__ import annotations

from collections.abc import Sequence

from agentkit.models.http.restored_text import RestoredText
from agentkit.models.model import Delta, OnDelta, send_delta


class ListenerError(Exception):
    """Wrapper of an error that a listener raised, so that it is not translated."""

    def __init__(self, raised: Exception) -> None:
        super().__init__(str(raised))
        self.raised = raised


class DeltaSink:
    """Forwards deltas to a listener and remembers if any were sent."""

    def __init__(self, on_delta: OnDelta | None, restored_text: RestoredText | None = None) -> None:
        self.on_delta = on_delta
        self.has_sent = False
        self._restored_text = restored_text

    def restart(self) -> None:
        """Forget the end of an attempt that failed before its first delta."""
        if self._restored_text is not None:
            self._restored_text.restart()

    async def send(self, deltas: Sequence[Delta], *, is_last: bool = False) -> None:
        """Forward deltas; `is_last` is True for the last deltas of a response."""
        if self.on_delta is None:
            return
        if self._restored_text is not None:
            deltas = self._restored_text.deltas(deltas, is_last=is_last)
        for delta in deltas:
            if delta.text:
                self.has_sent = True
                try:
                    await send_delta(delta, self.on_delta)
                except Exception as error:
                    raise ListenerError(error) from error
