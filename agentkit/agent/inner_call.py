"""`run_in_call`: a run inside of a tool call, which is paused and resumed with the outer run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agentkit.run.engine.current_run import CurrentRun, InnerRun, current_run
from agentkit.run.engine.events import PromptComposed, ToolFinished, ToolProgress, ToolStarted
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.decisions import Denied
from agentkit.run.parts.run_context import run_context
from agentkit_prompts.context.messages import ToolCall
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.engine.run_result import RunResult


async def run_in_call(
    definition: AgentDefinition[Any],
    name: str,
    user_input: Any,
    context: ToolContext[Any],
    options: dict[str, Any],
    *,
    ends_outer_run: Callable[[Exception], bool] | None = None,
) -> Any:
    """Answer a call of a tool with a run, and return its output.

    Args:
        definition: The agent of the run.
        name: Name of the tool.
        user_input: Input of the run.
        context: Context of the call.
        options: Further options of the run.
        ends_outer_run: True for errors that also end the outer run; other errors are results of the call. Pauses, and
            errors of decisions and journals, always end it.

    Raises:
        Exception: The error of the run, unless it ends the outer run.
    """
    outer = current_run()
    options = {
        "outer": getattr(context.run, "as_outer", None),
        **options,
        "on_event": _listener(name, outer, context),
        "approve": _no_approver,
    }
    if definition.deps is None:
        options["deps"] = context.deps
    inner = None
    if outer is not None:
        inner = outer.inner_run(context.call_id)
    if outer is None or inner is None:
        # No outer run can pause and wait for decisions, so that only an approver that is a function can decide.
        if outer is not None and callable(outer.approve):
            options["approve"] = outer.approve
        return (await _start(definition, user_input, context, options)).output
    options["approve"] = inner.approve
    try:
        with inner.starting():
            result = await _start_or_resume(definition, inner, user_input, context, options)
    except Exception as error:
        if ends_outer_run is not None and ends_outer_run(error):
            outer.stop(context.call_id, error)
        # The result is not recorded: the outer run stops, and the call is repeated when the run is resumed.
        if not inner.stops(error):
            raise
        return ToolResult(context.call_id, name, f"{name} was stopped.", "denied")
    return result.output


async def _start(
    definition: AgentDefinition[Any], user_input: Any, context: ToolContext[Any], options: dict[str, Any]
) -> RunResult[Any]:
    from agentkit.run.engine.start import start_run

    # The run id is equal in each attempt of the outer run, so that idempotency keys of inner calls are equal too.
    return await start_run(definition, user_input, {**options, "run_id": context.idempotency_key})


async def _start_or_resume(
    definition: AgentDefinition[Any],
    inner: InnerRun,
    user_input: Any,
    context: ToolContext[Any],
    options: dict[str, Any],
) -> RunResult[Any]:
    """Resume the run of an earlier attempt if its input was the same; otherwise start a run."""
    from agentkit.run.engine.start import resume_run

    # With another input, the journal belongs to another run: a tool can call the agent more than once.
    if inner.earlier is not None:
        ctx = run_context(definition.chain, definition.tools.specs, user_input, None, "")
        if inner.earlier.context.user_input == ctx.user_input:
            return await resume_run(definition, inner.earlier, options)
    return await _start(definition, user_input, context, options)


def _listener(name: str, outer: CurrentRun | None, context: ToolContext[Any]) -> Any:
    """Return the listener of the outer run; without an outer run, a listener that reports progress, if possible."""
    if outer is not None:
        return outer.inner_listener(context.call_id, name)
    if context.run is not None:
        return lambda event: _report(context, event)
    return None


def _report(context: ToolContext[Any], event: Any) -> None:
    """Report an event of a run as progress of the call."""
    if isinstance(event, PromptComposed):
        context.progress(f"step {event.step}: asks the model")
    elif isinstance(event, ToolStarted):
        context.progress(f"calls {event.call.name}")
    elif isinstance(event, ToolProgress):
        context.progress(f"{event.call.name}: {event.message}")
    elif isinstance(event, ToolFinished):
        context.progress(f"{event.result.name}: {event.result.status}")


def _no_approver(call: ToolCall) -> Denied:
    return Denied("it needs the approval of a person, and no person can be asked.")
