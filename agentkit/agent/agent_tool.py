"""An agent as a tool of another agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from agentkit.agent.inner_call import run_in_call
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools.calling.tool_policy import PolicyOptions

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
            user_input: Any = UserInput(arguments.pop(self._argument), additional_kwargs=arguments)
            if self._history != "none":
                conversation = _visible_messages(self._history, _context.messages)
                user_input = PromptContext(user_input=user_input, conversation=conversation)
            return await run_in_call(self._definition(), self._name, user_input, _context, {})

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
