"""Refresh of the OAuth tokens of an MCP server, without a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, utils
from mcp.shared.auth import OAuthClientMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage

_EXPIRED = 1.0
"""A time in the past: the SDK refreshes a token only after this time."""


async def refresh_tokens(
    address: str, storage: TokenStorage, refusal: httpx2.Response, client: httpx2.AsyncClient
) -> None:
    """Store new tokens.

    Args:
        address: Address of the server.
        storage: The tokens, and the registration of this client.
        refusal: Response of the server to a request with the old token.
        client: Client for requests to the authorization server.

    Raises:
        OAuthFlowError: The tokens cannot be refreshed.
        httpx2.HTTPError: The authorization server cannot be reached.
        ValueError: A response is invalid.
    """
    registration = await storage.get_client_info()
    tokens = await storage.get_tokens()
    if registration is None or tokens is None or not tokens.refresh_token:
        raise OAuthFlowError("the token has expired, and the server gave no refresh token")
    metadata = OAuthClientMetadata(redirect_uris=registration.redirect_uris or None)
    provider = OAuthClientProvider(address, metadata, storage)
    context = provider.context
    await _find_resource(provider, refusal, client)
    issuer = context.auth_server_url or context.get_authorization_base_url(address)
    # The refresh token is a secret of the server that issued it.
    if not utils.credentials_match_issuer(registration, issuer, None):
        raise OAuthFlowError("the authorization server has changed")
    await _find_server(provider, client)
    context.token_expiry_time = _EXPIRED
    # The first request of the provider refreshes the token; its second request would be the request itself.
    flow = provider.async_auth_flow(httpx2.Request("GET", address))
    try:
        response = await client.send(await anext(flow))
        await flow.asend(response)
    finally:
        await flow.aclose()
    if context.current_tokens is None:
        raise OAuthFlowError("the token has expired, and the refresh token was refused")


async def _find_resource(provider: OAuthClientProvider, refusal: httpx2.Response, client: httpx2.AsyncClient) -> None:
    """Set the authorization server that the MCP server names, if it names one."""
    context = provider.context
    named = utils.extract_resource_metadata_from_www_auth(refusal)
    for url in utils.build_protected_resource_metadata_discovery_urls(named, context.server_url):
        response = await client.send(utils.create_oauth_metadata_request(url))
        resource = await utils.handle_protected_resource_response(response)
        if resource is not None:
            requested = resource_url_from_server_url(context.server_url)
            if not check_resource_allowed(requested_resource=requested, configured_resource=str(resource.resource)):
                raise OAuthFlowError("the server describes another protected resource")
            context.protected_resource_metadata = resource
            context.auth_server_url = str(resource.authorization_servers[0])
            return


async def _find_server(provider: OAuthClientProvider, client: httpx2.AsyncClient) -> None:
    """Set the metadata of the authorization server; without metadata, the SDK uses default paths."""
    context = provider.context
    urls = utils.build_oauth_authorization_server_metadata_discovery_urls(context.auth_server_url, context.server_url)
    for url in urls:
        response = await client.send(utils.create_oauth_metadata_request(url))
        may_continue, metadata = await utils.handle_auth_metadata_response(response)
        if metadata is not None:
            if context.auth_server_url is not None:
                utils.validate_metadata_issuer(metadata, context.auth_server_url)
            context.oauth_metadata = metadata
            return
        if not may_continue:
            return
