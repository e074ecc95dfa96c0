"""An agent as a tool of another agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from agentkit.run.engine.current_run import CurrentRun, InnerRun, current_run
from agentkit.run.engine.events import PromptComposed, ToolFinished, ToolProgress, ToolStarted
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.decisions import Denied
from agentkit.run.parts.run_context import run_context
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.engine.run_result import RunResult
    from agentkit_tools.calling.tool_policy import PolicyOptions

__all__ = ["AgentAsTool", "History"]

History: TypeAlias = Literal["none", "text", "all"] | Callable[[tuple[Message, ...]], Iterable[Message]]
"""Messages of the outer conversation for an agent as a tool: none, the texts, all, or the result of a function."""
_HISTORIES = ("none", "text", "all")
_TIMEOUT = 600.0
"""Seconds until a call is cancelled, if the policy has no timeout."""


class AgentAsTool:
    """A tool whose calls are runs of an agent; see `Agent.as_tool`.

    Args:
        definition: Returns the current definition of the agent; called at each call.
        name: Name of the tool.
        argument: Parameter with the user input of the agent.
        history: Messages before the call that the agent receives.
    """

    def __init__(
        self, definition: Callable[[], AgentDefinition[Any]], name: str, argument: str, history: History
    ) -> None:
        if not callable(history) and history not in _HISTORIES:
            names = ", ".join(map(repr, _HISTORIES))
            raise ToolDefinitionError(
                f"tool {name}: history={history!r:.60}: expected {names} or a function",
                tool=name,
                names=["history"],
            )
        self._definition = definition
        self._name = name
        self._argument = argument
        self._history: History = history

    def tool(self, description: str, policy: PolicyOptions) -> Tool[..., Any]:
        """Return the tool.

        Raises:
            ToolDefinitionError: An additional kwarg has the name of the argument, or the policy is invalid.
        """

        async def answer(_context: ToolContext[Any], **arguments: Any) -> Any:
            return await self._answer(_context, arguments)

        # The default of other tools is too short for a run with several model calls.
        policy.setdefault("timeout", _TIMEOUT)
        tool = Tool.from_json_schema(self._name, description, self._parameters(), answer, **policy)
        definition = self._definition()
        if definition.deps is None:
            # The agent gets the deps of the outer run, which is refused before its start if they have another type.
            _, tools_with_deps = definition.tools.declared()
            types = [deps_type for each in tools_with_deps for deps_type in each.deps_types]
            tool.deps_types = tuple(dict.fromkeys(types))
        return tool

    def _parameters(self) -> dict[str, Any]:
        """Return the schema of the arguments: the input, and the required additional kwargs."""
        argument = self._argument
        required = self._definition().chain.additional_kwargs_schema or {}
        properties = required.get("properties", {})
        if argument in properties:
            by = ", ".join(properties[argument].get("x-required-by", ())) or "a prompt"
            raise ToolDefinitionError(
                f"tool {self._name}: {argument!r} is the input of the agent, and an additional kwarg that {by} "
                "requires: choose another name with `argument=...`",
                tool=self._name,
                names=[argument],
            )
        # The model does not need the names of the prompts that require a kwarg.
        kwargs = {
            kwarg: {key: value for key, value in schema.items() if key != "x-required-by"}
            for kwarg, schema in properties.items()
        }
        input_schema = {
            "type": "string",
            "description": "The request to the agent, with all information that the agent needs.",
        }
        return {
            **required,
            "type": "object",
            "properties": {argument: input_schema, **kwargs},
            "required": [argument, *required.get("required", ())],
            "additionalProperties": False,
        }

    async def _answer(self, context: ToolContext[Any], arguments: dict[str, Any]) -> Any:
        """Answer a call with a run."""
        outer = current_run()
        user_input: Any = UserInput(arguments.pop(self._argument), additional_kwargs=arguments)
        if self._history != "none":
            conversation = _visible_messages(self._history, context.messages)
            user_input = PromptContext(user_input=user_input, conversation=conversation)
        options: dict[str, Any] = {
            "on_event": self._listener(outer, context),
            "approve": _no_approver,
            "outer": getattr(context.run, "as_outer", None),
        }
        if self._definition().deps is None:
            options["deps"] = context.deps
        inner = None
        if outer is not None:
            inner = outer.inner_run(context.call_id)
        if outer is None or inner is None:
            # No outer run can pause and wait for decisions, so that only an approver that is a function can decide.
            if outer is not None and callable(outer.approve):
                options["approve"] = outer.approve
            return (await self._start(user_input, context, options)).output
        options["approve"] = inner.approve
        try:
            with inner.starting():
                result = await self._start_or_resume(inner, user_input, context, options)
        except Exception as error:
            # The result is not recorded: the outer run stops, and the call is repeated when the run is resumed.
            if not inner.stops(error):
                raise
            return ToolResult(context.call_id, self._name, f"{self._name} was stopped.", "denied")
        return result.output

    async def _start(self, user_input: Any, context: ToolContext[Any], options: dict[str, Any]) -> RunResult[Any]:
        from agentkit.run.engine.start import start_run

        # The run id is equal in each attempt of the outer run, so that idempotency keys of inner calls are equal too.
        return await start_run(self._definition(), user_input, {**options, "run_id": context.idempotency_key})

    async def _start_or_resume(
        self, inner: InnerRun, user_input: Any, context: ToolContext[Any], options: dict[str, Any]
    ) -> RunResult[Any]:
        """Resume the run of an earlier attempt if its input was the same; otherwise start a run."""
        from agentkit.run.engine.start import resume_run

        definition = self._definition()
        # With another input, the journal belongs to another run: a tool can call the agent more than once.
        if inner.earlier is not None:
            ctx = run_context(definition.chain, definition.tools.specs, user_input, None, "")
            if inner.earlier.context.user_input == ctx.user_input:
                return await resume_run(definition, inner.earlier, options)
        return await self._start(user_input, context, options)

    def _listener(self, outer: CurrentRun | None, context: ToolContext[Any]) -> Any:
        """Return the listener of the outer run; without an outer run, a listener that reports progress, if possible."""
        if outer is not None:
            return outer.inner_listener(context.call_id, self._name)
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


def _visible_messages(history: History, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages before a call that the agent receives."""
    # The last message contains the call: without its result, a provider would refuse the message.
    before = messages[:-1]
    if callable(history):
        return tuple(history(before))
    if history == "all":
        return before
    texts = [message for message in before if message.role in ("user", "assistant", "system") and message.text]
    return tuple([_without_calls(message) for message in texts])


def _without_calls(message: Message) -> Message:
    if not message.tool_calls:
        return message
    return replace(message, tool_calls=())


def _no_approver(call: ToolCall) -> Denied:
    return Denied("it needs the approval of a person, and no person can be asked.")
