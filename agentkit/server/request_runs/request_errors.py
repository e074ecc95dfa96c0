"""Errors of runs as errors of the server, without addresses of models and internal details."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

from sqlalchemy.exc import SQLAlchemyError

from agentkit.errors import (
    AgentDefinitionError,
    AgentError,
    DepsError,
    LimitExceeded,
    OutputError,
    RunEnded,
    SessionBusy,
)
from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelReplyCut,
    ModelRequestError,
)
from agentkit.runs.run_errors import DatabaseUnavailable, RunNotFound
from agentkit.server.served_runs.event_form import snake_case
from agentkit.server.served_runs.public_errors import is_public
from agentkit.server.server_errors import (
    BadRequest,
    Conflict,
    QuotaExceeded,
    ServerError,
    ServerFull,
    UnknownResource,
    Unprocessable,
    UpstreamFailed,
)
from agentkit_memory import InvalidArgument, StoreError
from agentkit_prompts.errors import BudgetError, KwargsError, PromptError, SelectorError
from agentkit_tools.errors import ToolError

_MAX_PROBLEMS = 100
_CODES: Sequence[tuple[type[Exception], type[ServerError], str]] = (
    (BudgetError, BadRequest, "context_length_exceeded"),
    (RunEnded, Conflict, "run_ended"),
    (SessionBusy, Conflict, "session_busy"),
    (OutputError, UpstreamFailed, "invalid_output"),
)
"""Errors of runs that the client receives with their text, with the error of the server and its code."""
_log = logging.getLogger("agentkit.server")


def server_error(error: BaseException) -> ServerError:
    """Return the error that a client receives; internal errors are logged and replaced."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, KwargsError):
        problems = islice(error.problems.items(), _MAX_PROBLEMS)
        kwargs = {name: {"problem": message, "required_by": list(paths)} for name, (message, paths) in problems}
        details = {"additional_kwargs": kwargs}
        return Unprocessable(str(error), param="additional_kwargs", code="invalid_kwargs", details=details)
    if isinstance(error, ModelError):
        return _model_error(error)
    for kind, answer, code in _CODES:
        if isinstance(error, kind):
            return answer(str(error), code=code)
    if isinstance(error, RunNotFound):
        return UnknownResource(f"unknown run {error.run_id!r:.80}", code="run_not_found")
    if isinstance(error, LimitExceeded):
        return BadRequest(str(error), code="limit_exceeded", details={"limit": error.limit})
    is_invalid = isinstance(error, AgentDefinitionError | InvalidArgument | PromptError | ToolError)
    if is_invalid and not isinstance(error, SelectorError):
        return BadRequest(str(error), code="invalid_request")
    if isinstance(error, DepsError):
        # `DepsSource` logged the cause.
        return ServerError("the server could not create the dependencies of the run: retry", code="deps_failed")
    if isinstance(error, AgentError) and is_public(error):
        return Conflict(str(error), code=snake_case(type(error).__name__))
    # Any other error may contain addresses, paths or SQL: the client receives a general message.
    _log.error("a request failed", exc_info=error)
    if isinstance(error, StoreError | SQLAlchemyError | DatabaseUnavailable):
        return ServerFull("the store of the server is not available: retry", code="store_unavailable", retry_after=5.0)
    return ServerError("internal error; see the log of the server", code="internal_error")


def _model_error(error: ModelError) -> ServerError:
    _log.warning("a model failed: %s", error)
    if isinstance(error, ModelRateLimited):
        return QuotaExceeded(
            "the model of the agent exceeded its rate limit or quota",
            code="model_rate_limited",
            retry_after=error.retry_after,
        )
    if isinstance(error, ModelRequestError) and error.status is not None:
        return BadRequest("the model of the agent refused this request", code="model_request_refused")
    if isinstance(error, ModelReplyCut):
        return BadRequest("the reply was cut at its token limit: raise the limit", code="length")
    if isinstance(error, ModelInterrupted):
        return UpstreamFailed("the reply of the model was interrupted: retry", code="model_interrupted")
    if isinstance(error, ModelAuthError):
        return UpstreamFailed("the server has no valid key for the model of the agent", code="model_refused_server")
    return UpstreamFailed(
        "the model of the agent failed or cannot be reached: retry",
        code="model_unavailable",
        retry_after=error.retry_after,
    )
