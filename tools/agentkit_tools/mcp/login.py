"""Login to an MCP server over HTTP with OAuth, in the browser of a person."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentkit_prompts.credentials import BareAddress
from agentkit_prompts.errors import brief, check_types
from agentkit_tools.errors import MCPLoginError, MCPServerLost, ToolDefinitionError, describe_error
from agentkit_tools.mcp.sdk_logging import silence_sdk
from agentkit_tools.mcp.target import Target
from agentkit_tools.mcp.token_file import TokenFile

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")
"""Scopes of OAuth: words without quotes, with one space between them."""
_MAX_PORT = 65_535


async def mcp_login(
    address: str,
    show: Callable[[str], object],
    *,
    tokens: TokenStorage | None = None,
    client_id: str = "",
    client_secret: str = "",
    scope: str = "",
    port: int = 0,
    timeout: float = 300.0,
) -> bool:
    """Log in to an MCP server, and store its tokens for `MCPToolset(address)`. Nothing is stored if the login fails.

    Args:
        address: Address of the server.
        show: Receives the address of the page on which the person logs in, to open or print it.
        tokens: Storage of the tokens; None for a private file in the config folder of the user.
        client_id: Id of this client at the authorization server; "" to register a client, if the server allows this.
        client_secret: Secret of `client_id`, if it has a secret.
        scope: Rights to request, separated by spaces; "" for the rights that the server names.
        port: Port on 127.0.0.1 to which the browser returns; 0 for any free port.
        timeout: Maximum seconds until the person has logged in.

    Returns:
        True after a login; False if the server requires no login.

    Raises:
        MCPLoginError: The login was denied, took too long, belongs to another login, or a server does not support it.
        MCPServerLost: A server cannot be reached.
        ToolDefinitionError: An argument is invalid.
        OSError: The port is in use, or the tokens cannot be stored.
    """
    check_types(
        ToolDefinitionError,
        "mcp_login",
        address=(address, str, "an http or https address"),
        client_id=(client_id, str, "text"),
        client_secret=(client_secret, str, "text"),
        scope=(scope, str, "names separated by spaces"),
        port=(port, int, "a port"),
        timeout=(timeout, (int, float), "seconds"),
    )
    has_storage = tokens is None or callable(getattr(tokens, "set_tokens", None))
    conditions = {
        "scope": (
            not scope or _SCOPE.fullmatch(scope),
            f"expected names with one space between them, got {brief(scope)}",
        ),
        "client_secret": (client_id or not client_secret, "is the secret of a client_id, which is missing"),
        "port": (0 <= port <= _MAX_PORT, f"expected 0 to {_MAX_PORT}, got {port}"),
        "timeout": (timeout > 0, f"expected more than 0 seconds, got {timeout}"),
        "show": (callable(show), f"expected a function of an address, got {brief(show)}"),
        "tokens": (has_storage, f"expected a TokenStorage, got {type(tokens).__name__}"),
    }
    problems = {name: problem for name, (is_valid, problem) in conditions.items() if not is_valid}
    if problems:
        text = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise ToolDefinitionError(f"mcp_login: {text}", names=problems)
    name = Target(address).name
    address = BareAddress.of(address).url
    silence_sdk()
    import httpx2
    from mcp.client.auth import OAuthFlowError

    from agentkit_tools.mcp.login_callback import LoginCallback
    from agentkit_tools.mcp.login_request import LoginRequest

    async with LoginCallback(address, port) as callback:
        request = LoginRequest(address, show, callback, timeout, scope)
        if client_id:
            request.set_client(client_id, client_secret)
        try:
            has_logged_in = await request.send()
        except (OAuthFlowError, ValueError) as error:
            raise MCPLoginError.of(address, "failed", describe_error(error)) from error
        except httpx2.HTTPError as error:
            raise MCPServerLost(f"MCP server {name} cannot be reached: {describe_error(error)}", server=name) from error
    if has_logged_in:
        await request.store(tokens or TokenFile(address))
    return has_logged_in
