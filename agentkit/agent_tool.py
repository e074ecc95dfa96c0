"""An agent as a tool for another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from agentkit.run.decisions import Approver, Denied
from agentkit.run.events import Nested
from agentkit.run.nested_runs import Nesting, current_run
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit.run.loop import RunResult
    from agentkit_prompts.schemas.params import JsonSchema
    from agentkit_tools.calling.tool_policy import PolicyOptions

__all__ = ["agent_tool"]

_SECONDS = 600.0
"""Time limit, if the policy has none."""


class _Agent(Protocol):
    """What is needed of an agent."""

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None: ...
    @property
    def run(self) -> Callable[..., Awaitable[RunResult[Any]]]: ...


def agent_tool(agent: _Agent, name: str, description: str, argument: str, policy: PolicyOptions) -> Tool[..., Any]:
    """Return a tool whose calls are runs of an agent; see `Agent.as_tool`.

    Raises:
        ToolDefinitionError: An additional kwarg is called like `argument`, or the policy makes no sense.
    """
    needs = agent.additional_kwargs_schema or {}
    properties = needs.get("properties", {})
    if argument in properties:
        by = ", ".join(properties[argument].get("x-required-by", ())) or "a prompt"
        raise ToolDefinitionError(
            f"tool {name}: {argument!r} is what the agent is asked, and an additional kwarg that {by} requires:"
            " choose another name with `argument=...`"
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
        outer = current_run()
        emit = outer.emit if outer is not None else None
        result = await agent.run(
            UserInput(arguments.pop(argument), additional_kwargs=arguments),
            deps=_context.deps,
            on_event=None if emit is None else lambda event: emit(Nested(_context.call_id, name, event)),
            approve=_outer_approver(outer),
            run_id=_context.idempotency_key,
        )
        return result.output

    policy.setdefault("timeout", _SECONDS)
    return Tool.from_json_schema(name, description, parameters, answer, **policy)


def _outer_approver(outer: Nesting | None) -> Approver:
    """Return what decides about the calls of an agent that is a tool: what decides for the run around it."""
    if outer is not None and callable(outer.approve):
        return outer.approve
    return lambda call: Denied("it needs the approval of a person, and nobody is there to ask.")
