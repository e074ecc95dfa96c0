"""`ServedChanges`: announcements of changes to the clients of an MCP server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import check_types
from agentkit_tools.errors import ToolDefinitionError

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp_types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

_MAX_CLIENTS = 1_000
_MAX_SUBSCRIPTIONS = 1_000
"""Maximum number of subscribed addresses of a client."""


class ServedChanges:
    """The clients of one server.

    Clients of the newer protocol open a stream of changes. Older clients are notified in their session, from their
    first request; of more than 1,000 clients, the clients without a request for the longest time are forgotten.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler

        self._kinds = kinds
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        """Handler of `subscriptions/listen`."""
        self._clients: dict[int, tuple[Any, set[str]]] = {}

    def note_client(self, ctx: Any) -> set[str]:
        """Remember the session of an older client; return its subscribed addresses."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        session = ctx.session
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return set()
        # Each request has another session object; the parameters are one object of the connection.
        key = id(session.client_params)
        _, addresses = self._clients.pop(key, (None, set[str]()))
        self._clients[key] = (session, addresses)
        while len(self._clients) > _MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]
        return addresses

    async def subscribe(self, ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        """Handle `resources/subscribe` of older clients."""
        from mcp_types import EmptyResult

        addresses = self.note_client(ctx)
        if len(addresses) < _MAX_SUBSCRIPTIONS:
            addresses.add(str(params.uri))
        return EmptyResult()

    async def unsubscribe(self, ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        """Handle `resources/unsubscribe` of older clients."""
        from mcp_types import EmptyResult

        self.note_client(ctx).discard(str(params.uri))
        return EmptyResult()

    async def announce(self, addresses: Sequence[str]) -> None:
        """Announce changes of the lists, or of the contents of resources."""
        from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged

        lists = {"tools": ToolsListChanged, "resources": ResourcesListChanged, "prompts": PromptsListChanged}
        events: list[Any] = [ResourceUpdated(uri=address) for address in addresses]
        if not addresses:
            events = [lists[kind]() for kind in self._kinds]
        for event in events:
            await self._bus.publish(event)
        for session, subscribed in [*self._clients.values()]:
            for address in subscribed.intersection(addresses):
                await session.send_resource_updated(address)
            if not addresses:
                await self._announce_lists(session)

    async def _announce_lists(self, session: Any) -> None:
        if "tools" in self._kinds:
            await session.send_tool_list_changed()
        if "resources" in self._kinds:
            await session.send_resource_list_changed()
        if "prompts" in self._kinds:
            await session.send_prompt_list_changed()


async def mcp_changed(server: Server[Any], *addresses: str) -> None:
    """Announce to the clients of a server that its tools, resources and prompts have changed.

    Call it in the event loop of the server, such as in one of its tools, after you changed the list of tools, the
    list of prompts or the mapping of resources that `mcp_server` received.

    Args:
        server: A server of `mcp_server`.
        addresses: Addresses of resources whose contents have changed, instead of the lists.

    Raises:
        ToolDefinitionError: The server is not of `mcp_server`, or an address is not text.
    """
    for address in addresses:
        check_types(ToolDefinitionError, "mcp_changed", addresses=(address, str, "addresses as text"))
    changes = getattr(server, "agentkit_changes", None)
    if not isinstance(changes, ServedChanges):
        raise ToolDefinitionError(
            f"mcp_changed: expected a server of mcp_server, got {type(server).__name__}", names=["server"]
        )
    await changes.announce(addresses)
