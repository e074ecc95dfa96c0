"""Client of the batch API of OpenAI: a file of requests, a batch, and files of results and errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from agentkit.models.http.batches import Batches, BatchResult
from agentkit.models.http.request_body import body_bytes
from agentkit.models.model_errors import BatchReason, ModelUnavailable

_ENDED = frozenset(("completed", "failed", "expired", "cancelled"))
_REASONS: Mapping[str, BatchReason] = {"batch_expired": "expired", "batch_cancelled": "cancelled"}
"""Reasons by the error code of a line."""
_TIMEOUT = "request_timeout"


class OpenAIBatches(Batches):
    """Batches of chat completions and responses, as OpenAI documents them at /v1/files and /v1/batches."""

    max_requests: ClassVar[int] = 50_000
    max_bytes: ClassVar[int] = 200_000_000

    async def send(self, bodies: Mapping[str, dict[str, Any]]) -> str:
        """Upload a file of requests, create its batch, and return the id of the batch.

        Raises:
            ModelError: The provider refused the file or the batch, or cannot be reached.
        """
        endpoint = f"/v1{self.model.path}"
        lines = [
            body_bytes({"custom_id": key, "method": "POST", "url": endpoint, "body": body})
            for key, body in bodies.items()
        ]
        try:
            client = await self.model._clients.client()
            file = await client.files.create(file=("requests.jsonl", b"\n".join(lines) + b"\n"), purpose="batch")
        except Exception as error:
            self._raise(error)
        state = await self._json(
            "post", "/batches", {"input_file_id": file.id, "endpoint": endpoint, "completion_window": "24h"}
        )
        return self._id(state)

    async def _state(self, batch: str) -> dict[str, Any]:
        return await self._json("get", f"/batches/{batch}")

    def _has_ended(self, state: Mapping[str, Any]) -> bool:
        return state.get("status") in _ENDED

    def _end_reason(self, state: Mapping[str, Any]) -> tuple[BatchReason, str]:
        match state.get("status"):
            case "expired":
                return "expired", ""
            case "cancelled":
                return "cancelled", ""
            case "failed":
                return "failed", "; ".join(_problems(state.get("errors")))
        return "missing", ""

    async def _lines(self, batch: str, state: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        for name in ("output_file_id", "error_file_id"):
            file = state.get(name)
            if file:
                async with aclosing(self._json_lines(f"/files/{file}/content")) as lines:
                    async for line in lines:
                        yield line

    def _result(self, line: Mapping[str, Any]) -> BatchResult:
        response, error = line.get("response"), line.get("error")
        if isinstance(response, dict):
            body, status = response.get("body"), response.get("status_code")
            if status == 200 and isinstance(body, dict):
                return body
            return self.error_of(body, status)
        code = ""
        if isinstance(error, dict):
            code = str(error.get("code"))
        if code in _REASONS:
            return self.error(_REASONS[code])
        if code == _TIMEOUT:
            text = "the request took too long at the provider; send the request again"
            return ModelUnavailable(text, model=self.model.name, host=self.model.host)
        return self.error_of({"error": error})


def _problems(errors: Any) -> list[str]:
    """Return the texts of a list of errors; text that is no list of errors is left out."""
    if not isinstance(errors, dict) or not isinstance(errors.get("data"), list):
        return []
    return [_problem(error) for error in errors["data"] if isinstance(error, dict)]


def _problem(error: Mapping[str, Any]) -> str:
    place = ""
    if error.get("line") is not None:
        place = f"line {error['line']}: "
    return f"{place}{error.get('message') or error.get('code')}"
