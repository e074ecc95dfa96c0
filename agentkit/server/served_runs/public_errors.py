"""`public_error`: what clients of the server read about the error of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentkit.errors import AgentError
from agentkit.models.model_errors import ModelError
from agentkit.runs.run_record import RunError, RunRecord
from agentkit_memory import StoreError
from agentkit_prompts.errors import PromptError
from agentkit_tools.errors import ToolError

__all__ = ["OUR_ERRORS", "public_error", "shown_error"]

OUR_ERRORS = (AgentError, ModelError, PromptError, ToolError, StoreError)
"""Errors whose text may be shown to clients."""


def public_error(error: BaseException) -> RunError:
    """Return what clients read about an error; of a class that is not ours, its name only."""
    name = type(error).__name__
    if isinstance(error, OUR_ERRORS):
        return RunError(name, str(error))
    return RunError(name, "an internal error ended the run; the log of the server has more")


def shown_error(record: RunRecord) -> RunRecord:
    """Return a run with the error that clients read: workers store errors as they are."""
    error = record.error
    if error is None or record.executor != "dbos" or error.type in {one.__name__ for one in _ours(OUR_ERRORS)}:
        return record
    what = "an internal error ended the run; see `agentkit runs show`"
    return replace(record, error=RunError(error.type, what))


def _ours(kinds: tuple[type[BaseException], ...]) -> Iterator[type[BaseException]]:
    for kind in kinds:
        yield kind
        yield from _ours(tuple(kind.__subclasses__()))
