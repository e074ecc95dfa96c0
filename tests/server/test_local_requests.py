"""A server without tokens serves programs on this machine: no proxy, no other site, no other host name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest
from starlette.testclient import TestClient

from agentkit import Agent, ScriptedModel
from agentkit.server import Access, Server, ServerOptions, add_token
from agentkit.tools import mcp_server
from agentkit_tools.mcp.serve import http_app

LOCAL = "http://127.0.0.1:8000"
FROM_HERE = ("127.0.0.1", 5000)
PATHS = ["/runs", "/healthz", "/readyz", "/openapi.json", "/", "/inspector/", "/inspector/api/overview", "/v1/models"]
PROXY_HEADERS = (
    *("X-Original-URL", "X-Rewrite-URL", "X_Forwarded_For", "HTTP_X_FORWARDED_FOR", "HTTP_HOST", "X-Real-Port"),
    *("Proxy-Connection", "X-ProxyUser-IP", "WL-Proxy-Client-IP", "HTTP-Client-IP", "Z-Forwarded-For", "X-Host"),
    *("X-HTTP-Host-Override", "X-Remote-Addr", "X-Originating-IP", "Remote-User", "X-Auth-Request-User", "X-SSL-Cert"),
    *("X-Azure-ClientIP", "X-AppEngine-User-IP", "Fastly-FF", "CF-Visitor", "CloudFront-Viewer-Country", "X-Amz-Cf-Id"),
    *("Akamai-Origin-Hop", "X-NF-Client-Connection-IP", "Tailscale-User-Login", "Fly-Client-IP", "X-Arr-Log-Id"),
    *("X-Cluster-Client", "X-Varnish", "X-BlueCoat-Via", "Surrogate-Capability", "Ali-Cdn-Real-Ip", "X-Scheme"),
)


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
        {"Host": "localhost:"},
        {
            "Traceparent": "00-0-0-00",
            "X-Description": "chip, zip, skip",
            "X-Stainless-Lang": "python",
            "X-Api-Key": "x",
        },
        {"X-Request-Id": "1"},
    ],
)
def test_requests_of_programs_and_pages_on_this_machine_are_accepted(
    client: TestClient, headers: dict[str, str]
) -> None:
    assert client.get("/runs", headers=headers).status_code == 200


REFUSED: list[dict[str, str]] = [
    {"Forwarded": "for=203.0.113.9"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"x-forwarded-proto": "https"},
    {"X-Forwarded": "for=203.0.113.9"},
    {"X-Real-IP": ""},
    {"Via": "1.1 nginx"},
    {"CF-Connecting-IP": "203.0.113.9"},
    {"True-Client-IP": "203.0.113.9"},
    {"X-Envoy-External-Address": "203.0.113.9"},
    *({header: "203.0.113.9"} for header in PROXY_HEADERS),
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
    {"Host": "localhost:x@evil.example.com"},
    {"Host": "127.0.0.1:80@evil.example.com"},
    {"Host": "localhost:/evil.example.com"},
    {"Host": "]127.0.0.1["},
    {"Host": "[::1%evil.example.com]"},
    {"Origin": ""},
    {"Origin": "http://evil.example.com@localhost"},
    {"Origin": "http://evil.example.com\\@localhost"},
    {"Origin": "http://localhost http://evil.example.com"},
    {"Origin": "chrome-extension://localhost"},
    {"Sec-Fetch-Site": "Cross-Site"},
    {"Sec-Fetch-Site": "cross-site", "Referer": "http://evil.example.com\\@localhost/"},
]


def test_requests_through_a_proxy_and_of_other_sites_are_refused(client: TestClient) -> None:
    failures = []
    for path, headers in [*zip(cycle(PATHS), REFUSED), *((path, REFUSED[0]) for path in PATHS)]:
        answer = client.get(path, headers=headers)
        is_refused = answer.status_code == 403 and answer.json()["error"]["code"] == "not_loopback"
        if not is_refused or "location" in answer.headers:
            failures.append((path, headers, answer.status_code))
    assert failures == []


def test_a_link_of_another_site_opens_the_inspector_and_posts_nothing(client: TestClient) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get("/inspector/", headers=headers).status_code == 200
    assert client.post("/runs", json={"agent": "shop", "input": "x"}, headers=headers).status_code == 403


def test_a_repeated_header_is_refused_like_a_single_header(client: TestClient) -> None:
    for name, accepted, refused in (
        ("Host", "localhost", "evil.example.com"),
        ("Origin", "http://localhost", "https://evil.example.com"),
        ("Sec-Fetch-Site", "same-origin", "cross-site"),
    ):
        for values in ((accepted, refused), (refused, accepted)):
            # The client of the test adds its own Host.
            assert client.get("/runs", headers=[(name, value) for value in values]).status_code == 403, name


def test_an_mcp_server_on_loopback_serves_this_machine_only() -> None:
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
    with TestClient(http_app(mcp_server([]), "127.0.0.1"), base_url=LOCAL, client=FROM_HERE) as client:
        assert client.get("/mcp").status_code == 400
        for headers in ({"X-Forwarded-For": "127.0.0.1"}, {"Host": "localhost:1@evil.example.com"}, {"Origin": "null"}):
            assert client.get("/mcp", headers=headers).status_code == 403, headers
        assert client.get("/mcp", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    with TestClient(http_app(mcp_server([]), "10.0.0.1"), base_url="http://10.0.0.1", client=FROM_HERE) as client:
        assert client.get("/mcp", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 400


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
