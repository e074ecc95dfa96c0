"""`DepsSource`: the deps of the runs of an agent: one value, or a function that returns the deps for a caller."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from agentkit.errors import AgentDefinitionError, DepsError, DepsMismatch
from agentkit.run.parts.agent_tools import check_deps
from agentkit_prompts.errors import brief
from agentkit_prompts.system.threads import Threads
from agentkit_tools.errors import describe_error, traceback_text

if TYPE_CHECKING:
    from agentkit_tools.tool import Tool

Deps: TypeAlias = Any
"""Value of the option `deps`: an object for all runs; or a function or class that is called with the `RunCaller` of
each run and returns its deps, also an async function. A generator yields the deps once, and cleans up after the run."""

_SECONDS = 30.0
"""Maximum seconds for the creation of the deps of a run, and for their cleanup."""
_threads = Threads(32, "agentkit-deps")
_log = logging.getLogger("agentkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCaller:
    """Tenant and user for whom a run acts, and the request that started the run.

    A server verifies tenant, user and permissions by the token of the request. The client chooses the session and the
    additional kwargs.
    """

    tenant: str = "local"
    user: str = ""
    """Empty for no user."""
    permissions: frozenset[str] = frozenset()
    """Scopes of the token, such as `run` and `approve`; empty outside of a server."""
    session: str = ""
    """Id of the session; empty without a session."""
    additional_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Additional kwargs of the input."""
    agent: str = ""
    """Name of the agent."""
    run_id: str = ""


class DepsSource:
    """Creates the deps of runs.

    Args:
        deps: See `Deps`.

    Raises:
        AgentDefinitionError: The function cannot be called with one argument.
    """

    def __init__(self, deps: Deps = None) -> None:
        self._deps = deps
        self.is_function = isinstance(deps, type | partial) or inspect.isroutine(deps)
        """True if each run has separate deps."""
        if self.is_function:
            _check_signature(deps)

    def check(self, tools: Iterable[Tool]) -> None:
        """Refuse a value whose type does not match the types that tools require. Deps of a function are checked later.

        Raises:
            DepsMismatch: Tools require another type. The error lists all these tools.
        """
        if not self.is_function:
            check_deps(tools, self._deps)

    @asynccontextmanager
    async def opened(self, caller: RunCaller, tools: Iterable[Tool]) -> AsyncIterator[Any]:
        """Yield the deps of one run, and clean up after the run. An error of the cleanup is logged only.

        Args:
            caller: The caller of the run.
            tools: The tools that require deps.

        Raises:
            DepsMismatch: The deps of all runs have another type than tools require.
            DepsError: The function failed, took too long, or returned deps of another type than tools require.
        """
        if not self.is_function:
            check_deps(tools, self._deps)
            yield self._deps
            return
        stack = AsyncExitStack()
        try:
            deps = await _within_seconds(self._deps, caller, stack)
            check_deps(tools, deps)
        except BaseException as error:
            if _stops_the_run(error):
                await _closed(stack, caller, error)
                raise
            _log_failure(caller, error)
            await _closed(stack, caller, error)
            # Its message names no types: the callers of a server and the models of outer agents read it.
            raise DepsError(caller.agent) from error
        try:
            yield deps
        except BaseException as error:
            await _closed(stack, caller, error)
            raise
        await _closed(stack, caller, None)


def _log_failure(caller: RunCaller, error: BaseException) -> None:
    """Log the cause of a failure: with a traceback if the function raised it."""
    if isinstance(error, DepsMismatch):
        cause = details = f"the function returned another type than the tools require: {'; '.join(error.problems)}"
    elif isinstance(error, _DepsTimeout):
        cause = details = str(error)
    else:
        cause, details = describe_error(error), traceback_text(error)
    # Commands of a terminal print the summary instead of the traceback.
    extra = {"summary": f"the deps of the agent {caller.agent} failed: {cause}"}
    _log.error("run %s: the deps of the agent %s failed: %s", caller.run_id, caller.agent, details, extra=extra)


class _DepsTimeout(Exception):
    """The function took too long."""


async def _within_seconds(function: Callable[[RunCaller], Any], caller: RunCaller, stack: AsyncExitStack) -> Any:
    """Return the deps of a function.

    Raises:
        _DepsTimeout: The function took too long.
    """
    timer = asyncio.timeout(_SECONDS)
    try:
        async with timer:
            return await _called(function, caller, stack)
    except TimeoutError:
        if timer.expired():
            raise _DepsTimeout(f"{_name_of(function)} did not return within {_SECONDS:g} seconds") from None
        raise


def _stops_the_run(error: BaseException) -> bool:
    """True if the error is not a failure of the function: Ctrl-C, or the cancellation of the run."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)


async def _called(function: Callable[[RunCaller], Any], caller: RunCaller, stack: AsyncExitStack) -> Any:
    """Return the deps of a function; its cleanup is added to `stack`."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        deps = function(caller)
    else:
        deps = await _threads.run(function, caller)
    if inspect.isawaitable(deps):
        return await deps
    generator: Any = deps
    if inspect.isasyncgen(deps):
        deps = asynccontextmanager(lambda: generator)()
    elif inspect.isgenerator(deps):
        deps = contextmanager(lambda: generator)()
    # Only managers of generators: deps such as an HTTP client are managers too, and belong to their program.
    if hasattr(deps, "gen") and isinstance(deps, AbstractAsyncContextManager):
        return await stack.enter_async_context(deps)
    if hasattr(deps, "gen") and isinstance(deps, AbstractContextManager):
        return await stack.enter_async_context(_InThreads(deps))
    return deps


class _InThreads(AbstractAsyncContextManager[Any]):
    """A context manager that is entered and left in threads, because its code can wait for a network."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        return await _threads.run(self._manager.__enter__)

    async def __aexit__(self, *error: Any) -> bool:
        return bool(await _threads.run(self._manager.__exit__, *error))


async def _closed(stack: AsyncExitStack, caller: RunCaller, error: BaseException | None) -> None:
    """Clean up after a run; `error`: the error that ended the run."""
    error_type = traceback = None
    if error is not None:
        error_type, traceback = type(error), error.__traceback__
    try:
        async with asyncio.timeout(_SECONDS):
            await stack.__aexit__(error_type, error, traceback)
    except Exception as problem:
        # The function can raise the error of the run again. Another error must not replace the outcome of the run.
        if problem is not error:
            _log.error("run %s: the cleanup of its deps failed", caller.run_id, exc_info=problem)


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    return str(getattr(function, "__qualname__", brief(function, 60)))


def _check_signature(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(RunCaller())
    except TypeError as error:
        raise AgentDefinitionError(
            f"the function {_name_of(function)} of the deps must accept one argument, the RunCaller of a run: {error}",
            name="deps",
        ) from None
    except ValueError:  # a builtin without a signature
        return
