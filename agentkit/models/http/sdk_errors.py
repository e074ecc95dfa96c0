"""What goes wrong between an SDK and an endpoint, as our errors: by status, by code, or by how a connection failed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agentkit.models.http.error_reply import ErrorReply, error_in
from agentkit.models.http.reply_reader import IncompleteCall, ProtocolError
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

__all__ = ["RequestTarget", "translate"]

_MAX_CHARS = 500

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
    # servers of one's own
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
    """Who was asked, and what the messages of errors need to know about it."""

    model: str
    host: str
    path: str
    """Where the request went, behind the base URL."""
    noun: str
    """What a reply is called."""
    keys: str
    """What gives the key, such as `OPENAI_API_KEY`."""
    address: str
    """What gives the base URL, and how it must end."""
    other_form: str = ""
    """What else to do, where a server may be there that is asked in another way."""
    secrets: Sequence[str] = ()
    """What is kept out of messages."""

    @property
    def where(self) -> Where:
        """The same, as errors take it."""
        return {"model": self.model, "host": self.host}

    def shown(self, text: str) -> str:
        """Return text of the endpoint as it may stand in a message."""
        text = masked(text, self.secrets)
        if len(text) <= _MAX_CHARS:
            return text
        return f"{text[:_MAX_CHARS]}..."


def translate(error: Exception, target: RequestTarget, received: str | None = None) -> ModelError | None:
    """Return our error for one of an SDK, its HTTP library or our readers; None for any other.

    `received` is the text that a stream has brought so far, None where nothing has come (yet).
    """
    where = target.where
    if isinstance(error, IncompleteCall):
        message = f"the reply was cut at its limit of tokens {error}; allow more max_tokens in its settings"
        return ModelReplyCut(message, text=received or "", **where)
    # An error inside a stream has no status: its code names one.
    if isinstance(error, ErrorReply):
        if received:
            return ModelInterrupted.after(received, target.shown(error.explanation), **where)
        return _from_status(_status(error.code), error.code, target.shown(error.explanation), None, target)
    # Before the ValueErrors below, of which this is one.
    if isinstance(error, ProtocolError):
        shown = target.shown(str(error))
        return ModelReplyError(
            f"the reply is not a {target.noun}: {shown}; check that {target.address}{target.other_form}", **where
        )
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    if response is not None and isinstance(status, int):
        code, explanation = _explanation(error)
        return _from_status(status, code, target.shown(explanation), response.headers, target)
    if (kind := _connection(error)) is not None:
        reason = target.shown(_reason(error))
        if received is not None:
            return ModelInterrupted.after(received, reason, **where)
        if kind == "timeout":
            return ModelUnavailable(
                f"no answer in time ({reason}); ask again, or allow a longer timeout in its settings", **where
            )
        return ModelUnavailable(
            f"no connection ({reason}): is the server running? Check that {target.address}", **where
        )
    if isinstance(error, UnicodeEncodeError):
        return ModelRequestError(
            "the prompt holds a lone surrogate, which UTF-8 cannot carry; clean the text where it comes in, with "
            'text.encode("utf-8", "replace").decode()',
            **where,
        )
    if isinstance(error, TypeError | ValueError | RecursionError):
        return ModelRequestError(f"the request cannot be put on the wire: {target.shown(str(error))}", **where)
    return None


def _connection(error: BaseException) -> str | None:
    """Return `timeout` or `connection` for an error of an SDK or of its HTTP library; None for any other."""
    # Classes are compared by name, because an SDK may be missing or have another version.
    names = {
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.startswith(("openai", "anthropic", "http"))
    }
    if names & {"APITimeoutError", "TimeoutException"} or isinstance(error, TimeoutError):
        return "timeout"
    if names & {"APIConnectionError", "TransportError", "RequestError", "StreamError"}:
        return "connection"
    return None


def _status(code: str) -> int:
    """Return the status that the words of an error code stand for; 500 where they are unknown."""
    # Numbers come first, because words are used by several providers for different errors.
    words = code.split()
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal() and 400 <= int(word[:4]) <= 599]
    known = [_STATUS_OF[word.lower()] for word in words if word.lower() in _STATUS_OF]
    return next(iter([*numbers, *known]), 500)


def _from_status(
    status: int, code: str, explanation: str, headers: Mapping[str, str] | None, target: RequestTarget
) -> ModelError:
    after = None
    if headers is not None:
        after = _retry_after(headers)
    make, hint = _kind(status, code, explanation, after, target)
    message = f"{status}: {explanation}; {hint}"
    if make is ModelRateLimited:
        return ModelRateLimited(
            message, status=status, retry_after=after, is_final="insufficient_quota" in code, **target.where
        )
    return make(message, status=status, **target.where)


def _kind(
    status: int, code: str, explanation: str, after: float | None, target: RequestTarget
) -> tuple[type[ModelError], str]:
    """Return the kind of a failure, and what to do about it."""
    if status in (401, 403):
        return ModelAuthError, f"set {target.keys} or api_key= to a key that may use this model"
    if status == 429:
        if "insufficient_quota" in code:
            return ModelRateLimited, "waiting will not help: the account has no quota left"
        return ModelRateLimited, "wait and ask again" if after is None else f"wait {after:g} s and ask again"
    if status >= 500 or status in (408, 409):
        return ModelUnavailable, "the endpoint failed: ask again later"
    # A wrong path and an unknown model have the same status.
    if status == 404:
        return ModelRequestError, f"check the model name, and that {target.address}{target.other_form}"
    if status == 413 or any(words in code or words in explanation for words in _TOO_LONG):
        return ModelRequestError, "the prompt is too long for this model: compose it with a smaller budget"
    return ModelRequestError, "the endpoint does not accept this request: correct what it names"


def _explanation(error: Any) -> tuple[str, str]:
    """Return code and explanation of an endpoint, which servers put in several places."""
    body = error.body
    code = str(getattr(error, "code", None) or "")
    found = error_in({"error": body} if isinstance(body, dict) and "error" not in body else body)
    if found is not None:
        is_silent = isinstance(body, dict) and not body
        return found.code or code, "no explanation" if is_silent else found.explanation
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
    """Return the seconds that the endpoint asks us to wait, given as milliseconds, seconds or a date."""
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
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
