"""`Batches`, the base class of clients of batch APIs, which answer requests within a day at half the price."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeAlias

from agentkit.models.http.delta_sink import DeltaSink
from agentkit.models.http.endpoint import EndpointModel
from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.no_real_models import check_real_models
from agentkit.models.http.reader import ProtocolError, Reader, object_of
from agentkit.models.http.reply_body import decoded, json_lines
from agentkit.models.http.request_body import body_bytes
from agentkit.models.http.retries import pause_before
from agentkit.models.http.sdk_errors import translate
from agentkit.models.model import Reply
from agentkit.models.model_errors import BatchReason, ModelBatchError, ModelError

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition

BatchResult: TypeAlias = "dict[str, Any] | ModelError"
"""The reply of the provider as JSON data, or the error of one request."""

_SECONDS = 120.0
"""Maximum seconds of a request to the batch API."""
_FIRST_PAUSE = 0.2
_MAX_PAUSE = 60.0
"""Maximum seconds between two requests for the state of a batch."""
_MAX_FAILURES = 10
"""Maximum number of failed requests in a row for the state of a batch."""
_TEXTS: Mapping[BatchReason, str] = {
    "cancelled": "the batch was cancelled before the request was processed; send the request again",
    "expired": "the batch expired before the request was processed; send the request again",
    "failed": "the provider refused the batch",
    "missing": "the results of the batch contain no line for the request; send the request again",
    "changed": "the prompt was changed after the request was sent, such as by a time in the prompt",
    "paused": "the provider paused the turn, which a batch cannot continue; send the request without a batch",
}


class Batches(ABC):
    """Client of the batch API of a model.

    Args:
        model: The model, whose client, key and settings the requests have.
    """

    max_requests: ClassVar[int]
    """Maximum number of requests of a batch."""
    max_bytes: ClassVar[int]
    """Maximum bytes of the requests of a batch."""

    def __init__(self, model: EndpointModel) -> None:
        self.model = model

    @abstractmethod
    async def send(self, bodies: Mapping[str, dict[str, Any]]) -> str:
        """Send requests by key, and return the id of their batch."""

    @abstractmethod
    async def _state(self, batch: str) -> dict[str, Any]:
        """Return the state of a batch."""

    @abstractmethod
    def _has_ended(self, state: Mapping[str, Any]) -> bool:
        """True if the batch has ended, in any way."""

    @abstractmethod
    def _lines(self, batch: str, state: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the lines of the results of a batch."""

    @abstractmethod
    def _result(self, line: Mapping[str, Any]) -> BatchResult:
        """Return the result of one request."""

    def _end_reason(self, state: Mapping[str, Any]) -> tuple[BatchReason, str]:
        """Return the reason and its description for requests without a line."""
        return "missing", ""

    async def results(self, batch: str) -> tuple[dict[str, BatchResult], ModelBatchError]:
        """Wait for the end of a batch, and return its results by key, and the error of requests without a result.

        Raises:
            ModelError: The batch is unknown, or its state cannot be read.
        """
        state = await self._ended(batch)
        results: dict[str, BatchResult] = {}
        try:
            async with aclosing(self._lines(batch, state)) as lines:
                async for line in lines:
                    results[str(line.get("custom_id"))] = self._result(line)
        except Exception as error:
            self._raise(error)
        return results, self.error(*self._end_reason(state))

    async def _ended(self, batch: str) -> dict[str, Any]:
        """Return the state of a batch after its end."""
        pause, failures = _FIRST_PAUSE, 0
        while True:
            try:
                state = await self._state(batch)
                failures = 0
                if self._has_ended(state):
                    return state
            except ModelError as error:
                # A batch takes hours: a connection that fails once does not end the wait.
                failures += 1
                if failures > _MAX_FAILURES or pause_before(error, failures) is None:
                    raise
            await asyncio.sleep(pause)
            pause = min(_MAX_PAUSE, 2 * pause)

    def reply(self, composition: Composition, document: dict[str, Any]) -> Reply:
        """Return the reply in a result.

        Raises:
            ModelError: The document is not a complete reply.
        """
        model = self.model
        marked, restored_text = model._guarded(composition)
        reader = model._reader(marked)
        with model._translating(reader, DeltaSink(None)):
            reader.add(document)
            reader.end()
            reason = self._reason_of(reader)
            if reason is not None:
                raise self.error(reason)
            reply = reader.reply(model.name)
        if restored_text is None:
            return reply
        return restored_text.reply(reply)

    def _reason_of(self, reader: Reader) -> BatchReason | None:
        """Return the reason if the reply is not complete; None for a complete reply."""
        return None

    def error(self, reason: BatchReason, detail: str = "") -> ModelBatchError:
        """Return the error of a request that was not processed."""
        text = _TEXTS[reason]
        if detail:
            text += f": {self.model._target().shown(detail)}"
        return ModelBatchError(text, reason=reason, model=self.model.name, host=self.model.host)

    def error_of(self, document: Any, status: int | None = None) -> ModelError:
        """Return the error in a line of results."""
        error = error_in(document)
        if error is None:
            error = ErrorReply("", f"unexpected result {json.dumps(document, default=str):.200}")
        if status is not None:
            error = ErrorReply(f"{status} {error.code}", error.explanation)
        translated = translate(error, self.model._target(), None)
        assert translated is not None
        return translated

    # Requests

    def _id(self, document: Mapping[str, Any]) -> str:
        """Return the id of a new batch, without which its results cannot be read."""
        batch = document.get("id")
        if not isinstance(batch, str) or not batch:
            self._raise(ProtocolError(f"the batch has no id: {json.dumps(document):.200}"))
        return batch

    async def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request to the batch API, and return the JSON object of its response."""
        try:
            response = await self._response(method, path, body)
            try:
                content = await response.aread()
            finally:
                await response.aclose()
            return object_of(decoded(content), "the batch")
        except Exception as error:
            self._raise(error)

    async def _json_lines(self, path: str) -> AsyncGenerator[dict[str, Any]]:
        """Yield the JSON objects in the lines of a response."""
        response = await self._response("get", path, None)
        try:
            async with aclosing(json_lines(response)) as documents:
                async for document in documents:
                    yield object_of(document, "a line of the results")
        finally:
            await response.aclose()

    async def _response(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """Send a request, and return its unread response."""
        from httpx2 import Response

        model = self.model
        check_real_models(model)
        client = await model._clients.client()
        options: dict[str, Any] = {
            "cast_to": Response,
            "stream": True,
            "options": await model._clients.options(_SECONDS, model._headers),
        }
        if method == "get":
            return await client.get(path, **options)
        # As in requests of the model: a custom client receives the object.
        content: dict[str, Any] = {"body": body}
        if model._clients.custom is None:
            content = {"content": body_bytes(body or {})}
        return await client.post(path, **content, **options)

    def _raise(self, error: Exception) -> NoReturn:
        """Raise an exception of the SDK or the connection as an error of the model."""
        if isinstance(error, ModelError):
            raise error
        translated = translate(error, self.model._target(), None)
        if translated is None:
            raise error
        raise translated from error
