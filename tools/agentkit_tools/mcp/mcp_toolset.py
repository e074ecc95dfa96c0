"""`MCPToolset`: tools, resources and prompts of an MCP server, over its pipes or over HTTP."""

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
from agentkit_tools.mcp.sampling import Sampling
from agentkit_tools.mcp.target import ServerLike, Target
from agentkit_tools.tool import Tool
from agentkit_tools.toolsets.toolset import Toolset

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.auth import TokenStorage
    from mcp_types import Prompt, Resource


class MCPToolset(Toolset):
    """Tools of an MCP server.

    The first access to the tools connects to the server and lists them; after the server announced changes, the next
    access lists them again. A wrapper or a sum of the toolset does not change; use
    `DynamicToolset(lambda context: server.prefixed("x_"))` to follow the server. Access to the tools blocks until the
    server responds; `await server.at(context)` does not block.

    The session runs in a separate thread, so that any event loop, or sync code, can use the toolset. After a server was
    lost, the next call connects again. Close the toolset with `with`, `async with` or `close`; otherwise it is closed
    when the process exits.

    Args:
        server: An http(s) address, a command as a list, the SDK's `StdioServerParameters`, or a function that returns
            a transport of the SDK (such as for a proxy).
        headers: Headers of all requests to an address, such as a token. Messages do not contain them.
        env: Additional environment variables of a command, which inherits only basic variables such as PATH and HOME.
        cwd: Working directory of a command.
        tokens: `TokenStorage` of the SDK, for an address with OAuth; None for the tokens of `agentkit mcp login` or
            `mcp_login`. Headers with `Authorization` take precedence.
        sampling: Permission of the server to use a model while its tools run; None for no permission.
        resources: True to add the tool `read_resource`, which reads the resources that results link to.
        connect_timeout: Maximum seconds until the first response of the server.
        **policy: Fields of `ToolPolicy` for all tools, with precedence over the hints of the server: a tool that only
            reads, or is idempotent, is retried once after the server was lost; any other tool is sequential; a tool
            marked as destructive needs approval. The time limit of a call is 60 seconds.

    Raises:
        ToolDefinitionError: `server` is invalid, or an option is not for this kind of server.
        MCPServerLost, MCPServerError: At the first access to the tools: the server cannot be reached, or violates the
            protocol. Later, the known tools remain, and a failed call returns an error result.
        MCPLoginError: In the same way: the server requires a login, or refuses the stored tokens. No browser is opened.
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
        tokens: TokenStorage | None = None,
        sampling: Sampling | None = None,
        resources: bool = False,
        connect_timeout: float = 30.0,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        # Report an invalid policy here; otherwise all tools would be invalid later.
        ToolPolicy().with_changes(**policy)
        self._connection = Connection(
            Target(server, headers=headers, env=env, cwd=cwd, tokens=tokens), connect_timeout, sampling
        )
        self._policy = policy
        self._reader = resource_tool(self._connection).with_changes(**policy) if resources else None
        self._listed: dict[str, Tool] = {}
        self._changes = -1
        self._problems: tuple[ToolDefinitionError, ...] = ()
        self._unread: dict[str, MCPServerError] = {}

    @property
    def _tools(self) -> dict[str, Tool]:  # type: ignore[override]
        """Tools by name, for the methods of the base class."""
        # Read the counter before listing: a change while the server lists its tools leads to another listing.
        if self._changes != (changes := self._connection.changes):
            with self._allowing_loss():
                definitions = self._connection.request_blocking(_list_tools)
                self._adopt(changes, make_tools(definitions, self._connection, self._policy))
        return self._listed

    async def at(self, context: PromptContext) -> Toolset:
        """Return the current tools of the server, without blocking."""
        del context
        await self._refresh()
        return Toolset(self._listed.values())

    async def _refresh(self) -> None:
        if self._changes != (changes := self._connection.changes):
            with self._allowing_loss():
                definitions = await self._connection.request(_list_tools)
                self._adopt(changes, await to_thread(make_tools, definitions, self._connection, self._policy))

    @contextmanager
    def _allowing_loss(self) -> Iterator[None]:
        """Continue with the known tools after an error: their calls fail until the server can be reached again."""
        try:
            yield
        except MCPServerError:
            if self._changes < 0:
                raise

    def _adopt(self, changes: int, listing: tuple[dict[str, Tool], tuple[ToolDefinitionError, ...]]) -> None:
        self._listed, self._problems = listing
        reader = self._reader
        if reader is not None and self._listed.setdefault(reader.name, reader) is not reader:
            clash = f"tool {reader.name}: the server has a tool of this name, which replaces the tool for resources"
            self._problems += (ToolDefinitionError(clash),)
        self._changes = changes

    @property
    def problems(self) -> tuple[ToolDefinitionError | MCPServerError, ...]:
        """Errors of the tools that are not offered, for example because of an invalid schema, required tasks or a
        repeated name, of output schemas that cannot check results, and of the resources that are missing in
        `documents()`.
        """
        _ = self._tools
        return (*self._problems, *self._unread.values())

    @property
    def stderr_tail(self) -> str:
        """The end of the stderr of the latest process of the server, which is not written to any other place."""
        return self._connection.stderr_tail

    async def resources(self) -> Sequence[Resource]:
        """Return the resources of the server: `uri`, `name`, `description`, `mime_type`, `size`.

        Raises:
            MCPServerLost, MCPServerError: The server cannot be reached, or violates the protocol.
        """
        return await self._connection.request(lambda client: list_all(client, "resources"))

    async def documents(self, *uris: str) -> tuple[Document, ...]:
        """Read resources as documents for a `PromptContext`: untrusted, with their address as id and source.

        Args:
            uris: Addresses of resources. Without addresses, all listed resources are read; `problems` contains the
                errors of resources that are not text.

        Raises:
            MCPServerError: A resource is unknown to the server, or is not text; see `parts` for media.
            MCPServerLost: The server cannot be reached.
        """

        async def read(client: Client) -> tuple[Document, ...]:
            if uris:
                contents = [await client.read_resource(uri) for uri in uris]
                return tuple(document for content in contents for document in to_documents(content))
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
        """Return the prompts of the server: `name`, `description`, `arguments`. Raises like `resources`."""
        return await self._connection.request(lambda client: list_all(client, "prompts"))

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> tuple[Message, ...]:
        """Return the messages of a prompt of the server, for example for the conversation of a `PromptContext`.

        Raises:
            MCPServerError: The prompt is unknown, or arguments are missing or unknown; the message lists all problems.
            MCPServerLost: The server cannot be reached.
        """
        values = dict(arguments or {})

        async def get(client: Client) -> tuple[Message, ...]:
            _check_prompt(name, values, await list_all(client, "prompts"))
            return to_messages(await client.get_prompt(name, values))

        return await self._connection.request(get)

    def close(self) -> None:
        """Close the session, and the process of a command. Later calls return error results."""
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


def _check_prompt(name: str, arguments: Mapping[str, str], prompts: Sequence[Prompt]) -> None:
    prompts_by_name = {prompt.name: prompt for prompt in prompts}
    if name not in prompts_by_name:
        raise MCPServerError(f"unknown prompt {name!r}{nearest(name, prompts_by_name)}", name=name)
    expected = {argument.name: bool(argument.required) for argument in prompts_by_name[name].arguments or ()}
    problems = _problems_of_arguments(arguments, expected)
    if problems:
        valid_names = ", ".join(expected) or "none"
        listing = "; ".join(map(str, problems))
        raise MCPServerError(f"prompt {name}: {listing}. Valid arguments: {valid_names}.", name=name, problems=problems)


def _problems_of_arguments(arguments: Mapping[str, str], expected: Mapping[str, bool]) -> list[ArgumentProblem]:
    """Return the problems of the arguments of a prompt; the values of `expected` are True for required ones."""
    required = [argument for argument, is_required in expected.items() if is_required]
    problems = [ArgumentProblem(argument, "is required") for argument in required if argument not in arguments]
    for argument, value in arguments.items():
        if argument not in expected:
            problems.append(ArgumentProblem(argument, "is unknown"))
        elif not isinstance(value, str):
            problems.append(ArgumentProblem(argument, "is not text", brief(value)))
    return problems
