"""Transports to MCP servers: the pipes of a command, an http address, or a custom transport."""

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
from agentkit_prompts.extras import install
from agentkit_prompts.limits import MAX_INPUT_BYTES
from agentkit_tools.errors import MCPServerError, ToolDefinitionError
from agentkit_tools.mcp.bounded_lines import bounded
from agentkit_tools.mcp.cpu_pace import CPUPace
from agentkit_tools.mcp.token_file import TokenFile
from agentkit_tools.mcp.watched_transport import WatchedTransport

if TYPE_CHECKING:
    from mcp import StdioServerParameters
    from mcp.client import Transport
    from mcp.client.auth import TokenStorage

    from agentkit_tools.mcp.server_requests import ServerRequests
    from agentkit_tools.mcp.stored_login import StoredLogin

ServerLike: TypeAlias = "str | Sequence[str] | StdioServerParameters | Callable[[], Transport]"
"""An http address, a command with its arguments, the SDK's parameters of a command, or a function that returns a
transport of the SDK."""

_MAX_STDERR = 8_192
_GRACE_SECONDS = 1.0
"""Maximum seconds until a server exits after its stdin was closed."""
_MIN_SECRET = 8


class StderrTail(asyncio.Protocol):
    """The end of the stderr of a server, which is not mixed with the stderr of this process."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.names_group = False
        """True if the first line is the id of the process group of the server."""
        self._group = 0

    def data_received(self, data: bytes) -> None:
        self._kept += data
        if self.names_group and b"\n" in self._kept:
            first, _, self._kept = self._kept.partition(b"\n")
            self._group, self.names_group = int(first), False
        del self._kept[:-_MAX_STDERR]

    def kill(self) -> None:
        """Kill the remaining processes of the server and their children."""
        group, self._group = self._group, 0
        if group and os.name == "posix":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    @property
    def text(self) -> str:
        """The last 8 KiB."""
        return self._kept.decode("utf-8", "replace").strip()


class Target:
    """Address or command of one server, which creates transports.

    Raises:
        ToolDefinitionError: The server is invalid, or an option is not for this kind of server.
    """

    __slots__ = ("_headers", "_secrets", "_server", "_tokens", "name")

    name: str
    """Name for messages: the program, or scheme and host, without arguments, headers and credentials."""

    def __init__(
        self,
        server: ServerLike,
        *,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        tokens: TokenStorage | None = None,
    ) -> None:
        if find_spec("mcp") is None:
            raise ToolDefinitionError(f"MCP servers need the extra `mcp`: {install('mcp')}")
        kind = _kind_of(server)
        name = _name_of(server, kind)
        # The text of an invalid address can be a key, so it is not shown.
        self.name = name or f"at {len(str(server))} characters"
        problems: dict[str, str] = {}
        if not name:
            problems["server"] = (
                "a str is an http or https address; a command is a list such as ['python', 'server.py']"
            )
        if kind != "address":
            options = {"headers": bool(headers), "tokens": tokens is not None}
            problems |= {name: f"{name} belong to an http address" for name, is_set in options.items() if is_set}
        if kind != "command" and (env or cwd):
            text = "env and cwd belong to a command"
            if kind == "parameters":
                text = "StdioServerParameters bring their own env and cwd"
            problems |= dict.fromkeys(("env", "cwd"), text)
        if problems:
            texts = "; ".join(dict.fromkeys(problems.values()))
            raise ToolDefinitionError(f"MCP server {self.name}: {texts}", names=problems)
        self._headers = dict(headers or {})
        self._tokens = tokens
        self._server: Any = server
        if kind == "command":
            from mcp import StdioServerParameters

            command, *args = cast(Sequence[str], server)
            self._server = StdioServerParameters(command=command, args=args, env=dict(env) if env else None, cwd=cwd)
        self._secrets = set(_secrets(self._server, self._headers))

    def masked(self, text: str) -> str:
        """Return text from the server in which stars replace the keys that the server received and could repeat."""
        return masked(text, self._secrets)

    @property
    def command(self) -> str:
        """Program of a command; "" for other servers."""
        return str(getattr(self._server, "command", ""))

    def problem(self) -> str:
        """Return an error message if a command cannot be started, otherwise ""."""
        command = self.command
        if not command:
            return ""
        if "/" in command or os.sep in command:
            # Absolute, because `which` looks for a bare file name on the PATH.
            file = Path(self._server.cwd or ".").absolute() / command
            problem = f"the file {command!r} is not a program that can be started"
            if not file.exists():
                problem = f"the file {command!r} does not exist"
            program = shutil.which(str(file))
        else:
            problem = f"no command {command!r} is on the PATH; install it, or give its path"
            program = shutil.which(command, path=(self._server.env or {}).get("PATH") or os.environ.get("PATH"))
        if program is not None:
            return ""
        return f"MCP server {self.name}: {problem}"

    def transport(
        self,
        stderr: StderrTail,
        pace: CPUPace,
        ended: Callable[[MCPServerError | None], None],
        requests: ServerRequests,
    ) -> AbstractAsyncContextManager[Any]:
        """Return a new transport of the SDK, which calls `ended` when the server closes it.

        `ended` receives the violation of the protocol that closed the transport, or None. `requests` answers the
        requests of older servers.
        """
        return WatchedTransport(self.name, pace, ended, self.masked, requests).around(self._open(stderr, pace, ended))

    @asynccontextmanager
    async def _open(
        self, stderr: StderrTail, pace: CPUPace, ended: Callable[[MCPServerError | None], None]
    ) -> AsyncIterator[Any]:
        server: Any = self._server
        if isinstance(server, str):
            from mcp.client.streamable_http import streamable_http_client

            from agentkit_tools.mcp.http_client import HTTPClient, HTTPMessages

            address = BareAddress.of(server)
            async with (
                HTTPClient(self._headers, address.auth or self._login(address.url, ended), pace) as client,
                streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_INPUT_BYTES) as streams,
            ):
                read, write = streams
                yield read, HTTPMessages(write)
        elif callable(server):
            custom: Any = server()
            async with custom as streams:
                yield streams
        else:
            from mcp.client.stdio import stdio_client

            decoding = {"encoding": bounded(server.encoding), "encoding_error_handler": "replace"}
            server = server.model_copy(update=decoding)
            command = _watched_command(server)
            stderr.names_group = command is not server
            async with _errlog(stderr) as errlog:
                try:
                    async with stdio_client(command, errlog) as streams:
                        # The server has a copy of the pipe. The pipe ends when the server closes its copy.
                        errlog.close()
                        try:
                            yield streams
                        finally:
                            # The SDK waits longer, or not at all after a cancellation.
                            asyncio.get_running_loop().call_later(_GRACE_SECONDS, stderr.kill)
                finally:
                    stderr.kill()

    def _login(self, url: str, ended: Callable[[MCPServerError | None], None]) -> StoredLogin | None:
        """Return the authentication with stored tokens; None if the caller passed another authentication."""
        from agentkit_tools.mcp.stored_login import StoredLogin

        if any(name.lower() == "authorization" for name in self._headers):
            return None
        return StoredLogin(url, self._tokens or TokenFile(url), ended, self._secrets.add)


_Kind: TypeAlias = Literal["address", "transport", "command", "parameters"]


def _kind_of(server: object) -> _Kind:
    """Return the kind of a server.

    Raises:
        ToolDefinitionError: The value is not a server.
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
        f" returns a transport, got {type(server).__name__}",
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
    """Return scheme, host and port of an http address; "" for other texts."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host or " " in text or not text.isprintable():
        return ""
    if port:
        host = f"{host}:{port}"
    return f"{parts.scheme}://{host}"


def _secrets(server: Any, headers: Mapping[str, str]) -> Iterator[str]:
    """Return the secrets that a server receives and could repeat: headers, query, password, variables without paths."""
    candidates: list[str] = []
    for value in map(str, headers.values()):
        # The second word of "Bearer KEY" is a secret, too.
        candidates += [value, value.partition(" ")[2]]
    if isinstance(server, str):
        parts = urlsplit(server)
        candidates += [parts.query, *[value for _, value in parse_qsl(parts.query)], parts.fragment]
        user, password = BareAddress.of(server).auth or ("", "")
        # A user without a password is a token.
        candidates.append(password or user)
    for value in (getattr(server, "env", None) or {}).values():
        if not _is_path(value):
            candidates.append(value)
    return (secret for secret in candidates if len(secret) >= _MIN_SECRET)


def _is_path(value: str) -> bool:
    """True if a value of a variable is a path, or a list with a path, that exists. A key can start like a path."""
    return any(part.startswith((os.sep, ".")) and os.path.lexists(part) for part in value.split(os.pathsep))


_WATCH = """
echo "$$" >&2
(trap '' TERM HUP INT
while kill -0 "$0" && kill -0 $$; do sleep 1; done
kill -0 $$ && kill -s KILL -- -$$) </dev/null >/dev/null 2>&1 &
exec "$@"
"""
"""Shell script that prints its process group and runs a command in it. A watcher kills the group after the process `$0`
has exited."""


def _watched_command(server: StdioServerParameters) -> StdioServerParameters:
    """Return parameters of the same command, which is killed when this process exits without closing it."""
    shell = shutil.which("sh")
    if os.name != "posix" or shell is None:
        return server
    words = ["-c", _WATCH, str(os.getpid()), server.command, *server.args]
    return server.model_copy(update={"command": shell, "args": words})


@asynccontextmanager
async def _errlog(stderr: StderrTail) -> AsyncIterator[TextIO]:
    """Yield a file for the stderr of a process."""
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
