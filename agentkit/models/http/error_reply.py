"""`ErrorReply`: what endpoints send in the place of a reply, whatever the status of the answer."""

from __future__ import annotations

import json

__all__ = ["ErrorReply", "error_in"]


class ErrorReply(Exception):
    """What a server sent is an error, whatever the status of its answer.

    Attributes:
        code: Its code or type, as the server names it; empty where it names none.
        explanation: What it says.
    """

    def __init__(self, code: str, explanation: str) -> None:
        super().__init__(explanation)
        self.code = code
        self.explanation = explanation


def error_in(document: object) -> ErrorReply | None:
    """Return the error that an answer is, in the forms that endpoints give it; None for any other."""
    if isinstance(document, list) and len(document) == 1:  # Gemini
        document = document[0]
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if not error and isinstance(choices := document.get("choices"), list) and choices:
        first = choices[0]
        error = first.get("error") if isinstance(first, dict) else None
    if not error and (document.get("object") == "error" or document.get("type") == "error"):
        error = document
    if not error and not document.keys() & {"choices", "content", "output", "type", "object", "usage"}:
        error = document.get("detail") or (document if isinstance(document.get("message"), str) else None)
    if not error or error is True:
        return ErrorReply("", "the endpoint failed without a reason") if error else None
    if not isinstance(error, dict):
        code = document.get("error_type") or document.get("code") or ""
        return ErrorReply(str(code), _as_text(error))
    while isinstance(error.get("error"), dict):
        error = error["error"]
    words = [str(error[key]) for key in ("code", "status", "type") if error.get(key) not in (None, "", "error")]
    explanation = error.get("message") or error.get("msg") or error.get("detail") or error
    return ErrorReply(" ".join(words), _as_text(explanation))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
