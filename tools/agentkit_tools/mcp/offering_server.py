"""Server of the SDK with handlers for tools, resources, prompts and changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions

from agentkit_tools.mcp.served_changes import ServedChanges
from agentkit_tools.mcp.served_prompts import ServedPrompts
from agentkit_tools.mcp.served_resources import ServedResources

R = TypeVar("R")


class _Tools(Protocol):
    async def list_tools(self, ctx: Any, params: Any) -> Any: ...
    async def call_tool(self, ctx: Any, params: Any) -> Any: ...


class _OfferingServer(Server[Any]):
    """Server that announces changes to older clients too."""

    agentkit_changes: ServedChanges

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, *args, **kwargs)


def offering_server(
    names: Mapping[str, Any], tools: _Tools, resources: ServedResources | None, prompts: ServedPrompts | None
) -> Server[Any]:
    """Return a server. It declares resources and prompts only if they exist."""
    kinds = ["tools"]
    if resources is not None:
        kinds.append("resources")
    if prompts is not None:
        kinds.append("prompts")
    changes = ServedChanges(kinds)

    def noted(handler: Callable[[Any, Any], Awaitable[R]]) -> Callable[[Any, Any], Awaitable[R]]:
        """Return a handler that also remembers its client."""

        async def handle(ctx: Any, params: Any) -> R:
            changes.note_client(ctx)
            return await handler(ctx, params)

        return handle

    handlers: dict[str, Any] = {
        "on_list_tools": noted(tools.list_tools),
        "on_call_tool": noted(tools.call_tool),
        "on_subscriptions_listen": changes.listen,
    }
    if resources is not None:
        handlers |= {
            "on_list_resources": noted(resources.list_resources),
            "on_list_resource_templates": noted(resources.list_templates),
            "on_read_resource": noted(resources.read),
            "on_subscribe_resource": changes.subscribe,
            "on_unsubscribe_resource": changes.unsubscribe,
        }
    if prompts is not None:
        handlers |= {
            "on_list_prompts": noted(prompts.list_prompts),
            "on_get_prompt": noted(prompts.get),
            "on_completion": noted(prompts.complete),
        }
    server = _OfferingServer(**names, **handlers)
    server.agentkit_changes = changes
    return server
