"""An agent as a tool: another agent asks it, and reads its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agentkit.run.events import Event, Nested
from agentkit.run.loop import RunResult
from agentkit.run.nested_runs import current_run
from agentkit_prompts.context.prompt_context import UserInput
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

__all__ = ["agent_tool"]


def agent_tool(
    run: Callable[..., Awaitable[RunResult[Any]]],
    kwargs_schema: JsonSchema | None,
    name: str,
    description: str,
    argument: str,
    policy: PolicyOptions,
) -> Tool[..., Any]:
    """Return the agent that `run` asks as a tool; see `Agent.as_tool`."""
    needs = kwargs_schema or {}
    properties = needs.get("properties", {})
    if argument in properties:
        by = ", ".join(properties[argument].get("x-required-by", ())) or "a prompt"
        raise ToolDefinitionError(
            f"tool {name}: {argument!r} is what the agent is asked, and an additional kwarg that {by} requires:"
            " choose another name with `argument=...`"
        )
    asked = {"type": "string", "description": "What to ask, with everything that has to be known for it."}
    parameters = {
        **needs,
        "type": "object",
        "properties": {
            argument: asked,
            **{key: _without_origin(item) for key, item in properties.items()},
        },
        "required": [argument, *needs.get("required", ())],
        "additionalProperties": False,
    }

    async def answer(_context: ToolContext[Any], **arguments: Any) -> Any:
        user_input = UserInput(arguments.pop(argument), additional_kwargs=arguments)
        outer = current_run()
        emit = outer.emit if outer is not None else None

        def pass_on(event: Event) -> None:
            assert emit is not None
            emit(Nested(_context.call_id, name, event))

        result = await run(
            user_input,
            deps=_context.deps,
            on_event=None if emit is None else pass_on,
            approve=outer.approve if outer is not None else None,
            run_id=_context.idempotency_key,
        )
        return result.output

    return Tool.from_json_schema(name, description, parameters, answer, **policy)


def _without_origin(schema: Any) -> Any:
    """Who requires a kwarg is the agent's own business."""
    return {key: value for key, value in schema.items() if key != "x-required-by"}
