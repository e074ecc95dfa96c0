"""A login to an MCP server with OAuth, against an authorization server of the official SDK."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.server.auth.provider import TokenError
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from typer.testing import CliRunner

from agentkit import ToolCall
from agentkit.cli.app import app
from agentkit.tools import MCPLoginError, MCPServerLost, MCPToolset, ToolContext, ToolDefinitionError, mcp_login
from agentkit_tools.mcp.token_file import TokenFile
from tests.tools.mcp.oauth_peer import OAuthPeer, oauth_server
from tests.waiting import LONG


@pytest.fixture(scope="module")
def shared_peer() -> Iterator[OAuthPeer]:
    with oauth_server() as peer:
        yield peer


@pytest.fixture
def peer(shared_peer: OAuthPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OAuthPeer:
    """The server, without tokens of other tests, and a config folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shared_peer.access.clear()
    shared_peer.refresh.clear()
    shared_peer.visited.clear()
    shared_peer.answer = {}
    return shared_peer


def files(folder: Path) -> list[Path]:
    """Files of tokens, without the files of locks."""
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]


async def greeting(server: MCPToolset) -> str:
    tool = (await server.at(None))["greet"]  # type: ignore[arg-type]
    result = await tool.call(ToolCall("c1", "greet", '{"name": "Ada"}'), ToolContext(None))
    if result.error is not None:
        raise result.error
    return str(result.content)


async def failure(server: MCPToolset) -> str:
    with pytest.raises(MCPLoginError) as caught:
        await greeting(server)
    return caught.value.reason


async def test_a_login_is_stored_privately_and_used_by_runs(peer: OAuthPeer, tmp_path: Path) -> None:
    async with asyncio.timeout(LONG):
        assert await mcp_login(peer.address, peer.visit)
    (file,) = files(tmp_path)
    token = next(iter(peer.access))
    assert json.loads(file.read_text())["tokens"]["access_token"] == token
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    with MCPToolset(peer.address) as server:
        assert await greeting(server) == "Hello Ada"
    # A client of another library gets no answer.
    assert httpx2.post(peer.address, json={}).status_code == 401


async def test_a_run_without_a_valid_login_names_the_command_and_opens_no_browser(
    peer: OAuthPeer, tmp_path: Path
) -> None:
    with pytest.raises(MCPLoginError) as caught:
        list(MCPToolset(peer.address))
    assert caught.value.reason == "required"
    assert f"agentkit mcp login {peer.address}" in str(caught.value)
    clients = len(peer.clients)
    await mcp_login(peer.address, peer.visit)
    peer.access.clear()
    with MCPToolset(peer.address) as server:
        # The refresh token is valid: the run continues with a new token.
        assert await greeting(server) == "Hello Ada"
        peer.access.clear()
        assert await greeting(server) == "Hello Ada"
        peer.access.clear()
        peer.refresh.clear()
        assert await failure(server) == "refused"
        (file,) = files(tmp_path)
        file.write_text("{")
        assert await failure(server) == "required"
        # The toolset uses the next login.
        await mcp_login(peer.address, peer.visit)
        assert await greeting(server) == "Hello Ada"
    assert len(peer.visited) == 2
    assert len(peer.clients) == clients + 2


async def test_concurrent_calls_refresh_a_token_once(peer: OAuthPeer) -> None:
    await mcp_login(peer.address, peer.visit)
    with MCPToolset(peer.address) as server:
        await greeting(server)
        peer.access.clear()
        assert await asyncio.gather(*[greeting(server) for _ in range(5)]) == ["Hello Ada"] * 5
        assert len(peer.access) == len(peer.refresh) == 1


async def test_a_token_without_a_right_is_reported_with_the_right(peer: OAuthPeer) -> None:
    await mcp_login(peer.address, peer.visit, scope="pay")
    assert "scope=pay" in peer.visited[0]
    assert next(iter(peer.access.values())).scopes == ["pay"]
    assert await failure(MCPToolset(peer.address)) == "scope"
    await mcp_login(peer.address, peer.visit, scope="read pay")
    with MCPToolset(peer.address) as server:
        assert await greeting(server) == "Hello Ada"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": "access_denied", "error_description": "no"}, "denied"),
        ({"error": "server_error"}, "failed"),
        ({"code": "wrong"}, "failed"),
        ({}, "state"),
        ({"state": "other", "code": "stolen"}, "state"),
        ({"state": "other", "error": "access_denied"}, "state"),
    ],
)
async def test_a_failed_login_changes_no_stored_login(
    peer: OAuthPeer, tmp_path: Path, answer: dict[str, str], reason: str
) -> None:
    await mcp_login(peer.address, peer.visit)
    (file,) = files(tmp_path)
    before = file.read_bytes()
    peer.answer = answer or {"state": ""}
    with pytest.raises(MCPLoginError) as caught:
        await mcp_login(peer.address, peer.visit)
    assert caught.value.reason == reason
    assert files(tmp_path) == [file]
    assert file.read_bytes() == before


async def test_a_login_ends_at_its_time_limit_or_its_cancellation(peer: OAuthPeer, tmp_path: Path) -> None:
    with pytest.raises(MCPLoginError) as caught:
        await mcp_login(peer.address, peer.visited.append, timeout=0.01)
    assert caught.value.reason == "timeout"
    shown = asyncio.Event()
    task = asyncio.create_task(mcp_login(peer.address, lambda page: shown.set()))
    await shown.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files(tmp_path) == []


