"""`http_tool`: pages of the public internet as text, and no way into a network that is not public."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts import ToolCall
from agentkit.tools import ToolContext, ToolDefinitionError, ToolError, ToolResult, http_tool
from agentkit_prompts.public_addresses import is_public
from agentkit_tools.ready.addresses import read_address
from agentkit_tools.ready.pages import decoded_page, html_text
from tests.raising import raises
from tests.waiting import LONG

LOOPBACK = ["127.0.0.0/8"]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server on loopback that writes the bytes of a test, one at a time if necessary."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[str] = []
        self.connections = 0
        self.pages: dict[str, bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(request)
            page = self.pages[request.split(" ")[1]]
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site(context: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def page(body: str | bytes, kind: str = "text/plain", status: str = "200 OK", *headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(data)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def redirect(where: str, status: str = "302 Found") -> bytes:
    return page("", "text/plain", status, f"Location: {where}")


def answers(*found: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver that returns the answers in order, then the last answer forever."""
    left = list(found)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return (left.pop(0) if len(left) > 1 else left[0]).split()

    return resolve


async def get(url: str, *, as_html: bool = False, **options: Any) -> ToolResult:
    one = http_tool(**options)
    return await one.call(ToolCall("c", one.name, json.dumps({"url": url, "as_html": as_html})), ToolContext(None))


async def local(server: Site, path: str, **options: Any) -> ToolResult:
    options = {"networks": LOOPBACK, "ports": None, **options}
    return await get(f"http://127.0.0.1:{server.port}{path}", **options)


def text(result: ToolResult) -> str:
    assert result.status == "success", result.content
    return str(result.content)


def refusal(result: ToolResult) -> str:
    assert result.status == "error", result.content
    assert isinstance(result.error, ToolError)
    return str(result.content)


# Pages


async def test_a_page_is_read_as_text_with_its_address() -> None:
    async with site() as server:
        server.pages["/a?q=1"] = page("hello\nworld")
        assert text(await local(server, "/a?q=1#part")) == (
            f"http://127.0.0.1:{server.port}/a?q=1 (200)\n\nhello\nworld"
        )
        [request] = server.requests
        assert request.startswith("GET /a?q=1 HTTP/1.1\r\n")
        assert f"\r\nHost: 127.0.0.1:{server.port}\r\n" in request
        assert "\r\nAccept-Encoding: identity\r\n" in request
        assert "cookie" not in request.lower()


async def test_html_becomes_its_words_unless_its_source_is_requested() -> None:
    source = "<title>T</title><script>alert('<p>')</script><h1>One &amp; two</h1><p>a <b>b</b><!-- <p>c --></p>d < e"
    async with site() as server:
        server.pages["/"] = page(source, "text/html; charset=utf-8")
        assert text(await local(server, "/")).endswith("(200)\n\nT\nOne & two\na b\nd < e")
        assert text(await local(server, "/", as_html=True)).endswith(source)


@pytest.mark.parametrize(
    ("body", "kind", "shown"),
    [
        ("für".encode("latin-1"), "text/plain; charset=ISO-8859-1", "für"),
        ("für".encode("utf-16"), 'text/plain; charset="utf-16"', "für"),
        (b"\xef\xbb\xbfbom", "text/plain", "bom"),
        (b"bad \xff", "text/plain", "bad \ufffd"),
        (b"+AGEA-", "text/plain; charset=utf-7", "+AGEA-"),
        (b"x", "text/plain; charset=rot13", "x"),
        (b"x", "text/plain; charset=nonsense", "x"),
        ("<meta charset=shift_jis>京".encode("cp932"), "text/html; charset=nonsense", "京"),
        (b'{"a": 1}', "application/vnd.api+json", '{"a": 1}'),
        (b"plain", "", "plain"),
    ],
)
async def test_the_declared_character_set_is_used(body: bytes, kind: str, shown: str) -> None:
    async with site() as server:
        server.pages["/"] = page(body, kind)
        assert text(await local(server, "/")).endswith(f"(200)\n\n{shown}")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (page(b"\x89PNG", "image/png"), "is not text but image/png"),
        (page(b"\0\1", ""), "is not text but binary"),
        (page("no such page", "text/plain", "404 Not Found"), "returned status 404: no such page"),
        (page("x", "text/plain", "200 OK", "Content-Encoding: gzip"), "sent a compressed page"),
        (b"this is not http\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "cannot be read"),
        (b"", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000, "cannot be read"),
        (redirect("/loop"), "more than 5 redirects"),
        (redirect(""), "(302)"),
    ],
)
async def test_content_that_cannot_be_shown_is_reported(answer: bytes, said: str) -> None:
    async with site() as server:
        server.pages["/loop"] = answer
        assert said in str((await local(server, "/loop")).content)


