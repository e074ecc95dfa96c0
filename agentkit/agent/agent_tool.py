"""An agent as a tool for another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from agentkit.errors import ApprovalError, JournalError, Paused
from agentkit.run.engine.events import Nested, PromptComposed, ToolFinished, ToolProgress, ToolStarted
from agentkit.run.engine.nested_runs import Nesting, current_run
from agentkit.run.journal.journal import inner_id
from agentkit.run.parts.decisions import Approver, Decision, Decisions, Denied
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.engine.loop import RunResult
    from agentkit_prompts.schemas.params import JsonSchema
    from agentkit_tools.calling.tool_policy import PolicyOptions

__all__ = ["History", "agent_tool"]

History: TypeAlias = Literal["none", "text", "all"] | Callable[[tuple[Message, ...]], Iterable[Message]]
"""What an agent that is a tool sees of the conversation before: nothing, the texts, all, or what a function returns.
"""
_HISTORIES = ("none", "text", "all")
_SECONDS = 600.0
"""Time limit, if the policy has none."""


class _Agent(Protocol):
    """What is needed of an agent."""

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None: ...
    @property
    def run(self) -> Callable[..., Awaitable[RunResult[Any]]]: ...
    @property
    def resume(self) -> Callable[..., Awaitable[RunResult[Any]]]: ...
    @property
    def context(self) -> Callable[..., PromptContext]: ...


def agent_tool(
    agent: _Agent, name: str, description: str, argument: str, history: History, policy: PolicyOptions
) -> Tool[..., Any]:
    """Return a tool whose calls are runs of an agent; see `Agent.as_tool`.

    Raises:
        ToolDefinitionError: An additional kwarg is called like `argument`, or policy or history make no sense.
    """
    if not callable(history) and history not in _HISTORIES:
        known = ", ".join(map(repr, _HISTORIES))
        raise ToolDefinitionError(
            f"tool {name}: history={history!r:.60} is not one of {known}, and no function",
            tool=name,
            names=["history"],
        )
    needs = agent.additional_kwargs_schema or {}
    properties = needs.get("properties", {})
    if argument in properties:
        by = ", ".join(properties[argument].get("x-required-by", ())) or "a prompt"
        raise ToolDefinitionError(
            f"tool {name}: {argument!r} is what the agent is asked, and an additional kwarg that {by} requires:"
            " choose another name with `argument=...`",
            tool=name,
            names=[argument],
        )
    kwargs = {  # who requires one is the agent's own business
        kwarg: {key: value for key, value in schema.items() if key != "x-required-by"}
        for kwarg, schema in properties.items()
    }
    asked = {"type": "string", "description": "What to ask, with everything that has to be known for it."}
    parameters = {
        **needs,
        "type": "object",
        "properties": {argument: asked, **kwargs},
        "required": [argument, *needs.get("required", ())],
        "additionalProperties": False,
    }

    async def answer(_context: ToolContext[Any], **arguments: Any) -> Any:
        outer, call_id = current_run(), _context.call_id
        emit = outer.emit if outer is not None else None
        listener: Any = None if emit is None else lambda event: emit(Nested(call_id, name, event))
        if outer is None and _context.run is not None:  # no run of ours is around it: a server, perhaps
            listener = partial(_report, _context)
        asked: Any = UserInput(arguments.pop(argument), additional_kwargs=arguments)
        if history != "none":
            asked = PromptContext(user_input=asked, conversation=_seen(history, _context.messages))
        options = {
            "deps": _context.deps,
            "on_event": listener,
        }
        if outer is None or call_id not in [call.id for call in outer.calls]:  # nothing could go on with it
            approve = outer.approve if outer is not None and callable(outer.approve) else _nobody
            result = await agent.run(asked, approve=approve, run_id=_context.idempotency_key, **options)
            return result.output
        options["approve"] = _approver(outer, call_id)
        known = outer.unfinished.pop(call_id, None)
        try:
            with outer.calling(call_id):
                if known is not None and known.context.user_input == agent.context(asked).user_input:
                    result = await agent.resume(known, **options)
                else:
                    result = await agent.run(asked, run_id=_context.idempotency_key, **options)
        except Exception as error:
            if isinstance(error, Paused | ApprovalError | JournalError):  # nothing that the model could answer
                outer.stopped.setdefault(call_id, error)
            if call_id not in outer.stopped:
                raise
            return ToolResult(call_id, name, f"{name} was stopped.", "denied")
        return result.output

    policy.setdefault("timeout", _SECONDS)
    return Tool.from_json_schema(name, description, parameters, answer, **policy)


def _report(context: ToolContext[Any], event: Any) -> None:
    """Report how far a run is as the progress of a call."""
    if isinstance(event, PromptComposed):
        context.progress(f"step {event.step}: asks the model")
    elif isinstance(event, ToolStarted):
        context.progress(f"calls {event.call.name}")
    elif isinstance(event, ToolProgress):
        context.progress(f"{event.call.name}: {event.message}")
    elif isinstance(event, ToolFinished):
        context.progress(f"{event.result.name}: {event.result.status}")


def _seen(history: History, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return what the agent sees of the messages before its call, the message with the calls left out."""
    before = messages[:-1]
    if callable(history):
        return tuple(history(before))
    if history == "all":
        return before
    texts = [message for message in before if message.role in ("user", "assistant", "system") and message.text]
    return tuple([replace(message, tool_calls=()) if message.tool_calls else message for message in texts])


def _approver(outer: Nesting, call_id: str) -> Approver | Decisions | None:
    """Return what decides about the calls of the agent of a call, which have its id in front for the run around it."""
    approve = outer.approve
    if callable(approve):

        async def ask(call: ToolCall) -> Decision | bool:
            try:
                answer = approve(replace(call, id=inner_id(call_id, call.id)))
                return await answer if isinstance(answer, Awaitable) else answer
            except Exception as error:  # it ends the run that it was given to
                outer.stopped[call_id] = error
                raise

        return ask
    start = inner_id(call_id, "")
    own = {call: made for call, made in (approve or {}).items() if isinstance(call, str) and call.startswith(start)}
    return {call.removeprefix(start): made for call, made in own.items()}


def _nobody(call: ToolCall) -> Denied:
    return Denied("it needs the approval of a person, and nobody is there to ask.")