class Row:
    """Tokens of one user."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@pytest.mark.parametrize("row", [None, Row()])
async def test_several_sessions_refresh_a_token_once(
    peer: OAuthPeer, monkeypatch: pytest.MonkeyPatch, row: Row | None
) -> None:
    exchange = peer.exchange_refresh_token
    exchanges: list[str] = []

    async def exchange_slowly(client: Any, token: Any, scopes: list[str]) -> OAuthToken:
        exchanges.append(token.token)
        await asyncio.sleep(0.1)
        return await exchange(client, token, scopes)

    monkeypatch.setattr(peer, "exchange_refresh_token", exchange_slowly)
    await mcp_login(peer.address, peer.visit, tokens=row)
    with MCPToolset(peer.address, tokens=row) as one, MCPToolset(peer.address, tokens=row) as two:
        await asyncio.gather(greeting(one), greeting(two))
        peer.access.clear()
        assert [*await asyncio.gather(greeting(one), greeting(two))] == ["Hello Ada"] * 2
    assert len(exchanges) == 1


async def test_a_token_that_another_process_refreshed_is_used(peer: OAuthPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row()
    exchange = peer.exchange_refresh_token

    async def lose(client: Any, token: Any, scopes: list[str]) -> OAuthToken:
        row.tokens = await exchange(client, token, scopes)
        raise TokenError("invalid_grant", "the refresh token was used")

    monkeypatch.setattr(peer, "exchange_refresh_token", lose)
    await mcp_login(peer.address, peer.visit, tokens=row)
    peer.access.clear()
    with MCPToolset(peer.address, tokens=row) as server:
        assert await greeting(server) == "Hello Ada"


async def test_a_token_is_not_refreshed_if_it_cannot_be_stored(peer: OAuthPeer, tmp_path: Path) -> None:
    await mcp_login(peer.address, peer.visit)
    peer.access.clear()
    (file,) = files(tmp_path)
    file.with_suffix(".lock").mkdir()
    assert await failure(MCPToolset(peer.address)) == "refused"
    file.with_suffix(".lock").rmdir()
    assert await greeting(MCPToolset(peer.address)) == "Hello Ada"


async def test_tokens_of_the_program_replace_the_file(peer: OAuthPeer, tmp_path: Path) -> None:
    row = Row()
    await mcp_login(peer.address, peer.visit, tokens=row)
    peer.access.clear()
    with MCPToolset(peer.address, tokens=row) as server:
        assert await greeting(server) == "Hello Ada"
    assert files(tmp_path) == []
    assert row.tokens is not None
    assert row.tokens.access_token in peer.access


async def test_a_client_that_was_registered_before_is_used(peer: OAuthPeer) -> None:
    await mcp_login(peer.address, peer.visit)
    client_id, client = next(reversed(peer.clients.items()))
    assert client.redirect_uris is not None
    client.token_endpoint_auth_method = "client_secret_basic"
    port, clients = client.redirect_uris[0].port or 0, len(peer.clients)
    await mcp_login(peer.address, peer.visit, client_id=client_id, client_secret=client.client_secret or "", port=port)
    assert len(peer.clients) == clients


async def test_wrong_arguments_of_a_login_are_refused(peer: OAuthPeer) -> None:
    wrongs: list[dict[str, Any]] = [
        {"address": "ftp://x"},
        {"address": f"{peer.address}\n"},
        {"address": "http://\ud800/mcp"},
        {"scope": 'a"b'},
        {"scope": "a  b"},
        {"port": "1"},
        {"port": 70_000},
        {"port": -1},
        {"timeout": None},
        {"timeout": float("nan")},
        {"timeout": 0},
        {"show": "print"},
        {"tokens": {}},
        {"client_id": 5},
        {"client_secret": "without an id"},
        {"client_id": "a", "client_secret": 5},
    ]
    for wrong in wrongs:
        arguments: dict[str, Any] = {"address": peer.address, "show": peer.visit, **wrong}
        with pytest.raises(ToolDefinitionError):
            await mcp_login(**arguments)
    with pytest.raises(ToolDefinitionError):
        MCPToolset(["python"], tokens=object())  # type: ignore[arg-type]
    with pytest.raises(MCPServerLost):
        await mcp_login("http://127.0.0.1:1/mcp", peer.visit)
    assert peer.visited == []


def test_the_commands_log_in_and_out(peer: OAuthPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.launch", peer.visit)

    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["mcp", *words])
        return result.exit_code, result.output

    code, output = run("login", peer.address)
    assert code == 0
    assert peer.visited[0] in output
    assert len(files(tmp_path)) == 1
    assert run("logout", peer.address)[0] == 0
    assert files(tmp_path) == []
    assert run("logout", peer.address)[0] == 1
    peer.answer = {"error": "access_denied"}
    assert run("login", peer.address)[0] == 1

    def interrupt(page: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.launch", interrupt)
    code, output = run("login", peer.address)
    assert code == 1
    assert "cancelled" in output
    assert run("login", peer.address, "--no-browser", "--timeout", "1")[0] == 1
    assert len(peer.visited) == 2
    assert files(tmp_path) == []
    for wrong in ("shop", "ftp://127.0.0.1/mcp"):
        assert run("login", wrong)[0] == 1


async def test_a_file_of_tokens_that_nests_too_deeply_is_unreadable_and_replaced(tmp_path: Path) -> None:
    store = TokenFile("https://shop.example/mcp", tmp_path)
    store.path.write_text("[" * 100_000)
    with pytest.raises(MCPLoginError):
        await store.get_tokens()
    await store.set_tokens(OAuthToken(access_token="a"))
    assert await store.get_tokens() == OAuthToken(access_token="a")
