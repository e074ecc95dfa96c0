"""`StoredLogin`: HTTP authentication of a run with the stored tokens of a login. It opens no browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

import httpx2

from agentkit_tools.errors import LoginProblem, MCPLoginError, describe_error
from agentkit_tools.mcp.cpu_pace import CPUPace
from agentkit_tools.mcp.http_client import HTTPClient
from agentkit_tools.mcp.refresh_turn import refresh_turn

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage


class StoredLogin(httpx2.Auth):
    """Authentication of the requests of one session.

    Args:
        address: Address of the server, without credentials.
        storage: The tokens.
        ended: Receives the error that ends the session.
        on_secret: Receives each token.
    """

    def __init__(
        self,
        address: str,
        storage: TokenStorage,
        ended: Callable[[MCPLoginError], None],
        on_secret: Callable[[str], None],
    ) -> None:
        self._address = address
        self._storage = storage
        self._ended = ended
        self._on_secret = on_secret
        self._token: str | None = None
        self._refreshing = asyncio.Lock()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with the token. After a refusal, send it once more with a newer token.

        Raises:
            MCPLoginError: The server requires a login, or refuses the tokens.
        """
        if self._token is None:
            await self._load()
        token = self._token
        self._authorize(request)
        response = yield request
        if _lacks_scope(response):
            raise self._error("scope", _scope(response))
        if response.status_code != httpx2.codes.UNAUTHORIZED:
            return
        if token is None:
            raise self._error("required")
        async with self._refreshing:
            await self._renew(token, response)
        self._authorize(request)
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            raise self._error("refused")

    async def _load(self) -> None:
        try:
            tokens = await self._storage.get_tokens()
        except MCPLoginError as error:
            self._ended(error)
            raise
        self._token = None
        if tokens is not None:
            self._token = tokens.access_token
            for secret in (tokens.access_token, tokens.refresh_token):
                if secret:
                    self._on_secret(secret)

    def _authorize(self, request: httpx2.Request) -> None:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"

    async def _renew(self, token: str, refusal: httpx2.Response) -> None:
        """Replace a token that the server has refused."""
        from mcp.client.auth import OAuthFlowError

        from agentkit_tools.mcp.token_refresh import refresh_tokens

        try:
            async with refresh_turn(self._storage):
                # Another request, session or process can have refreshed the token.
                await self._load()
                if self._token != token:
                    return
                async with HTTPClient({}, None, CPUPace()) as client:
                    await refresh_tokens(self._address, self._storage, refusal, client)
        except MCPLoginError as error:
            self._ended(error)
            raise
        except (OAuthFlowError, httpx2.HTTPError, ValueError, OSError) as error:
            await self._load()
            # Another process can have refreshed the token in a storage of the program.
            if self._token in (token, None):
                raise self._error("refused", describe_error(error)) from error
        else:
            await self._load()

    def _error(self, reason: LoginProblem, detail: str = "") -> MCPLoginError:
        error = MCPLoginError.of(self._address, reason, detail)
        self._ended(error)
        return error


def _lacks_scope(response: httpx2.Response) -> bool:
    challenge = response.headers.get("WWW-Authenticate", "")
    return response.status_code == httpx2.codes.FORBIDDEN and "insufficient_scope" in challenge


def _scope(response: httpx2.Response) -> str:
    from mcp.client.auth.utils import extract_scope_from_www_auth

    return extract_scope_from_www_auth(response) or ""
