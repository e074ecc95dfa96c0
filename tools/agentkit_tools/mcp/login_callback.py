"""`LoginCallback`: the loopback address to which an authorization server sends the browser after a login."""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from agentkit_prompts.limits import MAX_REASON_CHARS
from agentkit_tools.errors import MCPLoginError

_PATH = "/callback"
_READ_SECONDS = 10.0
_PAGE = "<!doctype html><title>agentkit</title><p>{}</p>"


class LoginCallback:
    """HTTP server for one answer of the browser.

    Args:
        server: Address of the MCP server, for errors.
        port: Port on 127.0.0.1; 0 for any free port.

    Attributes:
        address: Address of the callback, after the server was started.
    """

    address = ""

    def __init__(self, server: str, port: int = 0) -> None:
        self._mcp_server = server
        self._port = port
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Start the server. Raises `OSError` if the port is in use."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=16_384)
        port = self._listener.sockets[0].getsockname()[1]
        self.address = f"http://127.0.0.1:{port}{_PATH}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.close()

    def expect(self, authorization: str) -> None:
        """Set the state of the login, from the address of its page."""
        self._state = _values(authorization).get("state", "")

    async def answer(self, seconds: float) -> dict[str, str]:
        """Return `code`, `state` and, if the authorization server sends it, `iss`.

        Raises:
            MCPLoginError: The login was denied, took too long, or the answer belongs to another login.
        """
        try:
            async with asyncio.timeout(seconds):
                values = await self._answer
        except TimeoutError as error:
            raise MCPLoginError.of(self._mcp_server, "timeout", f"{seconds:g} seconds") from error
        # A page of another site can send the browser here, with the code of another account.
        if not secrets.compare_digest(values.get("state", "").encode(), self._state.encode()):
            raise MCPLoginError.of(self._mcp_server, "state")
        if "error" in values:
            detail = (values.get("error_description") or values["error"])[:MAX_REASON_CHARS]
            if values["error"] == "access_denied":
                raise MCPLoginError.of(self._mcp_server, "denied", detail)
            raise MCPLoginError.of(self._mcp_server, "failed", detail)
        return values

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, text = "404 Not Found", "Unknown page."
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                if len(words) == 3 and words[0] == "GET" and urlsplit(words[1]).path == _PATH:
                    status, text = "200 OK", "agentkit has the answer. You can close this page."
                    if not self._answer.done():
                        self._answer.set_result(_values(words[1]))
                body = _PAGE.format(text).encode()
                lines = (
                    f"HTTP/1.1 {status}",
                    "Content-Type: text/html; charset=utf-8",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                )
                writer.write("\r\n".join((*lines, "", "")).encode() + body)
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The next connection can bring the answer.
            pass
        finally:
            writer.close()


def _values(address: str) -> dict[str, str]:
    """Return the last value of each parameter of an address."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(address).query).items()}