async def test_a_long_page_is_read_up_to_its_limit_and_the_connection_is_closed() -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with site() as server:
        server.pages["/"] = flood
        shown = text(await local(server, "/", max_bytes=1000))
        assert shown.endswith("x" * 1000 + "\n[only the first 1,000 bytes of the page are shown]")


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"])
async def test_a_slow_server_is_dropped_at_the_time_limit(first: bytes) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with site() as server:
        server.pages["/"] = drip
        result = await local(server, "/", timeout=0.3)
        assert result.status == "timeout"


async def test_a_name_that_never_resolves_ends_at_the_time_limit() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    assert (await get("http://slow.example/", resolve=never, timeout=0.1)).status == "timeout"


# Refused addresses


SPELLINGS = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://127.0.0.1.:80/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://127.0.0.0x1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://100.100.100.200/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:10.0.0.1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::169.254.169.254]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001:db8::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://１２７.０.０.１/",
    "http://127。0。0。1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127.0.0.1%2f@example.com/",
    "http://example.com@127.0.0.1/",
    "http://user:password@example.com/",
    "http://example.com:80@127.0.0.1/",
    "http://127.0.0.1\\@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1#@example.com/",
    "http://127.0.0.1?@example.com/",
    "http:///127.0.0.1/",
    "http:/127.0.0.1/",
    "http:127.0.0.1",
    "//127.0.0.1/",
    "http://127.0.0.1:80:80/",
    "http://%31%32%37.0.0.1/",
    "http://localhost/",
    "http://localhost./",
    "http://[localhost]/",
    "http://a..b/",
    "http://.localhost/",
    "http://-/",
    "http:///",
    "http://",
    "",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "dict://127.0.0.1:11211/",
    "jar:http://127.0.0.1!/",
    "javascript:alert(1)",
    "unix:/var/run/docker.sock",
    "http://127.0.0.1\r\nHost: example.com/",
    "http://example.com/\r\nX: y",
    "http://example.com/\0",
    "http://exa mple.com/",
    "http://example.com:99999/",
    "http://example.com:0/",
    "http://example.com:22/",
    "http://" + "a" * 70 + ".com/",
    "http://example.com/" + "a" * 5000,
    "http://\udc80.com/",
]


async def test_no_spelling_of_an_address_leads_into_a_network_that_is_not_public() -> None:
    failures = []
    for url in SPELLINGS:
        result = await get(url, timeout=LONG)
        if result.status != "error" or not isinstance(result.error, ToolError):
            failures.append((url, result.status, result.error))
    assert failures == []


