"""Runner of the function of a tool: on the event loop or in a thread, within a time limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import (
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
    isroutine,
)
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import outcome
from agentkit_tools.calling.result_content import collect, gather
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, failed, finished
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import ends_run
from agentkit_tools.schemas.callables import inner_function, is_model, raw
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments, ModelArguments

    Bind: TypeAlias = Callable[[Arguments, ToolContext[Any]], tuple[tuple[Any, ...], Arguments]]

T = TypeVar("T")

RunMode = Literal["async", "sync", "model"]
"""Modes of running a function: `async` functions and async generators are awaited, `sync` functions run in a thread,
and a `model` of pydantic is created when its arguments are read."""


@dataclass(slots=True)
class FunctionRunner:
    """Runner of the function of a tool."""

    mode: RunMode
    bind: Bind | None
    """Converts validated arguments to positional and keyword arguments; None if they are the keyword arguments."""
    nothing: str
    """Text for the model instead of None."""
    yields: bool = False
    """True if the function, or the function that it wraps, is a generator function: its items are the result."""

    @classmethod
    def of(cls, function: Any, bind: Bind | None, nothing: str) -> FunctionRunner:
        """Return the runner of `function`. The mode depends on the outermost callable, not on a wrapped function."""
        return cls(_mode_of(raw(function)), bind, nothing, isgeneratorfunction(inner_function(function)))

    async def run(
        self,
        function: Any,
        call: ToolCall,
        arguments: Arguments,
        context: ToolContext[Any],
        policy: ToolPolicy,
        seconds: float | None,
    ) -> ToolResult:
        """Call the function once.

        Args:
            function: The function of the tool.
            call: The call of the model.
            arguments: Its validated arguments.
            context: Its context.
            policy: The policy of the tool.
            seconds: The time limit.
        """
        if self.mode == "model":
            return finished(call, cast("ModelArguments", arguments).model, policy, self.nothing)
        if self.mode == "async":
            value, error = await outcome(self._value(function, arguments, context, policy), seconds)
        else:
            began = perf_counter()
            in_thread = partial(self._in_thread, function, call, arguments, context, policy)
            value, error = await run_in_thread(in_thread, seconds)
            if error is not None and ends_run(error, in_thread=True):
                raise error
            if isinstance(value, ToolResult):
                return value
            if error is None:
                # The function returned an object that can only be awaited on the event loop.
                if seconds is not None:
                    seconds = max(seconds - (perf_counter() - began), 0.0)
                value, error = await outcome(_awaited(value, policy.max_result_chars), seconds)
        if error is not None:
            return failed(call, error, policy)
        return finished(call, value, policy, self.nothing)

    def _start(self, function: Any, arguments: Arguments, context: ToolContext[Any]) -> Any:
        if self.bind is None:
            return function(**arguments)
        args, kwargs = self.bind(arguments, context)
        return function(*args, **kwargs)

    async def _value(self, function: Any, arguments: Arguments, context: ToolContext[Any], policy: ToolPolicy) -> Any:
        """Call a function and await its value."""
        value = self._start(function, arguments, context)
        return await _awaited(value, policy.max_result_chars)

    def _in_thread(
        self, function: Any, call: ToolCall, arguments: Arguments, context: ToolContext[Any], policy: ToolPolicy
    ) -> Any:
        """Call a sync function and convert its value to a result in the thread: both can take long."""
        value = self._start(function, arguments, context)
        if self.yields and isgenerator(value):
            value = gather(lambda: value, policy.max_result_chars)
        if isawaitable(value) or isasyncgen(value):
            return value
        return finished(call, value, policy, self.nothing)


async def _awaited(value: Any, max_chars: int | None) -> Any:
    """Await the value of a function, and collect the items of an async generator."""
    if isawaitable(value):
        value = await value
    if isasyncgen(value):
        value = await collect(value, max_chars)
    return value


def _mode_of(function: Any) -> RunMode:
    if is_model(function):
        return "model"
    # An object with `__call__` can be marked as a coroutine function.
    if any(iscoroutinefunction(code) or isasyncgenfunction(code) for code in (function, _code_of(function))):
        return "async"
    return "sync"


def _code_of(function: Any) -> Any:
    """Return the function inside of partials and of an object with `__call__`."""
    while isinstance(function, partial):
        function = function.func
    if isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__
