"""A server without tokens serves programs on this machine: no proxy, no other site, no other host name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from agentkit import Agent, ScriptedModel
from agentkit.server import Access, Server, ServerOptions, add_token

LOCAL = "http://127.0.0.1:8000"
FROM_HERE = ("127.0.0.1", 5000)
PATHS = ["/runs", "/healthz", "/readyz", "/openapi.json", "/", "/inspector/", "/inspector/api/overview", "/v1/models"]


def agent() -> Agent[None, str]:
    return Agent(ScriptedModel.repeat("ok"), "x", name="shop")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    options = ServerOptions(cors_origins=("https://chat.example.com",))
    app = Server([agent()], options=options).app
    with TestClient(app, base_url=LOCAL, client=FROM_HERE, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://[::1]:3000", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://chat.example.com", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "cross-site", "Referer": "http://localhost:3000/page"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Host": "LOCALHOST"},
        {"Host": "[::1]:8000"},
        {"X-Request-Id": "1"},
    ],
)
def test_requests_of_programs_and_pages_on_this_machine_are_accepted(
    client: TestClient, headers: dict[str, str]
) -> None:
    assert client.get("/runs", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Forwarded": "for=203.0.113.9"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"x-forwarded-proto": "https"},
        {"X-Forwarded": "for=203.0.113.9"},
        {"X-Real-IP": ""},
        {"Via": "1.1 nginx"},
        {"CF-Connecting-IP": "203.0.113.9"},
        {"True-Client-IP": "203.0.113.9"},
        {"X-Envoy-External-Address": "203.0.113.9"},
        {"Origin": "https://evil.example.com"},
        {"Origin": "https://localhost.evil.example.com"},
        {"Origin": "https://chat.example.com.evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[bad"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Referer": "https://evil.example.com/localhost"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Host": "evil.example.com"},
        {"Host": "127.0.0.1.evil.example.com:8000"},
        {"Host": "localhost@evil.example.com"},
        {"Host": ""},
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_requests_through_a_proxy_and_of_other_sites_are_refused(
    client: TestClient, path: str, headers: dict[str, str]
) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403 and "location" not in answer.headers
    assert answer.json()["error"]["code"] == "not_loopback"


def test_a_link_of_another_site_opens_the_inspector_and_posts_nothing(client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/inspector/", headers=headers).status_code == 200
    assert client.post("/runs", json={"agent": "shop", "input": "x"}, headers=headers).status_code == 403


def test_another_machine_is_refused() -> None:
    with TestClient(Server([agent()]).app, base_url=LOCAL, client=("203.0.113.9", 5000)) as client:
        assert {client.get(path).status_code for path in PATHS} == {403}


def test_tokens_permit_a_proxy_and_other_host_names(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("access") / "access.yaml"
    token = add_token(path, "t", "acme")
    headers = {"X-Forwarded-For": "203.0.113.9", "Host": "agents.example.com", "Authorization": f"Bearer {token}"}
    app = Server([agent()], access=Access(path)).app
    with TestClient(app, base_url=LOCAL, client=FROM_HERE, follow_redirects=False) as client:
        assert client.get("/runs", headers=headers).status_code == 200
        # A redirect names no host, because any client can choose the name in its Host header.
        assert client.get("/", headers=headers).headers["location"] == "/inspector/"
        assert client.get("/runs/", headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("content", "kind", "status"), [("{}", "text/plain", 415), ("{}", None, 415), ("[]", "application/json", 422)]
)
def test_a_form_of_a_web_page_cancels_no_run(client: TestClient, content: str, kind: str | None, status: int) -> None:
    run = client.post("/runs", json={"agent": "shop", "input": "x"}).json()["id"]
    headers = {} if kind is None else {"Content-Type": kind}
    assert client.post(f"/runs/{run}/cancel", content=content, headers=headers).status_code == status
    assert client.post(f"/runs/{run}/cancel", json={}).status_code == 200
