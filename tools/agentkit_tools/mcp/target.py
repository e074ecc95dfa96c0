"""Where an MCP server is and how it is reached: a command over its pipes, an address, or a transport of one's own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit

from agentkit_prompts.credentials import BareAddress, masked
from agentkit_prompts.limits import MAX_INPUT_BYTES, MAX_NAME_CHARS
from agentkit_tools.errors import MCPServerError, ToolDefinitionError
from agentkit_tools.mcp.bounded_lines import MAX_VALUES, TOO_LONG, bounded
from agentkit_tools.mcp.cpu_pace import CPUPace
from agentkit_tools.mcp.listed_tools import readable

if TYPE_CHECKING:
    from mcp import StdioServerParameters
    from mcp.client import Transport
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCNotification, JSONRPCRequest

__all__ = ["ServerLike", "StderrTail", "Target"]

ServerLike: TypeAlias = "str | Sequence[str] | StdioServerParameters | Callable[[], Transport]"
"""An http address, a command with its arguments, the SDK's parameters of one, or what makes an SDK transport."""

_MAX_STDERR = 8_192
_GRACE_SECONDS = 1.0
"""How long a server may take to end once its stdin is closed."""
_MIN_SECRET = 8


class StderrTail(asyncio.Protocol):
    """Keeps the end of what a server wrote to its stderr, which is never mixed into ours."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.names_group = False
        """Whether the first line names the process group that the server runs in."""
        self._group = 0

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if self.names_group and b"\n" in self._kept:
            first, _, self._kept = self._kept.partition(b"\n")
            self._group, self.names_group = int(first), False
        del self._kept[:-_MAX_STDERR]

    def kill(self) -> None:
        """End what is left of the server and of all that it started, whatever signals they ignore."""
        group, self._group = self._group, 0
        if group and os.name == "posix":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    @property
    def text(self) -> str:
        """The last 8 KiB."""
        return self._kept.decode("utf-8", "replace").strip()


class Target:
    """How to reach one server, any number of times.

    Raises:
        ToolDefinitionError: It is nothing a server can be, or an option does not belong to it.
    """

    __slots__ = ("_headers", "_secrets", "_server", "name")

    name: str
    """For messages: the program, or scheme and host; never arguments, headers or credentials."""

    def __init__(
        self,
        server: ServerLike,
        *,
        headers: Mapping[str, str] | None,
        env: Mapping[str, str] | None,
        cwd: str | Path | None,
    ) -> None:
        if find_spec("mcp") is None:
            raise ToolDefinitionError("MCP servers need the extra `mcp`: pip install 'agentkit-prompt-tree[mcp]'")
        kind = _kind_of(server)
        name = _name_of(server, kind)
        # The text of an invalid address is not shown: it may be a key.
        self.name = name or f"at {len(str(server))} characters"
        problems: list[str] = []
        names: list[str] = []
        if not name:
            problems.append("a str is an http or https address; a command is a list such as ['python', 'server.py']")
            names.append("server")
        if headers and kind != "address":
            problems.append("headers belong to an http address")
            names.append("headers")
        if (env or cwd) and kind != "command":
            problem = "env and cwd belong to a command"
            if kind == "parameters":
                problem = "StdioServerParameters bring their own env and cwd"
            problems.append(problem)
            names += ["env", "cwd"]
        if problems:
            raise ToolDefinitionError(f"MCP server {self.name}: {'; '.join(problems)}", names=names)
        self._headers = dict(headers or {})
        self._server: Any = server
        if kind == "command":
            from mcp import StdioServerParameters

            command, *args = cast(Sequence[str], server)
            self._server = StdioServerParameters(command=command, args=args, env=dict(env or {}) or None, cwd=cwd)
        self._secrets = tuple(_secrets(self._server, self._headers))

    def masked(self, text: str) -> str:
        """Return text of the server with stars in the place of the keys that it was given, which it may repeat."""
        return masked(text, self._secrets)

    @property
    def command(self) -> str:
        """The program that is started; "" for a server that is reached in another way."""
        return str(getattr(self._server, "command", ""))

    def problem(self) -> str:
        """Return why a command cannot be started, in one sentence; "" where nothing is known to be wrong."""
        command = self.command
        if not command:
            return ""
        if "/" in command or os.sep in command:
            # Absolute, because `which` looks for a bare file name on the PATH.
            file = Path(self._server.cwd or ".").absolute() / command
            problem = f"the file {command!r} is not a program that can be started"
            if not file.exists():
                problem = f"the file {command!r} does not exist"
            found = shutil.which(str(file))
        else:
            problem = f"no command {command!r} is on the PATH; install it, or give its path"
            found = shutil.which(command, path=(self._server.env or {}).get("PATH") or os.environ.get("PATH"))
        if found is not None:
            return ""
        return f"MCP server {self.name}: {problem}"

    def transport(
        self, stderr: StderrTail, pace: CPUPace, ended: Callable[[MCPServerError | None], None]
    ) -> AbstractAsyncContextManager[Any]:
        """Return a fresh transport of the SDK that calls `ended` as soon as the server's side of it closes.

        It is given what the server did that no server may, where that is why.
        """
        return _Watch(self.name, pace, ended, self.masked).around(self._open(stderr, pace))

    @asynccontextmanager
    async def _open(self, stderr: StderrTail, pace: CPUPace) -> AsyncIterator[Any]:
        server: Any = self._server
        if isinstance(server, str):
            from mcp.client.streamable_http import streamable_http_client

            from agentkit_tools.mcp.http_client import HTTPClient, HTTPMessages

            address = BareAddress.of(server)
            async with (
                HTTPClient(self._headers, address.auth, pace) as client,
                streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_INPUT_BYTES) as streams,
            ):
                read, write = streams
                yield read, HTTPMessages(write)
        elif callable(server):
            own: Any = server()
            async with own as streams:
                yield streams
        else:
            from mcp.client.stdio import stdio_client

            how = {"encoding": bounded(server.encoding), "encoding_error_handler": "replace"}
            server = server.model_copy(update=how)
            command = _watched_command(server)
            stderr.names_group = command is not server
            async with _errlog(stderr) as errlog:
                try:
                    async with stdio_client(command, errlog) as streams:
                        # The server has its own copy. The pipe ends when the server closes that.
                        errlog.close()
                        try:
                            yield streams
                        finally:
                            # The SDK waits longer, and not at all if it is cancelled.
                            asyncio.get_running_loop().call_later(_GRACE_SECONDS, stderr.kill)
                finally:
                    stderr.kill()


_Kind: TypeAlias = Literal["address", "transport", "command", "parameters"]


def _kind_of(server: object) -> _Kind:
    """Return how a server is given.

    Raises:
        ToolDefinitionError: It is not a server.
    """
    if isinstance(server, str):
        return "address"
    if callable(server):
        return "transport"
    if isinstance(server, Sequence) and server and all(isinstance(word, str) for word in server):
        return "command"
    if getattr(server, "command", None) is not None:
        return "parameters"
    raise ToolDefinitionError(
        f"MCP server: expected an address, a command as a list of str, StdioServerParameters or a function that"
        f" makes a transport, got {type(server).__name__}",
        names=["server"],
    )


def _name_of(server: Any, kind: _Kind) -> str:
    """Return the name of a server for messages; "" for an invalid address."""
    if kind == "address":
        return _name_of_address(server)
    if kind == "transport":
        return str(getattr(server, "__name__", type(server).__name__))
    if kind == "command":
        return Path(server[0]).name
    return Path(str(server.command)).name


def _name_of_address(text: str) -> str:
    """Return scheme, host and port of an http address; "" if it is not one."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    if port:
        host = f"{host}:{port}"
    return f"{parts.scheme}://{host}"


