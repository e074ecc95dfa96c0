"""`MCPToolset`: the tools, resources and prompts of an MCP server, over its pipes or over HTTP."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from agentkit_prompts.context.items import Document
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import brief
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.names import nearest
from agentkit_tools.calling.tool_policy import PolicyOptions, ToolPolicy
from agentkit_tools.errors import ArgumentProblem, MCPServerError, ToolDefinitionError
from agentkit_tools.mcp.connection import Connection
from agentkit_tools.mcp.content import to_documents, to_messages, to_parts
from agentkit_tools.mcp.remote_tools import list_all, make_tools, resource_tool
from agentkit_tools.mcp.target import ServerLike, Target
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Prompt, Resource

__all__ = ["MCPToolset"]


class MCPToolset(Toolset):
    """The tools of an MCP server.

    It is a toolset: iterate it, add it to others, wrap it. The server is reached, and its tools are listed, when they
    are first asked for; after it announced other tools they are listed again. What was made of it before
    (a wrapper, a sum) stays as it was: `DynamicToolset(lambda context: server.prefixed("x_"))` follows the server.
    Asking blocks until the server has answered; `await server.at(context)` does not.

    The session lives in a thread of its own, so the toolset can be used from any event loop, or none. A server that
    was lost is reached anew by the next call. Close it with `with`, `async with` or `close`; at the latest it is closed
    when the process ends.

    Args:
        server: An http(s) address; or a command as a list; or the SDK's `StdioServerParameters`; or a function that
            returns a transport of the SDK, for anything else (OAuth, a proxy).
        headers: For an address: headers of every request, such as a token. They appear in no message.
        env: For a command: further environment variables. It gets PATH, HOME and the like, never all of ours.
        cwd: For a command: its working directory.
        resources: Whether the model may read resources, with the tool `read_resource`: those that results link to.
        connect_timeout: Seconds until the server must have answered for the first time.
        **policy: Fields of `ToolPolicy` for all its tools, before what the server's hints suggest: a tool that only
            reads, or may be repeated, is tried again once when the server was lost; every other one is sequential; one
            marked as destructive asks for approval. A call takes at most 60 seconds.

    Raises:
        ToolDefinitionError: `server` is nothing of this, or an option does not belong to it.
        MCPServerLost, MCPServerError: (when its tools are first asked for) It cannot be reached, or does not keep to
            the protocol. Later on the tools that are known stay, and a call ends in an error result.
    """

    __slots__ = ("_changes", "_connection", "_listed", "_policy", "_problems", "_reader", "_unread")

    @with_option_hints
    def __init__(
        self,
        server: ServerLike,
        *,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        resources: bool = False,
        connect_timeout: float = 30.0,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        # An invalid policy is an error here. Later it would leave out every tool.
        ToolPolicy().with_changes(**policy)
        self._connection = Connection(Target(server, headers=headers, env=env, cwd=cwd), connect_timeout)
        self._policy = policy
        self._reader = resource_tool(self._connection).with_changes(**policy) if resources else None
        self._listed: dict[str, Tool] = {}
        self._changes = -1
        self._problems: tuple[ToolDefinitionError, ...] = ()
        self._unread: dict[str, MCPServerError] = {}

    @property
    def _tools(self) -> dict[str, Tool]:  # type: ignore[override]
        """What the toolset holds, as its base class wants it."""
        # Read the counter before listing: a change while the server lists its tools leads to another listing.
        if self._changes != (changes := self._connection.changes):
            with self._keeping():
                definitions = self._connection.request_blocking(_list_tools)
                self._adopt(changes, make_tools(definitions, self._connection, self._policy))
        return self._listed

    async def at(self, context: PromptContext) -> Toolset:
        """Return the tools the server has now, without blocking."""
        del context
        await self._refresh()
        return Toolset(self._listed.values())

    async def _refresh(self) -> None:
        if self._changes != (changes := self._connection.changes):
            with self._keeping():
                definitions = await self._connection.request(_list_tools)
                self._adopt(changes, await to_thread(make_tools, definitions, self._connection, self._policy))

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Go on with the tools that are known when the server is away: their calls fail, and it may come back."""
        try:
            yield
        except MCPServerError:
            if self._changes < 0:
                raise

    def _adopt(self, changes: int, made: tuple[dict[str, Tool], tuple[ToolDefinitionError, ...]]) -> None:
        self._listed, self._problems = made
        reader = self._reader
        if reader is not None and self._listed.setdefault(reader.name, reader) is not reader:
            clash = f"tool {reader.name}: the server has one of this name, which is used in place of the one that reads"
            self._problems += (ToolDefinitionError(clash),)
        self._changes = changes

    @property
    def problems(self) -> tuple[ToolDefinitionError | MCPServerError, ...]:
        """Why tools of the server are left out, such as an invalid schema, one that needs tasks, or a name that another
        has; and why resources are not among its `documents()`.
        """
        _ = self._tools
        return (*self._problems, *self._unread.values())

    @property
    def stderr_tail(self) -> str:
        """The end of what the server's newest process wrote to its stderr; it goes nowhere else."""
        return self._connection.stderr_tail

    async def resources(self) -> Sequence[Resource]:
        """Return what the server lists of its resources: `uri`, `name`, `description`, `mime_type`, `size`.

        Raises:
            MCPServerLost, MCPServerError: It cannot be reached, or does not keep to the protocol.
        """
        return await self._connection.request(lambda client: list_all(client, "resources"))

    async def documents(self, *uris: str) -> tuple[Document, ...]:
        """Read resources as documents for a `PromptContext`: untrusted, with their address as id and source.

        Args:
            uris: Their addresses; without any, all resources the server lists are read. Of these, what is not text is
                left out, and named in `problems`.

        Raises:
            MCPServerError: One of them is unknown to the server, or is not text; see `parts` for those.
            MCPServerLost: The server cannot be reached.
        """

        async def read(client: Client) -> tuple[Document, ...]:
            if uris:
                found = [await client.read_resource(uri) for uri in uris]
                return tuple(document for answer in found for document in to_documents(answer))
            self._unread.clear()
            documents: list[Document] = []
            for resource in await list_all(client, "resources"):
                try:
                    documents += to_documents(await client.read_resource(resource.uri))
                except MCPServerError as error:
                    self._unread[resource.uri] = error
            return tuple(documents)

        return await self._connection.request(read)

    async def parts(self, uri: str) -> tuple[Part, ...]:
        """Read one resource as text, images, audio and files, such as for a `UserInput`. Raises like `documents`."""
        return to_parts(await self._connection.request(lambda client: client.read_resource(uri)))

    async def prompts(self) -> Sequence[Prompt]:
        """Return what the server lists of its prompts: `name`, `description`, `arguments`. Raises like `resources`."""
        return await self._connection.request(lambda client: list_all(client, "prompts"))

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """Return the messages of one of the server's prompts, such as for the conversation of a `PromptContext`.

        Raises:
            MCPServerError: There is no such prompt, or arguments are missing or unknown: all of them are named.
            MCPServerLost: The server cannot be reached.
        """
        given = dict(arguments or {})

        async def get(client: Client) -> tuple[Message, ...]:
            _check_prompt(name, given, await list_all(client, "prompts"))
            return to_messages(await client.get_prompt(name, given))

        return await self._connection.request(get)

    def close(self) -> None:
        """End the session, and the process of a command. Calls from then on are error results."""
        self._connection.close()

    def __enter__(self) -> Self:
        _ = self._tools
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self._refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_thread(self.close)

    def __repr__(self) -> str:
        return f"MCPToolset({self._connection.name!r})"


