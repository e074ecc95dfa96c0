"""The spellings of finish reasons that servers send."""

from __future__ import annotations

from agentkit.models.http.error_reply import ErrorReply

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "stop": ("stop", "end_turn", "stop_sequence", "eos", "eos_token", "end", "complete", "completed", "finished"),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "function_call"),
    "length": (
        *("length", "max_length", "max_tokens", "max_token", "max_output_tokens", "max_completion_tokens"),
        *("max_new_tokens", "model_length", "token_limit", "max_tokens_reached", "length_limit"),
        *("model_context_window_exceeded", "context_length_exceeded", "context_length", "context_window_exceeded"),
    ),
    "content_filter": (
        *("content_filter", "content_filtered", "safety", "sensitive", "recitation", "prohibited_content"),
        *("blocklist", "spii", "guardrail_intervened"),
    ),
    "error": (
        *("error", "abort", "aborted", "cancel", "cancelled", "canceled", "failed", "failure"),
        *("engine_error", "engine_overloaded"),
        *("network_error", "server_error", "internal_error", "insufficient_system_resource", "timeout"),
        *("malformed_function_call", "function_call_filter:_malformed_function_call", "unexpected_tool_call"),
        "malformed_tool_call",
    ),
}
"""Finish reason, and its spellings in lower case."""
_REASON_OF = {spelling: reason for reason, spellings in _SPELLINGS.items() for spelling in spellings}


def known_reason(sent: str) -> str:
    """Return a finish reason in its usual spelling; an unknown reason is returned as the server sent it."""
    spelling = sent.strip().lower().replace("-", "_").replace(" ", "_")
    # Names of enumerations contain the name of their class.
    return _REASON_OF.get(spelling.removeprefix("finishreason.").removeprefix("finish_reason_"), sent)


def check_reason(sent: object) -> str | None:
    """Return a finish reason in its usual spelling; None if the server sent none.

    Raises:
        ErrorReply: The server gave up, so that the reply is incomplete.
    """
    # Some servers send the word null until the reply ends.
    if not isinstance(sent, str) or sent in ("", "null"):
        return None
    reason = known_reason(sent)
    if reason == "error":
        raise ErrorReply("", f"the endpoint failed during the reply (finish_reason: {sent})")
    return reason
