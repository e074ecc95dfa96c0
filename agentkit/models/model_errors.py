"""Errors of requests to models.

Each message names the model, the endpoint, the problem and the remedy. No message contains the API key.
"""

from __future__ import annotations

from typing import Literal, Unpack

from agentkit.models.model import NO_USAGE, Usage
from agentkit_prompts.errors import Picklable, Place


class Where(Place, total=False):
    """The model of a request and the problem as data: keyword arguments of every error of a model."""

    model: str
    host: str


class ModelError(Picklable):
    """Base of every error of a model.

    Attributes:
        model: Name of the model.
        host: Host (and port) of the endpoint; empty for a model without an endpoint.
        status: HTTP status of the response; None without a response.
        retry_after: Seconds to wait before the next request, as the endpoint sent them; None if it sent none.
    """

    def __init__(
        self,
        message: str,
        *,
        model: str = "",
        host: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        **place: Unpack[Place],
    ) -> None:
        if model and host:
            message = f"{model} at {host}: {message}"
        elif model or host:
            message = f"{model or host}: {message}"
        super().__init__(message, **place)
        self.model = model
        self.host = host
        self.status = status
        self.retry_after = retry_after


class ModelAuthError(ModelError):
    """A missing API key, or an API key that the endpoint refuses (401, 403)."""


class ModelRequestError(ModelError):
    """A request that the endpoint refuses (400, 404, 422 ...), or that could not be encoded."""


class NetworkRefused(ModelError):
    """A request to a model over a network inside of `no_real_models()`. Nothing was sent."""


class ModelRateLimited(ModelError):
    """Too many requests, or the quota is used up (429).

    Attributes:
        is_final: True if the quota is used up, so that waiting does not help.
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
        super().__init__(message, status=status, retry_after=retry_after, **where)
        self.is_final = is_final


class ModelUnavailable(ModelError):
    """The endpoint cannot be reached, took too long or failed on its side (5xx)."""


BatchReason = Literal["cancelled", "expired", "failed", "missing", "changed", "paused"]


class ModelBatchError(ModelError):
    """A request that a batch of the provider did not answer.

    Attributes:
        reason: `cancelled`, `expired` or `failed`, the end of the batch; `missing`: its results contain no line for the
            request; `changed`: the prompt differs from the sent prompt; `paused`: the turn must be continued.
    """

    def __init__(self, message: str, *, reason: BatchReason, **where: Unpack[Where]) -> None:
        super().__init__(message, **where)
        self.reason = reason


class _PartialReply(ModelError):
    def __init__(self, message: str, *, text: str = "", usage: Usage = NO_USAGE, **where: Unpack[Where]) -> None:
        super().__init__(message, **where)
        self.text = text
        self.usage = usage


class ModelInterrupted(_PartialReply):
    """The connection was lost in the middle of a streamed reply, or an event of the stream is invalid.

    Attributes:
        text: The text received until then, without tool calls: an incomplete tool call must not run.
        usage: Tokens until then, as far as the endpoint sent them.
    """

    @classmethod
    def after(cls, text: str, reason: str, usage: Usage = NO_USAGE, **where: Unpack[Where]) -> ModelInterrupted:
        """Return the error of a stream that broke off after `text`."""
        message = f"the stream broke off after {len(text)} characters ({reason}); they are in .text, ask again"
        return cls(message, text=text, usage=usage, **where)


class ModelReplyError(_PartialReply):
    """A reply that does not follow the protocol.

    Attributes:
        text: The text that could be read.
        usage: Tokens of the reply, as far as the endpoint sent them.
    """


class ModelReplyCut(_PartialReply):
    """The reply ended inside a tool call or while the model was thinking, usually at its token limit.

    Attributes:
        text: The text received until then.
        usage: Tokens until then, as far as the endpoint sent them.
    """


class ScriptExhausted(ModelError):
    """A scripted model received more requests than it has replies."""


class MediaAsTextWarning(UserWarning):
    """Images, audio, videos or files for a model that reads text only: it receives their names."""


class ToolsTwiceWarning(UserWarning):
    """Tools that are sent twice: the chat template writes them, and so does a `ToolPrompt`."""


class CallAsTextWarning(UserWarning):
    """A reply of a chat endpoint whose text is a tool call: the server did not read it, so no tool is called."""


class UnreadableCallsWarning(UserWarning):
    """A chat template whose tool calls can be read in no known format, or not in its `tool_call_format`."""
