"""The errors that a client gets from the server: each has its HTTP status and its type in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.errors import AgentError

__all__ = [
    "AccessDenied",
    "AccessFileError",
    "BadRequest",
    "Conflict",
    "QuotaExceeded",
    "ServerError",
    "ServerFull",
    "TooLarge",
    "Unauthenticated",
    "UnknownResource",
    "Unprocessable",
    "Unsupported",
    "UpstreamFailed",
]


_MAX_MESSAGE = 4_000
"""Characters of an error that are sent: a request with ten thousand problems is not answered with a book."""


class ServerError(AgentError):
    """Base of what a request can be answered with in place of what it asked for.

    Attributes:
        param: The part of the request that is wrong, such as `messages[0].role`.
        code: A word for programs.
        details: Further fields of the error object.
        retry_after: Seconds after which it may go better.
    """

    status = 500
    type = "server_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.details = dict(details or {})
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        text = str(self)
        if len(text) > _MAX_MESSAGE:
            text = f"{text[:_MAX_MESSAGE]}... ({len(text) - _MAX_MESSAGE:,} more characters)"
        known = {"message": text, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {**known, **self.details}}


class BadRequest(ServerError):
    """A request that no one could answer: 400."""

    status, type = 400, "invalid_request_error"


class Unauthenticated(ServerError):
    """There is no token, or an unknown one: 401."""

    status, type = 401, "authentication_error"


class AccessDenied(ServerError):
    """The token may not do this: 403."""

    status, type = 403, "permission_error"


class UnknownResource(ServerError):
    """There is nothing of that name that the tenant of the token may see: 404."""

    status, type = 404, "invalid_request_error"


class Conflict(ServerError):
    """It does not fit what there is: 409."""

    status, type = 409, "conflict_error"


class TooLarge(ServerError):
    """The body is longer than the server reads: 413."""

    status, type = 413, "invalid_request_error"


class Unsupported(ServerError):
    """The body is of another type than JSON: 415."""

    status, type = 415, "invalid_request_error"


class Unprocessable(ServerError):
    """A request whose values are missing or invalid, all of them named: 422."""

    status, type = 422, "invalid_request_error"


class QuotaExceeded(ServerError):
    """The tenant has asked too often, or used what it may use: 429."""

    status, type = 429, "rate_limit_error"


class UpstreamFailed(ServerError):
    """The model of the agent failed: 502."""

    status, type = 502, "api_error"


class ServerFull(ServerError):
    """The server does as much as it may, or is shutting down: 503."""

    status, type = 503, "server_error"


class AccessFileError(AgentError, ValueError):
    """The file with tenants and tokens cannot be used. Names every problem, with its line."""
