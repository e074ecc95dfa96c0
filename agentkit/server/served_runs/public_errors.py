"""`public_error`: errors of runs as clients of the server receive them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentkit.errors import AgentError, DepsMismatch, GuardError, ToolCallError
from agentkit.models.model_errors import ModelError
from agentkit.runs.run_errors import DatabaseUnavailable
from agentkit.runs.run_record import RunError, RunRecord
from agentkit_memory import StoreError
from agentkit_prompts.errors import PromptError, SelectorError
from agentkit_tools.errors import ToolError

_PUBLIC_ERRORS = (AgentError, ModelError, PromptError, ToolError, StoreError)
"""Classes of errors whose message is sent to clients."""
_INTERNAL_ERRORS = (DatabaseUnavailable, DepsMismatch, GuardError, SelectorError, ToolCallError)
"""Subclasses whose message is for the operator: it contains the address of a database, types of the program, or
the exception of a tool, a guard or a selector."""


def is_public(error: BaseException) -> bool:
    """True if clients may read the message of an error."""
    return isinstance(error, _PUBLIC_ERRORS) and not isinstance(error, _INTERNAL_ERRORS)


def public_error(error: BaseException) -> RunError:
    """Return an error for clients; an internal error has a general message."""
    name = type(error).__name__
    if is_public(error):
        return RunError(name, str(error))
    return RunError(name, "internal error; see the log of the server")


def with_public_error(record: RunRecord) -> RunRecord:
    """Return a run with an error for clients."""
    error = record.error
    # Only workers of durable runs store internal errors as they are.
    if error is None or record.executor != "dbos":
        return record
    public_names = {kind.__name__ for kind in with_subclasses(_PUBLIC_ERRORS)}
    if error.type in public_names.difference(kind.__name__ for kind in with_subclasses(_INTERNAL_ERRORS)):
        return record
    message = "internal error; see `agentkit runs show`"
    return replace(record, error=RunError(error.type, message))


def with_subclasses(kinds: tuple[type[BaseException], ...]) -> Iterator[type[BaseException]]:
    """Yield classes of errors, each with all its subclasses."""
    for kind in kinds:
        yield kind
        yield from with_subclasses(tuple(kind.__subclasses__()))
