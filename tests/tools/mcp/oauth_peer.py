"""An MCP server with an authorization server of the official SDK, on loopback in a thread."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from tests.loopback import serving
from tests.waiting import reserved_port


class OAuthPeer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server. Tests change its attributes.

    Attributes:
        address: Address of the MCP server.
        access: The valid access tokens.
        answer: Parameters of the redirect to the client instead of a code.
        visited: Addresses of the pages that were shown.
    """

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/mcp"
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.answer: dict[str, str] = {}
        self.visited: list[str] = []
        # Reading certificates for each request would take most of the time.
        self.browser = httpx2.Client(verify=False)

    # A person

    def visit(self, page: str) -> None:
        """Open a page as a browser does, and follow its redirect to the client."""
        self.visited.append(page)
        threading.Thread(target=self._follow, args=(page,), daemon=True).start()

    def _follow(self, page: str) -> None:
        location = self.browser.get(page).headers["Location"]
        if self.answer:
            state = parse_qs(urlsplit(location).query)["state"][0]
            location = f"{location.partition('?')[0]}?{urlencode({'state': state, **self.answer})}"
        self.browser.get(f"{location.partition('/callback')[0]}/favicon.ico")
        self.browser.get(location)

    # `OAuthAuthorizationServerProvider`

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id or ""] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(20),
            scopes=params.scopes or [],
            expires_at=2e10,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )
        self.codes[code.code] = code
        return f"{params.redirect_uri}?{urlencode({'code': code.code, 'state': params.state or ''})}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client.client_id or "", authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(client.client_id or "", scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def _issue(self, client: str, scopes: list[str]) -> OAuthToken:
        token, refresh = secrets.token_hex(16), secrets.token_hex(16)
        self.access[token] = AccessToken(token=token, client_id=client, scopes=scopes)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes)
        return OAuthToken(access_token=token, refresh_token=refresh, expires_in=3600)


@contextmanager
def oauth_server() -> Iterator[OAuthPeer]:
    """Serve a tool `greet` to clients with a token of the scope `read`."""
    with reserved_port() as port:
        peer = OAuthPeer(port)
        origin = f"http://127.0.0.1:{port}"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            resource_server_url=AnyHttpUrl(peer.address),
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["read", "pay"], default_scopes=["read", "pay"]
            ),
            required_scopes=["read"],
            validate_token_resource=False,
        )
        server = MCPServer("shop", auth_server_provider=peer, auth=settings)

        @server.tool()
        def greet(name: str) -> str:
            return f"Hello {name}"

        with serving(server.streamable_http_app(), port):
            yield peer
