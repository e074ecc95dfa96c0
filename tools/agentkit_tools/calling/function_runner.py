"""Runs the function of a tool once: on the event loop or in a thread, within a time, to a result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.deadline import finish
from agentkit_tools.calling.result_content import collect, gather
from agentkit_tools.calling.tool_policy import ToolPolicy
from agentkit_tools.calling.tool_result import ToolResult, failed, finished
from agentkit_tools.calling.tool_threads import run_in_thread
from agentkit_tools.errors import ends_run
from agentkit_tools.schemas.callables import Mode
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.schemas.argument_reader import Arguments, ModelArguments

    Bind: TypeAlias = Callable[[Arguments, ToolContext[Any]], tuple[tuple[Any, ...], Arguments]]

__all__ = ["FunctionRunner"]


@dataclass(slots=True)
class FunctionRunner:
    """How the function of a tool is run."""

    mode: Mode
    bind: Bind | None
    """Makes positional and keyword arguments; None where validated arguments are the keywords."""
    nothing: str
    """What a model reads for None."""
    is_direct: bool = field(init=False)
    """Whether it is an async function that takes the validated arguments as they are, as most are."""

    def __post_init__(self) -> None:
        self.is_direct = self.bind is None and self.mode == "async"

    async def run(
        self,
        function: Any,
        call: ToolCall,
        arguments: Arguments,
        context: ToolContext[Any],
        policy: ToolPolicy,
        spent: float = 0.0,
    ) -> ToolResult:
        """Call the function; return its result. `spent` are the seconds of its time limit that are over already.

        A quick one never has to wait: only `finish` looks at tasks and timers.
        """
        returned: list[Any] = []
        try:
            work = function(**arguments) if self.is_direct else self._work(function, call, arguments, context, policy)
            work = _into(returned, work)
            for waiting in work.__await__():  # noqa: B007
                break
            else:  # it did not wait: a `for` notices that in less time than it takes to catch `StopIteration`
                value, most = returned[0], policy.max_result_chars
                if type(value) is str and most is not None and len(value) <= most and value.isascii():  # most results
                    return ToolResult(call.id, call.name, value, "success", value)
                return finished(call, value, policy, self.nothing)
        except BaseException as error:
            if ends_run(error):
                raise
            return failed(call, error, policy)
        limit = policy.timeout
        left = None if limit is None else max(limit - spent, 0.0)
        # No variable here keeps a failure: the frames in its traceback refer to this one.
        return self._ended(call, policy, returned, (await finish(work, waiting, left))[1])

    def _ended(
        self, call: ToolCall, policy: ToolPolicy, returned: list[Any], failure: BaseException | None
    ) -> ToolResult:
        if failure is not None:
            return failed(call, failure, policy)
        if self.mode.startswith("sync"):
            return cast(ToolResult, returned[0])
        return finished(call, returned[0], policy, self.nothing)

    def _work(
        self, function: Any, call: ToolCall, arguments: Arguments, context: ToolContext[Any], policy: ToolPolicy
    ) -> Any:
        """Return what is to be awaited; in a thread, that gives a result."""
        if self.mode == "model":
            return _made(arguments)
        args, kwargs = self.bind(arguments, context) if self.bind is not None else ((), arguments)
        if self.mode == "async":
            return function(*args, **kwargs)
        if self.mode == "async_items":
            return collect(function(*args, **kwargs), policy.max_result_chars)
        return self._in_thread(call, partial(function, *args, **kwargs), policy)

    async def _in_thread(self, call: ToolCall, run: Callable[[], Any], policy: ToolPolicy) -> ToolResult:
        """Run a sync function and make its result, which may take long too, in a thread."""
        nothing = self.nothing

        def begin() -> Any:
            value = gather(run, policy.max_result_chars) if self.mode == "sync_items" else run()
            return value if isawaitable(value) else finished(call, value, policy, nothing)

        found, error = await run_in_thread(begin)
        if error is None:
            return found if isinstance(found, ToolResult) else finished(call, await found, policy, nothing)
        if ends_run(error, in_thread=True):
            raise error
        return failed(call, error, policy)


async def _into(returned: list[Any], work: Awaitable[Any]) -> None:
    returned.append(await work)


async def _made(arguments: Arguments) -> Any:
    return cast("ModelArguments", arguments).made
