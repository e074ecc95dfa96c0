"""`LoginRequest`: a request to an MCP server that lets the SDK log in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from agentkit_tools.errors import MCPLoginError
from agentkit_tools.mcp.cpu_pace import CPUPace
from agentkit_tools.mcp.http_client import HTTPClient
from agentkit_tools.mcp.login_callback import LoginCallback

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage
    from mcp.shared.auth import OAuthMetadata, OAuthToken

_VERSION = "2025-11-25"
_SESSION = "Mcp-Session-Id"
_REQUESTS: tuple[dict[str, Any], ...] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": _VERSION,
            "capabilities": {},
            "clientInfo": {"name": "agentkit", "version": "0"},
        },
    },
    # Some servers answer the first request without a login, and require it for their tools.
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
)
_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": _VERSION,
}
_BASIC = "client_secret_basic"
_EXCHANGE_SECONDS = 60.0
"""Maximum seconds of the login without the time of the person."""


class LoginRequest:
    """A login. It is the `TokenStorage` of the SDK during the login, so that a failed login changes no stored token."""

    def __init__(
        self, address: str, show: Callable[[str], object], callback: LoginCallback, timeout: float, scope: str
    ) -> None:
        self._address = address
        self._show = show
        self._callback = callback
        self._timeout = timeout
        self._scope = scope
        self._provider: OAuthClientProvider | None = None
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    def set_client(self, client_id: str, client_secret: str) -> None:
        """Use a client that was registered before."""
        method = "none"
        if client_secret:
            method = _BASIC
        self._client = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=client_secret or None,
            redirect_uris=[AnyUrl(self._callback.address)],
            token_endpoint_auth_method=method,
        )

    async def send(self) -> bool:
        """Send requests until a login; return False if the server answers them without a login.

        Raises:
            OAuthFlowError, ValueError: The login failed.
            MCPLoginError: The person denied the login or took too long, or the answer belongs to another login.
            httpx2.HTTPError: A server cannot be reached.
        """
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(self._callback.address)], client_name="agentkit")
        provider = OAuthClientProvider(self._address, metadata, self, self._redirect, self._returned)
        self._provider = provider
        seconds = self._timeout + _EXCHANGE_SECONDS
        async with HTTPClient(_HEADERS, provider, CPUPace(), max_seconds=seconds) as client:
            if self._scope:
                client.event_hooks["response"].append(self._add_scope)
            for body in _REQUESTS:
                response = await client.send(
                    client.build_request("POST", self._address, content=json.dumps(body)), stream=True
                )
                await response.aclose()
                if response.status_code == httpx2.codes.UNAUTHORIZED:
                    raise MCPLoginError.of(self._address, "failed", "the server refuses the new token")
                if self._tokens is not None:
                    break
                if _SESSION in response.headers:
                    client.headers[_SESSION] = response.headers[_SESSION]
        return self._tokens is not None

    async def _add_scope(self, response: httpx2.Response) -> None:
        """Replace the scope that the server requests."""
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            challenge = response.headers.get("WWW-Authenticate", "Bearer").removeprefix("Bearer").strip()
            response.headers["WWW-Authenticate"] = f'Bearer scope="{self._scope}", {challenge}'

    def _choose_method(self, metadata: OAuthMetadata | None) -> None:
        """Send the secret of a client that was registered before in the form if the server does not accept a header."""
        supported = None
        if metadata is not None:
            supported = metadata.token_endpoint_auth_methods_supported
        client = self._client
        # Without a list, servers accept the header.
        if client is not None and client.token_endpoint_auth_method == _BASIC and supported and _BASIC not in supported:
            client.token_endpoint_auth_method = "client_secret_post"

    async def _redirect(self, page: str) -> None:
        # The address comes from a server, and a browser also opens files and programs.
        if urlsplit(page).scheme not in ("http", "https"):
            raise MCPLoginError.of(self._address, "failed", "the page of the login has no http address")
        if self._provider is not None:
            self._choose_method(self._provider.context.oauth_metadata)
        self._callback.expect(page)
        self._show(page)

    async def _returned(self) -> AuthorizationCodeResult:
        values = await self._callback.answer(self._timeout)
        return AuthorizationCodeResult(code=values.get("code", ""), state=values.get("state"), iss=values.get("iss"))

    async def store(self, storage: TokenStorage) -> None:
        """Store the registration and the tokens."""
        assert self._client is not None
        assert self._tokens is not None
        await storage.set_client_info(self._client)
        await storage.set_tokens(self._tokens)

    # `TokenStorage`

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info