@pytest.mark.parametrize("found", ["127.0.0.1", "8.8.8.8 10.0.0.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "", "x"])
async def test_a_name_is_refused_when_any_of_its_addresses_is_not_public(found: str) -> None:
    said = refusal(await get("http://innocent.example/", resolve=answers(found)))
    assert "not on the public internet" in said or "has no address" in said


async def test_the_checked_address_is_the_address_of_the_connection() -> None:
    """The name resolves to the address of the server once, and later to an address without a server."""
    async with site() as server:
        server.pages["/"] = page("checked")
        options: dict[str, Any] = {"networks": ["127.0.0.1/32"], "ports": None}
        url = f"http://changing.example:{server.port}/"
        result = await get(url, resolve=answers("127.0.0.1", "127.0.0.2"), **options)
        assert text(result).endswith("checked")
        assert f"Host: changing.example:{server.port}" in server.requests[0]
        said = refusal(await get(url, resolve=answers("127.0.0.2", "127.0.0.1"), **options))
        assert "not on the public internet" in said
        assert server.connections == 1


async def test_the_next_address_is_tried_if_an_address_does_not_answer() -> None:
    async with site() as server:
        server.pages["/"] = page("second")
        options: dict[str, Any] = {"networks": LOOPBACK, "ports": None}
        result = await get(f"http://two.example:{server.port}/", resolve=answers("127.0.0.9 127.0.0.1"), **options)
        assert text(result).endswith("second")
        said = refusal(await get(f"http://none.example:{server.port}/", resolve=answers("127.0.0.9"), **options))
        assert "cannot be read" in said


INWARDS = [
    "http://127.0.0.2/",
    "//127.0.0.2/",
    "http://10.0.0.1/",
    "http://169.254.169.254/latest/",
    "http://[::1]/",
    "http://0x7f000002/",
    "http://inside.example/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "http://u:p@127.0.0.1/",
    "http://[/",
]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_checked_like_an_address(status: str) -> None:
    options: dict[str, Any] = {"networks": ["127.0.0.1/32"], "resolve": answers("192.168.0.1")}
    failures: list[str] = []
    async with site() as server:
        for number, where in enumerate(INWARDS, 1):
            server.pages["/"] = redirect(where, status)
            result = await local(server, "/", **options)
            if result.status != "error" or server.connections != number:
                failures.append(where)
    assert failures == []


async def test_a_name_must_not_become_private_between_two_redirects() -> None:
    async with site() as server:
        server.pages["/"] = redirect(f"http://changing.example:{server.port}/next")
        server.pages["/next"] = page("never")
        options: dict[str, Any] = {"networks": ["127.0.0.1/32"], "ports": None}
        url = f"http://changing.example:{server.port}/"
        refusal(await get(url, resolve=answers("127.0.0.1", "127.0.0.2"), **options))
        assert server.connections == 1


async def test_permitted_redirects_are_followed() -> None:
    async with site() as server:
        server.pages["/a"] = redirect("b?x=1")
        server.pages["/b?x=1"] = redirect(f"//127.0.0.1:{server.port}/c", "308 Permanent")
        server.pages["/c"] = page("here")
        assert text(await local(server, "/a")) == f"http://127.0.0.1:{server.port}/c (200)\n\nhere"
        assert "more than 1 redirects" in refusal(await local(server, "/a", redirects=1))


async def test_only_the_permitted_hosts_and_ports_are_opened() -> None:
    options: dict[str, Any] = {"hosts": ["docs.example", "*.Wiki.example"], "resolve": answers("127.0.0.1")}
    for url in (
        "http://other.example/",
        "http://wiki.example/",
        "http://evilwiki.example/",
        "http://docs.example.evil/",
    ):
        assert "allowed hosts: docs.example, *.wiki.example" in refusal(await get(url, **options))
    for url in ("http://docs.example/", "http://DOCS.example./", "http://en.wiki.example/"):
        assert "not on the public internet" in refusal(await get(url, **options))
    assert "allowed ports: 80, 443" in refusal(await get("http://docs.example:8080/", **options))
    spellings = {"Bücher.example": "bücher.example", "docs.example.": "docs.example", "[::1]": "[::1]", "::1": "[::1]"}
    for host, address in spellings.items():
        assert "not on the public internet" in refusal(
            await get(f"http://{address}/", hosts=[host], networks=[], resolve=answers("127.0.0.1"))
        )


@pytest.mark.parametrize(
    "host",
    ["a" * 70 + ".com", "a..b", "127.1", "0x7f000001", "\u0661\u0662\u0667.0.0.1", "1.2.3.4.5", "foo.0x7f", "[1:2]"],
)
async def test_an_unreadable_host_has_one_error(host: str) -> None:
    url = f"http://{host}/"
    reason = "its host is invalid, or an IP address that is not four decimal numbers"
    assert refusal(await get(url)).endswith(f"{url!r} cannot be opened: {reason}")


@pytest.mark.parametrize("option", ["hosts", "networks", "ports", "max_bytes", "redirects", "timeout", "resolve"])
def test_an_option_of_another_type_is_named(option: str) -> None:
    options: dict[str, Any] = {option: 0.5j}
    with raises(ToolDefinitionError, names=(option,), name=option):
        http_tool(**options)


def test_each_item_of_another_type_is_named() -> None:
    items: Any = [object()]
    with raises(ToolDefinitionError, names=("hosts", "ports"), name="hosts[0], ports[0]"):
        http_tool(hosts=items, ports=items)


async def test_the_resolver_of_the_machine_is_the_default() -> None:
    async with site() as server:
        server.pages["/"] = page("here")
        options: dict[str, Any] = {"networks": [*LOOPBACK, "::1/128"], "ports": None, "resolve": None}
        assert text(await get(f"http://localhost:{server.port}/", **options)).endswith("here")


async def test_the_environment_sets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as server, site() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        server.pages["/"] = page("direct")
        assert text(await local(server, "/")).endswith("direct")
        assert proxy.connections == 0


async def test_a_certificate_is_checked_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    ours, trusting = certificate(tmp_path, "secure.example")
    async with site(ours) as server:
        server.pages["/"] = page("safe")
        options: dict[str, Any] = {"networks": LOOPBACK, "ports": None, "resolve": answers("127.0.0.1")}
        url = f"https://secure.example:{server.port}/"
        assert text(await get(url, ssl_context=trusting, **options)).endswith("safe")
        other = f"https://other.example:{server.port}/"
        assert "cannot be read" in refusal(await get(other, ssl_context=trusting, **options))
        assert "cannot be read" in refusal(await get(url, **options))  # the machine does not trust its issuer
        assert len(server.requests) == 1


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server of that name, and a context that trusts it."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs cryptography to make a certificate")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(private + pem)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(folder / "both.pem")
    trusting = ssl.create_default_context(cadata=pem.decode())
    return ours, trusting


# Parts


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("172.32.0.1", True),
        ("100.128.0.1", True),
        ("2606:4700::1111", True),
        ("64:ff9b::8.8.8.8", True),
        ("64:ff9b::10.0.0.1", False),
        ("2001:db8::1", False),
        ("3fff::1", False),
        ("4000::1", False),
        ("::8.8.8.8", False),
    ],
)
def test_an_address_is_public_if_the_registry_of_special_addresses_does_not_have_it(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


def test_no_public_address_is_special_in_python() -> None:
    """A second check of a thousand addresses, evenly spread."""
    for step in range(1000):
        four = ipaddress.IPv4Address(step * 4_294_967)
        assert not is_public(four) or four.is_global
        six = ipaddress.IPv6Address(step * (2**128 // 1000))
        assert not is_public(six) or six.is_global


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/a b?c=ü#d", "https://example.com/a%20b?c=%C3%BC"),
        ("http://münchen.example?x", "http://xn--mnchen-3ya.example/?x"),
        ("http://[2606:4700:0::1111]:8080/", "http://[2606:4700::1111]:8080/"),
        ("http://example.com./", "http://example.com/"),
    ],
)
def test_an_address_has_one_form(text: str, written: str) -> None:
    assert str(read_address(text)) == written


@pytest.mark.parametrize(
    "source",
    [
        "<" * 300_000,
        "<!--" * 100_000,
        "<script>" * 50_000,
        "<a " * 100_000,
        "</" * 150_000,
        "<![CDATA[" * 50_000,
        "&" * 300_000,
        "<p>" * 100_000,
        "İ<script>x</script>" * 10_000,
    ],
)
def test_the_text_of_a_hostile_page_needs_one_pass(source: str) -> None:
    assert len(html_text(source)) <= len(source)  # too slow with a pass per tag


def test_the_words_of_invalid_html_are_read() -> None:
    assert html_text("a<br>b<div>c</div><style>x{}</style>d<p") == "a\nb\nc\nd"
    assert html_text("1 < 2 <b>and</b> 3 > 2") == "1 < 2 and 3 > 2"
    assert html_text("<!doctype html><?xml?>x &lt;p&gt; &nbsp; y") == "x <p> y"
    assert html_text("İ <SCRIPT>bad</SCRIPT> good") == "İ good"
    assert html_text("seen <script>never ends") == "seen"
    assert decoded_page(b"x", "text/plain; charset=") == "x"


@pytest.mark.parametrize(
    "options",
    [
        {"hosts": ["https://docs.example"]},
        {"hosts": ["docs.example:443"]},
        {"hosts": ["*"]},
        {"hosts": ["*.example.org", "*docs.example"]},
        {"hosts": [""], "networks": ["x"]},
        {"networks": ["10.0.0.0/33"]},
        {"networks": ["10.0.0.1/8"]},
        {"ports": [80, 70_000]},
        {"ports": [0], "networks": ["x"]},
        {"max_bytes": 0},
        {"redirects": -1},
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        http_tool(**options)
    assert caught.value.names == tuple(options)


def test_without_its_extra_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpcore2", None)
    with pytest.raises(ToolDefinitionError):
        http_tool()
