"""Everything that can go wrong between us and a model.

Each message names the model, where it was asked, what happened and what to do; none ever holds the API key.
"""

from __future__ import annotations

from typing import Unpack

from agentkit_prompts.errors import Picklable, Place

__all__ = [
    "ModelAuthError",
    "ModelError",
    "ModelInterrupted",
    "ModelRateLimited",
    "ModelReplyCut",
    "ModelReplyError",
    "ModelRequestError",
    "ModelUnavailable",
    "NetworkRefused",
    "ScriptExhausted",
    "ToolsTwiceWarning",
    "Where",
]


class Where(Place, total=False):
    """The model that was asked, and the problem as data: keyword arguments of every error of a model."""

    model: str
    host: str


class ModelError(Picklable):
    """Base of every error of a model.

    Attributes:
        model: Name of the model that was asked.
        host: Host (and port) of the endpoint; empty for a model without one.
        status: HTTP status of the answer, when there was one.
    """

    def __init__(
        self, message: str, *, model: str = "", host: str = "", status: int | None = None, **place: Unpack[Place]
    ) -> None:
        where = f"{model} at {host}" if model and host else model or host
        super().__init__(f"{where}: {message}" if where else message, **place)
        self.model = model
        self.host = host
        self.status = status


class ModelAuthError(ModelError):
    """No API key, or one that the endpoint refuses (401, 403)."""


class ModelRequestError(ModelError):
    """A request the endpoint cannot accept (400, 404, 422 ...), or that could not be put on the wire."""


class NetworkRefused(ModelError):
    """A model behind a network was asked inside of `no_real_models()`. Nothing was sent."""


class ModelRateLimited(ModelError):
    """Too many requests, or the quota is used up (429).

    Attributes:
        retry_after: Seconds to wait, when the endpoint names them.
        is_final: Whether waiting does not help: the quota is used up.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_final: bool = False,
        **where: Unpack[Where],
    ) -> None:
        super().__init__(message, status=status, **where)
        self.retry_after = retry_after
        self.is_final = is_final


class ModelUnavailable(ModelError):
    """The endpoint cannot be reached, took too long or failed on its side (5xx)."""


class _PartialReply(ModelError):
    def __init__(self, message: str, *, text: str = "", **where: Unpack[Where]) -> None:
        super().__init__(message, **where)
        self.text = text


class ModelInterrupted(_PartialReply):
    """The connection ended in the middle of a streamed reply.

    Attributes:
        text: The text received until then. Tool calls are not kept: half a call must not run.
    """

    @classmethod
    def after(cls, text: str, reason: str, **where: Unpack[Where]) -> ModelInterrupted:
        """Return the error of a stream that broke off after `text`."""
        message = f"the stream broke off after {len(text)} characters ({reason}); they are in .text, ask again"
        return cls(message, text=text, **where)


class ModelReplyError(ModelError):
    """A reply that does not follow the protocol."""


class ModelReplyCut(_PartialReply):
    """The reply reached its limit of tokens where half of it cannot be used: inside a tool call, or while thinking.

    Attributes:
        text: The text of the reply until then.
    """


class ScriptExhausted(ModelError):
    """A scripted model was asked more often than it has replies."""


class ToolsTwiceWarning(UserWarning):
    """Tools that are sent twice: the chat template has a place for them, and a `ToolPrompt` shows them too."""
