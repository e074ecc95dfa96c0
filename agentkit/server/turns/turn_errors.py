"""What ended a run, as an answer to the request that began it: without the address of a model or an inner text."""

from __future__ import annotations

import logging
from itertools import islice

from sqlalchemy.exc import SQLAlchemyError

from agentkit.errors import AgentDefinitionError, AgentError, LimitExceeded, OutputError, SessionBusy
from agentkit.models.model_errors import (
    ModelAuthError,
    ModelError,
    ModelInterrupted,
    ModelRateLimited,
    ModelReplyCut,
    ModelRequestError,
)
from agentkit.runs.run_errors import RunNotFound
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
from agentkit_prompts.errors import BudgetError, KwargsError, PromptError
from agentkit_tools.errors import ToolError

__all__ = ["server_error"]

_MAX_PROBLEMS = 100
_log = logging.getLogger("agentkit.server")


def server_error(error: BaseException) -> ServerError:
    """Return an error as the server answers it; what is not the client's to know is logged."""
    if isinstance(error, ServerError):
        return error
    if isinstance(error, KwargsError):
        shown = islice(error.problems.items(), _MAX_PROBLEMS)
        kwargs = {name: {"problem": what, "required_by": list(paths)} for name, (what, paths) in shown}
        details = {"additional_kwargs": kwargs}
        return Unprocessable(str(error), param="additional_kwargs", code="invalid_kwargs", details=details)
    if isinstance(error, ModelError):
        return _of_model(error)
    if isinstance(error, BudgetError):
        return BadRequest(str(error), code="context_length_exceeded")
    if isinstance(error, RunNotFound):
        return UnknownResource(f"unknown run {error.run_id!r:.80}", code="run_not_found")
    if isinstance(error, SessionBusy):
        return Conflict(str(error), code="session_busy")
    if isinstance(error, LimitExceeded):
        return BadRequest(str(error), code="limit_exceeded", details={"limit": error.limit})
    if isinstance(error, OutputError):
        return UpstreamFailed(str(error), code="invalid_output")
    if isinstance(error, AgentDefinitionError | InvalidArgument | PromptError | ToolError):
        return BadRequest(str(error), code="invalid_request")
    if isinstance(error, AgentError):
        return Conflict(str(error), code=type(error).__name__)
    _log.error("a request failed", exc_info=error)
    if isinstance(error, StoreError | SQLAlchemyError):
        return ServerFull(
            "the store of the server cannot be used now: try again", code="store_unavailable", retry_after=5.0
        )
    return ServerError("an internal error; the log of the server has more", code="internal_error")


def _of_model(error: ModelError) -> ServerError:
    _log.warning("a model failed: %s", error)
    if isinstance(error, ModelRateLimited):
        return QuotaExceeded(
            "the model of the agent is asked too often, or its quota is used up",
            code="model_rate_limited",
            retry_after=error.retry_after,
        )
    if isinstance(error, ModelRequestError) and error.status is not None:
        return BadRequest("the model of the agent cannot accept this request", code="model_request_refused")
    if isinstance(error, ModelReplyCut):
        return BadRequest("the reply was cut at its limit of tokens: allow more", code="length")
    if isinstance(error, ModelInterrupted):
        return UpstreamFailed("the reply of the model broke off: ask again", code="model_interrupted")
    if isinstance(error, ModelAuthError):
        return UpstreamFailed("the server may not ask the model of the agent", code="model_refused_server")
    return UpstreamFailed("the model of the agent cannot be reached, or failed: ask again", code="model_unavailable")
