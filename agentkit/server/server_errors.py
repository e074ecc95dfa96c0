"""Errors that the server sends to clients, each with its HTTP status and its type in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentkit.errors import AgentError
from agentkit_prompts.errors import start_of

_MAX_MESSAGE = 4_000
"""Maximum characters of a message that is sent to a client."""


class ServerError(AgentError):
    """Base class of errors that the server sends to clients.

    Attributes:
        param: The invalid part of the request, such as `messages[0].role`.
        code: Machine-readable code.
        details: Further fields of the error object.
        retry_after: Seconds after which the client should retry.
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
        """The error in OpenAI's format."""
        fields = {
            "message": start_of(str(self), _MAX_MESSAGE),
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": {**fields, **self.details}}


class BadRequest(ServerError):
    """Invalid request: 400."""

    status, type = 400, "invalid_request_error"


class Unauthenticated(ServerError):
    """Missing or unknown token: 401."""

    status, type = 401, "authentication_error"


class AccessDenied(ServerError):
    """The token does not permit the request: 403."""

    status, type = 403, "permission_error"


class UnknownResource(ServerError):
    """Unknown name, or a name of another tenant: 404."""

    status, type = 404, "invalid_request_error"


class Conflict(ServerError):
    """Conflict of the request with the stored state: 409."""

    status, type = 409, "conflict_error"


class TooLarge(ServerError):
    """The body is longer than `body_bytes`: 413."""

    status, type = 413, "invalid_request_error"


class Unsupported(ServerError):
    """The body has a content type other than JSON: 415."""

    status, type = 415, "invalid_request_error"


class Unprocessable(ServerError):
    """Missing or invalid values; the message lists all of them: 422."""

    status, type = 422, "invalid_request_error"


class QuotaExceeded(ServerError):
    """The tenant exceeded its rate limit or its quota: 429."""

    status, type = 429, "rate_limit_error"


class UpstreamFailed(ServerError):
    """The model of the agent failed: 502."""

    status, type = 502, "api_error"


class ServerFull(ServerError):
    """The server is at its limits, or is shutting down: 503."""

    status, type = 503, "server_error"


class AccessFileError(AgentError, ValueError):
    """Invalid access file. The message lists every problem with its line."""
