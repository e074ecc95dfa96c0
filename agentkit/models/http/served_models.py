"""Names of the models that an endpoint serves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentkit.models.http.error_reply import error_in
from agentkit.models.http.reader import ProtocolError
from agentkit.models.http.reply_body import DONE, documents
from agentkit.models.http.sdk_clients import Clients
from agentkit.models.http.sdk_errors import RequestTarget, translate


async def served_models(
    clients: Clients, target: RequestTarget, path: str, headers: Mapping[str, str], seconds: float
) -> tuple[str, ...]:
    """Return the sorted names in the list of models at a path.

    Raises:
        ModelError: As for a request of the model.
    """
    client = await clients.client()
    try:
        async with asyncio.timeout(seconds):
            return tuple(sorted(_names(await _document(client, path, await clients.options(seconds, headers)))))
    except Exception as error:
        model_error = translate(error, target)
        if model_error is None:
            raise
        raise model_error from error


async def _document(client: Any, path: str, options: Mapping[str, Any]) -> Any:
    from httpx2 import Response

    response = await client.get(path, cast_to=Response, options=options, stream=True)
    try:
        return next(iter([document async for document in documents(response) if document is not DONE]), None)
    finally:
        await response.aclose()


def _names(document: Any) -> set[str]:
    if (error := error_in(document)) is not None:
        raise error
    entries = document
    # Some servers send the list alone.
    if isinstance(document, dict):
        entries = document.get("data", document.get("models")) or []
    if not isinstance(entries, list):
        raise ProtocolError("expected a list of models")
    names: set[str] = set()
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        texts = [text for text in (entry.get("id"), entry.get("name")) if text and isinstance(text, str)]
        names.update([text.removeprefix("models/") for text in texts[:1]])
    return names