def _secrets(server: Any, headers: Mapping[str, str]) -> Iterator[str]:
    """Return the texts that a server gets and may repeat: headers, query, password, and variables that are no paths."""
    given: list[str] = []
    for value in map(str, headers.values()):
        # The second word of "Bearer KEY" is a secret, too.
        given += [value, value.partition(" ")[2]]
    if isinstance(server, str):
        parts = urlsplit(server)
        given += [parts.query, *[value for _, value in parse_qsl(parts.query)], parts.fragment]
        given += (BareAddress.of(server).auth or ("", ""))[1:]
    for value in (getattr(server, "env", None) or {}).values():
        if not value.startswith((os.sep, ".", "~")):
            given.append(value)
    return (secret for secret in given if len(secret) >= _MIN_SECRET)


def _without_keys(data: Any, mask: Callable[[str], str]) -> Any:
    """Return JSON data with stars in the place of keys."""
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, dict):
        return {mask(name): _without_keys(value, mask) for name, value in data.items()}
    if isinstance(data, list):
        return [_without_keys(item, mask) for item in data]
    return data


_WATCH = """
echo "$$" >&2
(trap '' TERM HUP INT
while kill -0 "$0" && kill -0 $$; do sleep 1; done
kill -0 $$ && kill -s KILL -- -$$) </dev/null >/dev/null 2>&1 &
exec "$@"
"""
"""Names its process group, and runs a command there; a watcher ends the group once the process `$0` is gone."""


