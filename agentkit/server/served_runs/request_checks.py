"""Checks of requests that start a run or decide about its calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentkit.errors import ApprovalError
from agentkit.run.parts.decisions import INVALID_ARGUMENTS, Decision
from agentkit.runs.run_record import RunRecord
from agentkit.server.server_errors import Conflict, QuotaExceeded, ServerError, ServerFull, Unprocessable
from agentkit.server.server_options import ServerOptions


def check_decisions(record: RunRecord, decisions: Mapping[str, Decision]) -> None:
    """Check that all decided calls of a run wait for a decision.

    Raises:
        Conflict: The run does not wait for a decision.
        Unprocessable: A decision has an unknown call id.
    """
    if record.state != "waiting":
        raise not_waiting(record)
    unknown = sorted(decisions.keys() - {call.call_id for call in record.waiting})
    if unknown:
        raise Unprocessable(
            f"unknown call ids: {', '.join(map(repr, unknown)):.200}; waiting calls: "
            f"{', '.join([call.call_id for call in record.waiting])}",
            param="decisions",
            code="unknown_call",
        )


def check_room(tenant: str, live: Sequence[str], options: ServerOptions, *, is_closing: bool) -> None:
    """Check that the server may start another run of a tenant.

    Args:
        tenant: The tenant of the new run.
        live: The tenants of the running and queued runs, one entry per run.
        options: Limits of the server.
        is_closing: True if the server stops.

    Raises:
        ServerFull: The server stops, or its queue is full.
        QuotaExceeded: The tenant has too many unfinished runs.
    """
    if is_closing:
        raise ServerFull("the server is shutting down: retry", code="shutting_down", retry_after=5.0)
    if len(live) >= options.background_runs + options.queued_runs:
        raise ServerFull(
            f"the server has {len(live)} running and queued runs, the maximum: retry",
            code="overloaded",
            retry_after=5.0,
        )
    count = live.count(tenant)
    if count >= options.runs_per_tenant:
        raise QuotaExceeded(
            f"the tenant {tenant!r} has {count} unfinished runs, the maximum: wait for a run to finish",
            code="concurrency_limit_exceeded",
            retry_after=5.0,
        )


def check_keys(count: int, tenant: str, options: ServerOptions) -> None:
    """Check that a tenant may use another idempotency key: runs with young keys are not deleted to make room.

    Raises:
        QuotaExceeded: The tenant has too many keys.
    """
    if count >= options.kept_keys:
        raise QuotaExceeded(
            f"the tenant {tenant!r} has used {count} idempotency keys in the last {options.key_seconds / 3600:g} "
            "hours, the maximum: wait, or send the request without a key",
            code="too_many_keys",
            retry_after=60.0,
        )


def same_run(existing: RunRecord, record: RunRecord) -> RunRecord:
    """Return the existing run of an idempotency key, if it equals the requested run.

    Raises:
        Conflict: The key was used for a different run.
    """
    names = ("agent", "input", "session", "user", "locale", "tags")
    if any(getattr(existing, name) != getattr(record, name) for name in names):
        raise Conflict(
            f"the idempotency key {record.key!r:.80} was used for a different run: use a unique key per run",
            code="idempotency_key_reused",
        )
    return existing


def not_waiting(record: RunRecord) -> Conflict:
    """Return the error of a decision about a run that waits for no decision."""
    return Conflict(f"the run {record.run_id} does not wait for a decision: it is {record.state}", code="not_waiting")


def refused_decision(error: ApprovalError) -> ServerError:
    """Return the error of decisions that were not stored: invalid arguments, or another request decided first."""
    if error.name == INVALID_ARGUMENTS:
        return Unprocessable(str(error), param="decisions", code="invalid_arguments")
    return Conflict(str(error), code="not_waiting")
