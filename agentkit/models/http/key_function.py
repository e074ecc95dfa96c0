"""`KeyFunction`: a function that returns the key of each request, such as a token that expires."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from agentkit.ground.threads import in_thread
from agentkit.models.model_errors import ModelAuthError

ApiKey: TypeAlias = str | Callable[[], str] | Callable[[], Awaitable[str]]
"""An API key, or a function that returns it, called before each request."""


class KeyFunction:
    """A function that returns a key. A sync function runs in a thread, because it can wait for a network."""

    def __init__(self, function: Callable[[], Any], model: str) -> None:
        self._function = function
        self._model = model
        # An error can contain the key of a request that started before the latest request.
        self._latest: deque[str] = deque(maxlen=4)

    @property
    def latest(self) -> tuple[str, ...]:
        """The latest keys."""
        return tuple(self._latest)

    async def key(self) -> str:
        """Return the key.

        Raises:
            ModelAuthError: The function raises an error, or returns no text.
        """
        try:
            if inspect.iscoroutinefunction(self._function):
                key = await self._function()
            else:
                key = await in_thread(self._function)
                if inspect.isawaitable(key):
                    key = await key
        except Exception as error:
            raise ModelAuthError(
                f"api_key: the function failed: {type(error).__name__}: {error}", model=self._model, name="api_key"
            ) from error
        if not isinstance(key, str) or not key.strip():
            received = type(key).__name__
            if isinstance(key, str):
                received = "an empty text"
            raise ModelAuthError(
                f"api_key: expected a function that returns a key as text, got {received}",
                model=self._model,
                name="api_key",
            )
        key = key.strip()
        if key not in self._latest:
            self._latest.append(key)
        return key