def _list_tools(client: Client) -> Awaitable[list[Any]]:
    return list_all(client, "tools")


def _check_prompt(name: str, given: Mapping[str, str], prompts: Sequence[Prompt]) -> None:
    known = {prompt.name: prompt for prompt in prompts}
    if name not in known:
        raise MCPServerError(f"the server has no prompt named {name!r}{nearest(name, known)}", name=name)
    expected = {argument.name: bool(argument.required) for argument in known[name].arguments or ()}
    problems = _problems_of_arguments(given, expected)
    if problems:
        takes = ", ".join(expected) or "no arguments"
        shown = "; ".join(map(str, problems))
        raise MCPServerError(f"prompt {name}: {shown}. It takes {takes}.", name=name, problems=problems)


def _problems_of_arguments(given: Mapping[str, str], expected: Mapping[str, bool]) -> list[ArgumentProblem]:
    """Return the problems of the arguments of a prompt; the values of `expected` are True for required ones."""
    required = [argument for argument, is_required in expected.items() if is_required]
    problems = [ArgumentProblem(argument, "is required") for argument in required if argument not in given]
    for argument, value in given.items():
        if argument not in expected:
            problems.append(ArgumentProblem(argument, "is unknown"))
        elif not isinstance(value, str):
            problems.append(ArgumentProblem(argument, "is not text", brief(value)))
    return problems
