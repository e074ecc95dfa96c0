"""Client of the message batches of Anthropic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

from agentkit.models.anthropic.anthropic_reader import AnthropicReader
from agentkit.models.http.batches import Batches, BatchResult
from agentkit.models.http.reader import Reader
from agentkit.models.model_errors import BatchReason

_PATH = "/v1/messages/batches"
_REASONS: Mapping[str, BatchReason] = {"expired": "expired", "canceled": "cancelled"}
"""Reasons by the type of a result."""


class AnthropicBatches(Batches):
    """Message batches, as Anthropic documents them at /v1/messages/batches."""

    max_requests: ClassVar[int] = 100_000
    max_bytes: ClassVar[int] = 256_000_000

    async def send(self, bodies: Mapping[str, dict[str, Any]]) -> str:
        """Create a batch, and return its id.

        Raises:
            ModelError: The provider refused the batch, or cannot be reached.
        """
        requests = [{"custom_id": key, "params": body} for key, body in bodies.items()]
        state = await self._json("post", _PATH, {"requests": requests})
        return self._id(state)

    async def _state(self, batch: str) -> dict[str, Any]:
        return await self._json("get", f"{_PATH}/{batch}")

    def _reason_of(self, reader: Reader) -> BatchReason | None:
        if isinstance(reader, AnthropicReader) and reader.is_paused:
            return "paused"
        return None

    def _has_ended(self, state: Mapping[str, Any]) -> bool:
        return state.get("processing_status") == "ended"

    def _lines(self, batch: str, state: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        # Not `results_url` of the state: the key is sent to the known host only.
        return self._json_lines(f"{_PATH}/{batch}/results")

    def _result(self, line: Mapping[str, Any]) -> BatchResult:
        result = line.get("result")
        if not isinstance(result, dict):
            return self.error_of(line)
        kind, message = str(result.get("type")), result.get("message")
        if kind == "succeeded" and isinstance(message, dict):
            return message
        if kind in _REASONS:
            return self.error(_REASONS[kind])
        return self.error_of(result.get("error"))
