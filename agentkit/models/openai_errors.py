"""Errors of the `openai` SDK, translated to our own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import openai

from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailable,
    Where,
    spellings,
)
from agentkit.models.reply_reader import ProtocolError

__all__ = ["translate"]

_MAX_CHARS = 500
_NOUNS = {"/chat/completions": "chat completion", "/completions": "completion"}
_MALFORMED = (ProtocolError, json.JSONDecodeError, UnicodeDecodeError, RecursionError)


def translate(
    error: Exception, *, model: str, host: str, secrets: Sequence[str], path: str, received: str | None = None
) -> ModelError | None:
    """Return our error for one of the SDK, or None for any other.

    `received` is the text that a stream has brought so far, None where nothing is streamed (yet); `secrets` are kept
    out of the message; `path` is where the request went, behind the base URL.
    """
    address = f"base_url (OPENAI_BASE_URL) ends where {path} begins, often in /v1"
    where: Where = {"model": model, "host": host}

    forms = [form for secret in secrets for form in spellings(secret)]

    def shown(text: str) -> str:
        for form in forms:
            text = text.replace(form, "***")
        return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."

    if isinstance(error, openai.APIStatusError):
        return _from_status(error, error.status_code, shown(_message(error)), address, where)
    if isinstance(error, openai.APIConnectionError):
        reason = shown(_reason(error))
        if received is not None:
            return ModelInterrupted.after(received, reason, **where)
        if isinstance(error, openai.APITimeoutError):
            return ModelUnavailable(f"no answer in time ({reason}); ask again, or allow a longer timeout=", **where)
        return ModelUnavailable(
            f"no connection ({reason}); is the server running, and base_url (OPENAI_BASE_URL) right?", **where
        )
    if isinstance(error, openai.APIError):  # an event of the stream that names what went wrong
        if received:
            return ModelInterrupted.after(received, shown(error.message), **where)
        status = int(error.code) if error.code and error.code.isdecimal() else 500
        return _from_status(error, status, shown(error.message), address, where)
    if isinstance(error, _MALFORMED):
        what = "JSON nested too deep" if isinstance(error, RecursionError) else shown(str(error))
        return ModelReplyError(f"the reply is not a {_NOUNS[path]}: {what}; check that {address}", **where)
    if isinstance(error, UnicodeEncodeError):
        return ModelRequestError(
            "the prompt holds a lone surrogate, which UTF-8 cannot carry; clean the text where it comes in, with "
            'text.encode("utf-8", "replace").decode()',
            **where,
        )
    if isinstance(error, TypeError | ValueError):
        return ModelRequestError(f"the request cannot be put on the wire: {shown(str(error))}", **where)
    return None


def _from_status(error: openai.APIError, status: int, explanation: str, address: str, where: Where) -> ModelError:
    make, hint = _refused(error, status, address)
    message = f"{status}: {explanation}; {hint}"
    if make is ModelRateLimited:
        return ModelRateLimited(message, status=status, retry_after=_retry_after(error), **where)
    return make(message, status=status, **where)


def _refused(error: openai.APIError, status: int, address: str) -> tuple[type[ModelError], str]:
    """Return the kind of a failure, and what to do about it."""
    if status in (401, 403):
        return ModelAuthError, "set OPENAI_API_KEY or api_key= to a key that may use this model"
    if status == 429:
        if error.code == "insufficient_quota":
            return ModelRateLimited, "waiting will not help: the account has no quota left"
        after = _retry_after(error)
        return ModelRateLimited, "wait and ask again" if after is None else f"wait {after:g} s and ask again"
    if status >= 500 or status in (408, 409):
        return ModelUnavailable, "the endpoint failed: ask again later"
    if status == 404:
        return ModelRequestError, f"check the model name, and that {address}"
    if status == 413 or error.code == "context_length_exceeded":
        return ModelRequestError, "the prompt is too long for this model: compose it with a smaller budget"
    return ModelRequestError, "the endpoint does not accept this request: correct what it names"


def _message(error: openai.APIStatusError) -> str:
    """Return the endpoint's explanation, which servers put in several places."""
    body = error.body
    if isinstance(body, dict):
        found = body.get("message") or body.get("detail") or body
        return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
    if isinstance(body, str) and body.strip():
        return " ".join(body.split())
    return error.response.reason_phrase or "no explanation"


def _reason(error: openai.APIError) -> str:
    cause = error.__cause__
    return f"{type(cause).__name__}: {cause}".rstrip(": ") if cause else error.message


def _retry_after(error: openai.APIError) -> float | None:
    """Return the seconds that the endpoint asks us to wait, given as milliseconds, seconds or a date."""
    if not isinstance(error, openai.APIStatusError):
        return None
    headers = error.response.headers
    for header, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(header, "")) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < math.inf else None
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
