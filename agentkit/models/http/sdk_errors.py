"""Translation of errors of SDKs, connections and endpoints to errors of models."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.reader import IncompleteCall, ProtocolError
from agentkit.models.model import NO_USAGE, Usage
from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelReplyCut,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailable,
    Where,
)
from agentkit_prompts.credentials import masked
from agentkit_prompts.errors import start_of

_MAX_CHARS = 500
_STATUS = re.compile("[45][0-9]{2}")
"""HTTP status of an error."""

_STATUS_OF: Mapping[str, int] = {
    # OpenAI
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "tokens": 429,
    "requests": 429,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "server_error": 500,
    "vector_store_timeout": 504,
    # Anthropic
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    # Google
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "resource_exhausted": 429,
    "internal": 500,
    "unavailable": 503,
    "deadline_exceeded": 504,
    # vLLM, llama.cpp and other local servers
    "badrequesterror": 400,
    "notfounderror": 404,
    "exceed_context_size_error": 400,
    "not_supported_error": 400,
    "validation": 422,
    "overloaded": 503,
    "unavailable_error": 503,
    "internalservererror": 500,
}
_TOO_LONG = ("context_length_exceeded", "exceed_context_size_error", "prompt is too long", "maximum context length")


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """Model and endpoint of a request, with the parts of error messages that depend on them."""

    model: str
    host: str
    noun: str
    """Noun for a reply."""
    key_name: str
    """Environment variable of the key, such as `OPENAI_API_KEY`."""
    address_hint: str
    """Names of the base URL, and its required end."""
    advice: str = ""
    """Advice for a server with another API."""
    secrets: Sequence[str] = ()
    """Texts that are masked in messages."""

    @property
    def where(self) -> Where:
        """Model and host as keyword arguments of errors."""
        return {"model": self.model, "host": self.host}

    def shown(self, text: str) -> str:
        """Return a text of the endpoint for a message: masked and truncated."""
        return start_of(masked(text, self.secrets), _MAX_CHARS)


def translate(
    error: Exception, target: RequestTarget, received: str | None = None, usage: Usage = NO_USAGE
) -> ModelError | None:
    """Return the model error for an error of an SDK, its HTTP library or a reader; None for any other error.

    `received` is the text of the stream so far, None before the first delta; `usage` are its tokens.
    """
    where = target.where
    if isinstance(error, IncompleteCall):
        return ModelReplyCut(_cut_message(error), text=received or "", usage=usage, **where)
    # An error inside a stream has no status: its code names the status.
    if isinstance(error, ErrorReply):
        if received:
            return ModelInterrupted.after(received, target.shown(error.explanation), usage, **where)
        return _status_error(_status(error.code), error.code, target.shown(error.explanation), None, target)
    # ProtocolError is a ValueError, so it is checked before the ValueErrors of encoding.
    if isinstance(error, ProtocolError):
        detail = target.shown(str(error))
        if error.is_event and received:
            return ModelInterrupted.after(received, detail, usage, **where)
        return ModelReplyError(
            f"the reply is not a {target.noun}: {detail}; check that {target.address_hint}{target.advice}",
            text=received or "",
            usage=usage,
            **where,
        )
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if response is not None and isinstance(status, int):
        code, explanation = _explanation(error)
        return _status_error(status, code, target.shown(explanation), response.headers, target)
    if (kind := _connection(error)) is not None:
        return _connection_error(kind, target.shown(_reason(error)), target, received, usage)
    return _encoding_error(error, target)


def _cut_message(error: IncompleteCall) -> str:
    if error.reason == "length":
        return f"the reply was cut at its token limit {error}; increase max_tokens in the settings"
    return f"the reply ended {error} (finish reason: {error.reason}); ask again, or increase max_tokens in the settings"


def _connection_error(kind: str, reason: str, target: RequestTarget, received: str | None, usage: Usage) -> ModelError:
    if received is not None:
        return ModelInterrupted.after(received, reason, usage, **target.where)
    if kind == "timeout":
        message = f"no response in time ({reason}); retry the request, or increase the timeout in the settings"
    else:
        message = f"no connection ({reason}): is the server running? Check that {target.address_hint}"
    return ModelUnavailable(message, **target.where)


def _encoding_error(error: Exception, target: RequestTarget) -> ModelRequestError | None:
    """Return the error of a request that cannot be encoded; None for any other error."""
    if isinstance(error, UnicodeEncodeError):
        return ModelRequestError(
            "the prompt contains a lone surrogate, which UTF-8 cannot encode; clean the input with "
            'text.encode("utf-8", "replace").decode()',
            **target.where,
        )
    if isinstance(error, TypeError | ValueError | RecursionError):
        return ModelRequestError(f"the request cannot be encoded: {target.shown(str(error))}", **target.where)
    return None


def _connection(error: BaseException) -> str | None:
    """Return `timeout` or `connection` for an error of an SDK or of its HTTP library; None for any other error."""
    # Classes are compared by name, because an SDK may be missing or have another version.
    names = {
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith(("openai", "anthropic", "http"))
    }
    if names & {"APITimeoutError", "TimeoutException"} or isinstance(error, TimeoutError):
        return "timeout"
    # The client wraps some errors of a connection in a group, such as an invalid port in the address of a redirect.
    is_group = isinstance(error, ExceptionGroup)
    if is_group or names & {"APIConnectionError", "TransportError", "RequestError", "StreamError"}:
        return "connection"
    return None


def _status(code: str) -> int:
    """Return the HTTP status of an error code; 500 if the code is unknown."""
    # Numbers come first, because providers use the same words for different errors.
    words = code.split()
    numbers = [int(word) for word in words if _STATUS.fullmatch(word)]
    statuses = [_STATUS_OF[word.lower()] for word in words if word.lower() in _STATUS_OF]
    return next(iter([*numbers, *statuses]), 500)


def _status_error(
    status: int, code: str, explanation: str, headers: Mapping[str, str] | None, target: RequestTarget
) -> ModelError:
    after = _retry_after(headers or {})
    if status == 429:
        return _rate_limit(code, explanation, after, target)
    error_class, advice = _class_and_advice(status, code, explanation, target)
    return error_class(f"{status}: {explanation}; {advice}", status=status, retry_after=after, **target.where)


def _rate_limit(code: str, explanation: str, after: float | None, target: RequestTarget) -> ModelRateLimited:
    is_final = "insufficient_quota" in code
    advice = "wait and retry the request"
    if is_final:
        advice = "waiting will not help: the account has no quota left"
    elif after is not None:
        advice = f"wait {after:g} s and retry the request"
    return ModelRateLimited(
        f"429: {explanation}; {advice}", status=429, retry_after=after, is_final=is_final, **target.where
    )


def _class_and_advice(status: int, code: str, explanation: str, target: RequestTarget) -> tuple[type[ModelError], str]:
    """Return the class of a failure, and advice for the user."""
    if status in (401, 403):
        return ModelAuthError, f"set {target.key_name} or api_key= to a key that may use this model"
    if status >= 500 or status in (408, 409):
        return ModelUnavailable, "the endpoint failed: retry the request later"
    # A wrong path and an unknown model have the same status.
    if status == 404:
        return ModelRequestError, f"check the model name, and that {target.address_hint}{target.advice}"
    if status == 413 or any(words in code or words in explanation for words in _TOO_LONG):
        return ModelRequestError, "the prompt is too long for this model: compose it with a smaller budget"
    return ModelRequestError, "the endpoint does not accept this request: correct the fields that it names"


def _explanation(error: Any) -> tuple[str, str]:
    """Return code and explanation of an error of an endpoint; servers put them in several places."""
    body = error.body
    code = str(getattr(error, "code", None) or "")
    document = body
    if isinstance(body, dict) and "error" not in body:
        document = {"error": body}
    reply = error_in(document)
    if reply is not None:
        return reply.code or code, reply.explanation
    if isinstance(body, str) and body.strip():
        return code, " ".join(body.split())
    if body:
        return code, json.dumps(body, ensure_ascii=False, default=str)
    return code, error.response.reason_phrase or "no explanation"


def _reason(error: BaseException) -> str:
    cause = error.__cause__
    if cause is not None and not isinstance(error, TimeoutError):
        return f"{type(cause).__name__}: {cause}".rstrip(": ")
    return str(error) or type(error).__name__


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the pause that the endpoint requests, in seconds; headers contain milliseconds, seconds or a date."""
    for header, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(header, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < math.inf:
            return seconds
        return None
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError, OverflowError):
        return None
    # The oldest form of a date in HTTP contains no zone.
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