def _watched_command(server: StdioServerParameters) -> StdioServerParameters:
    """Return what runs the same command, and ends it when this process ends without closing it, as by a signal."""
    shell = shutil.which("sh")
    if os.name != "posix" or shell is None:
        return server
    words = ["-c", _WATCH, str(os.getpid()), server.command, *server.args]
    return server.model_copy(update={"command": shell, "args": words})


@asynccontextmanager
async def _errlog(stderr: StderrTail) -> AsyncIterator[TextIO]:
    """Yield a file that a process can write its stderr to."""
    if sys.platform == "win32":  # pragma: no cover (its event loops cannot read from plain pipes)
        with Path(os.devnull).open("w") as nowhere:
            yield nowhere
        return
    read, write = os.pipe()
    with os.fdopen(write, "w") as errlog:
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: stderr, os.fdopen(read, "rb"))
        try:
            yield errlog
        finally:
            pipe.close()


class _Watch:
    """Passes the messages of a server on, errors without keys, and calls `ended` when there will be no more."""

    def __init__(
        self, name: str, pace: CPUPace, ended: Callable[[MCPServerError | None], None], mask: Callable[[str], str]
    ) -> None:
        self._name = name
        self._pace = pace
        self._ended = ended
        self._mask = mask

    @asynccontextmanager
    async def around(self, inner: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Open a transport; yield its streams."""
        import anyio

        async with inner as (read, write):
            sender, receiver = anyio.create_memory_object_stream[Any](0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._forward, read, write, sender)
                try:
                    yield receiver, write
                finally:
                    tasks.cancel_scope.cancel()
                    receiver.close()

    async def _forward(self, read: Any, write: Any, sender: Any) -> None:
        import anyio

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
                if await self._is_for_client(content, write):
                    await sender.send(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            # This side was closed first.
            pass
        finally:
            # First record the reason: closing the stream wakes the requests that wait for an answer.
            self._ended(fault)
            sender.close()

    async def _is_for_client(self, content: Any, write: Any) -> bool:
        """Mask the keys in a message; return False for one that the client must not read."""
        from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

        if isinstance(content, JSONRPCRequest):
            # Waits until the server reads, so that a server that does not read is not read either.
            await write.send(_answer(content))
            return False
        if isinstance(content, JSONRPCResponse):
            if content.result.get("isError"):
                content.result = _without_keys(content.result, self._mask)
            content.result = readable(content.result)
        elif isinstance(content, JSONRPCError):
            content.error = ErrorData(**_without_keys(dict(content.error), self._mask))
        return not (isinstance(content, JSONRPCNotification) and _overflows(content))


def _overflows(message: JSONRPCNotification) -> bool:
    """Return whether it holds a number that no float can be: of progress, that would end the session."""
    params = message.params or {}
    try:
        for number in (params.get("progress"), params.get("total")):
            if isinstance(number, int):
                float(number)
    except OverflowError:
        return True
    return False


def _answer(asked: JSONRPCRequest) -> SessionMessage:
    """Return what a server is answered that asks for something: models and people are not there for it.

    The SDK would begin a task for each, and keep all of them for a server that reads no answers.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import METHOD_NOT_FOUND, ErrorData, JSONRPCError, JSONRPCResponse

    if asked.method == "ping":
        return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=asked.id, result={}))
    refusal = ErrorData(code=METHOD_NOT_FOUND, message=f"{asked.method[:MAX_NAME_CHARS]} is not supported")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=asked.id, error=refusal))
