"""`WatchedTransport`: the messages of an MCP server, without keys, with answers to its requests, and with its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from agentkit_prompts.limits import MAX_INPUT_BYTES, MAX_NAME_CHARS
from agentkit_tools.errors import MCPServerError
from agentkit_tools.mcp.bounded_lines import MAX_VALUES, TOO_LONG
from agentkit_tools.mcp.content import readable_blocks
from agentkit_tools.mcp.cpu_pace import CPUPace
from agentkit_tools.mcp.listed_tools import readable

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCNotification, JSONRPCRequest

    from agentkit_tools.mcp.server_requests import ServerRequests


class WatchedTransport:
    """Forwarder of the messages of a server. It masks keys in errors, and calls `ended` after the last message."""

    def __init__(
        self,
        name: str,
        pace: CPUPace,
        ended: Callable[[MCPServerError | None], None],
        mask: Callable[[str], str],
        requests: ServerRequests,
    ) -> None:
        self._name = name
        self._pace = pace
        self._ended = ended
        self._mask = mask
        self._requests = requests

    @asynccontextmanager
    async def around(self, inner: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Open a transport; yield its streams."""
        import anyio

        async with inner as (read, write):
            sender, receiver = anyio.create_memory_object_stream[Any](0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._forward, read, write, sender, tasks)
                try:
                    yield receiver, write
                finally:
                    tasks.cancel_scope.cancel()
                    receiver.close()

    async def _forward(self, read: Any, write: Any, sender: Any, tasks: TaskGroup) -> None:
        import anyio
        from mcp_types import JSONRPCRequest

        fault = None
        try:
            async for message in read:
                await self._pace.rest()
                content = getattr(message, "message", None)
                if getattr(content, "method", None) == TOO_LONG:
                    text = (
                        f"MCP server {self._name} wrote a line of more than {MAX_INPUT_BYTES:,} characters, or of more"
                        f" than {MAX_VALUES:,} values"
                    )
                    fault = MCPServerError(text, server=self._name, limit=MAX_INPUT_BYTES)
                    break
                if isinstance(content, JSONRPCRequest):
                    await self._answer(content, write, tasks)
                elif self._is_for_client(content):
                    await sender.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            # The client closed its stream first.
            pass
        finally:
            # Record the reason first: closing the stream wakes the requests that wait for a response.
            self._ended(fault)
            sender.close()

    async def _answer(self, request: JSONRPCRequest, write: Any, tasks: TaskGroup) -> None:
        """Answer a request of the server, or start a task that answers it when a person has decided."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError, JSONRPCResponse

        if not self._requests.accepts(request):
            # This waits until the server reads, so that no messages are read from a server that does not read.
            await write.send(_response(request))
            return

        async def send(answer: dict[str, Any]) -> None:
            kind: Any = JSONRPCError if "error" in answer else JSONRPCResponse
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await write.send(SessionMessage(kind(jsonrpc="2.0", id=request.id, **answer)))

        request.params = _without_keys(request.params, self._mask)
        tasks.start_soon(self._requests.answer, request, send)

    def _is_for_client(self, content: Any) -> bool:
        """Mask the keys in a message; return False if the client must not read it."""
        from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse

        if isinstance(content, JSONRPCResponse):
            if content.result.get("isError"):
                content.result = _without_keys(content.result, self._mask)
            content.result = readable_blocks(readable(content.result))
        elif isinstance(content, JSONRPCError):
            content.error = ErrorData(**_without_keys(dict(content.error), self._mask))
        return not (isinstance(content, JSONRPCNotification) and _overflows(content))


def _overflows(message: JSONRPCNotification) -> bool:
    """True if the progress in a message is larger than any float, which would end the session."""
    params = message.params or {}
    try:
        for number in (params.get("progress"), params.get("total")):
            if isinstance(number, int):
                float(number)
    except OverflowError:
        return True
    return False


def _response(request: JSONRPCRequest) -> SessionMessage:
    """Return the response to a request from a server: a result for a ping, a refusal for requests to models or people.

    The SDK would start a task for each request, and store all tasks for a server that reads no responses.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import METHOD_NOT_FOUND, ErrorData, JSONRPCError, JSONRPCResponse

    if request.method == "ping":
        return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request.id, result={}))
    refusal = ErrorData(code=METHOD_NOT_FOUND, message=f"{request.method[:MAX_NAME_CHARS]} is not supported")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request.id, error=refusal))


def _without_keys(data: Any, mask: Callable[[str], str]) -> Any:
    """Return JSON data in which stars replace keys."""
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, dict):
        return {mask(name): _without_keys(value, mask) for name, value in data.items()}
    if isinstance(data, list):
        return [_without_keys(item, mask) for item in data]
    return data
