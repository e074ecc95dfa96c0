"""`ErrorReply`: an error that an endpoint sends instead of a reply, with any status."""

from __future__ import annotations

import json
from typing import Any

_BASE_CODES = {
    1002: "rate_limit_exceeded",
    1004: "invalid_api_key",
    1008: "insufficient_quota",
    1026: "content_filter",
    1027: "content_filter",
    1039: "context_length_exceeded",
    2013: "invalid_request_error",
    2049: "invalid_api_key",
}
"""Codes of OpenAI by the codes of MiniMax (platform.minimax.io/docs/api-reference/errorcode)."""
_KEYS_OF_REPLIES = frozenset(("choices", "content", "output", "type", "object", "usage"))


class ErrorReply(Exception):
    """An error that a server sent, with any status.

    Attributes:
        code: Code or type of the error, as the server sent it; empty if the server sent none.
        explanation: Explanation of the error.
    """

    def __init__(self, code: str, explanation: str) -> None:
        super().__init__(explanation)
        self.code = code
        self.explanation = explanation


def error_in(document: object) -> ErrorReply | None:
    """Return the error in a document, in any form that endpoints send; None if the document is not an error."""
    # Gemini sends a list of one object.
    if isinstance(document, list) and len(document) == 1:
        document = document[0]
    if not isinstance(document, dict):
        return None
    for find in (_named_error, _error_of_choice, _base_error, _typed_error, _bare_error):
        if error := find(document):
            return _reply_of(error, document)
    return None


def _named_error(document: dict[str, Any]) -> object:
    """Find `{"error": ...}`, as OpenAI sends it."""
    return document.get("error")


def _error_of_choice(document: dict[str, Any]) -> object:
    """Find the error of a choice, which proxies send in the middle of a stream."""
    choices = document.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0].get("error")
    return None


def _base_error(document: dict[str, Any]) -> object:
    """Find `{"base_resp": {"status_code": ...}}`, as MiniMax sends it with status 200; 0 is success."""
    base = document.get("base_resp")
    if not isinstance(base, dict) or not base.get("status_code"):
        return None
    code = base["status_code"]
    explanation = base.get("status_msg") or f"the endpoint failed with the code {code}"
    name = "server_error"
    if isinstance(code, int):
        name = _BASE_CODES.get(code, name)
    return {"code": name, "message": explanation}


def _typed_error(document: dict[str, Any]) -> object:
    """Find a document that is itself an error, as vLLM sends it."""
    if document.get("object") == "error" or document.get("type") == "error":
        return document
    return None


def _bare_error(document: dict[str, Any]) -> object:
    """Find `{"detail": ...}` and `{"message": ...}`, as web frameworks send them, in a document without a reply."""
    if document.keys() & _KEYS_OF_REPLIES:
        return None
    if detail := document.get("detail"):
        return detail
    if isinstance(document.get("message"), str):
        return document
    return None


def _reply_of(error: Any, document: dict[str, Any]) -> ErrorReply:
    if error is True:
        return ErrorReply("", "the endpoint failed without a reason")
    if not isinstance(error, dict):
        code = document.get("error_type") or document.get("code") or ""
        return ErrorReply(str(code), _as_text(error))
    while isinstance(error.get("error"), dict):
        error = error["error"]
    words = [str(error[key]) for key in ("code", "status", "type") if error.get(key) not in (None, "", "error")]
    explanation = error.get("message") or error.get("msg") or error.get("detail") or error
    return ErrorReply(" ".join(words), _as_text(explanation))


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
