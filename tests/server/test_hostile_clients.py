"""Clients that are slow, disconnected or malicious: each gets an error, and the server continues."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agentkit import Agent, Composition, Layers, Message, Reply, ScriptedModel
from agentkit.prompts import AdditionalInfoPrompt, Template
from agentkit.server import ServerOptions
from agentkit.server.connection_limits import ConnectionLimits, brief_log, file_limit, raise_file_limit
from agentkit.testing import Delayed
from tests.cases import collected
from tests.raising import raises
from tests.server.serving_agents import Client, served
from tests.waiting import LONG, eventually, until

HI: Any = [{"role": "user", "content": "Hi"}]
OPTIONS = ServerOptions(body_bytes=1 << 20, grace_seconds=1)
HASTY = replace(OPTIONS, body_seconds=0.5, header_seconds=0.5, write_seconds=0.5, idle_seconds=1)
"""Limits for clients that do not send or read: on a busy machine, other clients may be as slow."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    model = ScriptedModel.repeat("Hello.", keep=1)
    with served(Agent(model, name="a"), options=OPTIONS) as made:
        yield made


@pytest.fixture(scope="module")
def hasty() -> Iterator[Client]:
    with served(Agent(ScriptedModel([]), name="a"), options=HASTY) as made:
        yield made


def raw(client: Client, data: bytes) -> bytes:
    """Send bytes unchanged, and return the answer up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=LONG) as connection:
        connection.sendall(data)
        found = b""
        try:
            while piece := connection.recv(65536):
                found += piece
        except ConnectionError:
            pass
        return found


def post(client: Client, body: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{client.port}", "Connection: close", *headers]
    if not any(one.lower().startswith(("content-length", "transfer-encoding")) for one in headers):
        lines.append(f"Content-Length: {len(body)}")
    return raw(client, "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


JSON = "Content-Type: application/json"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def is_well(client: Client) -> None:
    """The server answers other clients as before."""
    done = client.post("/v1/chat/completions", {"model": "a", "messages": HI})
    assert done.status_code == 200, done.text


MALFORMED: list[Any] = [
    b"",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"\xff\xfe{}",
    b'{"model": "\xc3("}',
    b'{"model": "\\ud800"}',
    b'{"model": NaN}',
    b'{"model": ' + b"9" * 20_000 + b"}",
    b'{"model": 1e999}',
    b"null",
    b'"text"',
    b"[]",
    b'{"model": "a", "messages": {}}',
    b'{"model": "a", "messages": [null]}',
    b'{"model": "a", "messages": [{"role": "user"}]}',
    b'{"model": "a", "messages": [{"role": "user", "content": {"x": 1}}]}',
    b'{"model": "a", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
    b'{"model": "../../etc/passwd", "messages": [{"role": "user", "content": "x"}]}',
]


def test_a_malformed_body_is_an_error_of_the_client(client: Client) -> None:
    failures: list[str] = []
    for path in ["/v1/chat/completions", "/v1/responses", "/runs"]:
        for body in MALFORMED:
            with collected(failures, path, body):
                answer = post(client, body, JSON, path=path)
                assert 400 <= status(answer) < 500, answer
                head, _, data = answer.partition(b"\r\n\r\n")
                error = json.loads(data)["error"]
                assert error["message"] and error["type"] and len(data) < 4000, head
                is_well(client)
    assert failures == []


MANY = 100_001


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs", b"{" + b",".join(b'"%x":1' % at for at in range(MANY)) + b"}"),
        ("/runs", b'{"agent": "a", "input": "Hi", "additional_kwargs": {"n": [[[' + b"[]," * MANY + b"[]]]]}}"),
        ("/v1/responses", b'{"model": "a", "input": [' + b"1," * MANY + b"1]}"),
        ("/agents/a/ag-ui", b'{"threadId": "t", "runId": "r", "messages": [' + b"{}," * MANY + b"{}]}"),
        ("/inspector/api/compose", b'{"base": {}, "kwargs": {"n": [' + b"1," * MANY + b"1]}}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_body_with_too_many_values_is_refused_before_they_are_checked(client: Client, path: str, body: bytes) -> None:
    answer = post(client, body, JSON, path=path)
    assert status(answer) == 400 and b"more than 100,000 values" in answer, answer[:500]
    is_well(client)


@pytest.mark.parametrize("number", [b"1e400", b"-1E+0999", b"9" * 400 + b".5"], ids=lambda number: repr(number[:8]))
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs", b'{"agent": "a", "input": "Hi", "additional_kwargs": {"n": [%s]}}'),
        ("/v1/chat/completions", b'{"model": "a", "messages": [{"role": "user", "content": "Hi"}], "temperature": %s}'),
        ("/inspector/api/start", b'{"agent": "a", "input": "Hi", "kwargs": {"n": %s}}'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_number_beyond_the_range_of_floats_is_refused(client: Client, path: str, body: bytes, number: bytes) -> None:
    answer = post(client, body % number, JSON, path=path)
    assert status(answer) == 400 and b"is too large" in answer, answer
    long = post(client, body % b"1e99", JSON, path=path)
    assert status(long) in (200, 202, 400) and b"is too large" not in long, long


def test_a_body_over_the_limit_is_not_read(client: Client) -> None:
    began = client.post("/runs", {"agent": "a", "input": "x" * (1 << 20)})
    assert began.status_code == 413
    said = post(client, b"", JSON, "Content-Length: 99999999999")
    assert status(said) == 413
    chunked = b"".join([b"%x\r\n%s\r\n" % (65536, b" " * 65536) for _ in range(40)]) + b"0\r\n\r\n"
    with suppress(ConnectionError):  # closed before all bytes were sent
        assert status(post(client, chunked, JSON, "Transfer-Encoding: chunked")) in (413, 0)
    is_well(client)


def test_ten_megabytes_are_read_within_the_limit_and_a_client_that_reads_no_answer_is_dropped() -> None:
    model = ScriptedModel.repeat("Long.", keep=1)
    with served(Agent(model, name="a"), options=ServerOptions(body_bytes=16 << 20, write_seconds=0.5)) as client:
        text = "word " * (2 << 20)
        done = client.post("/v1/chat/completions", {"model": "a", "messages": [{"role": "user", "content": text}]})
        assert done.status_code == 200
        assert model.requests[-1].messages[-1].text == text
        run = until(lambda: client.get("/runs").json()["runs"])[0]["id"]
        with socket.create_connection(("127.0.0.1", client.port), timeout=LONG) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(f"GET /runs/{run}/journal HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n\r\n".encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            own = connection.getsockname()
            until(lambda: all(one.client != own for one in client.running.server_state.connections))


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: -1"],
        ["Content-Length: 1_0"],
        ["Transfer-Encoding: chunked", "Content-Length: 2"],
        ["Transfer-Encoding: nonsense"],
        ["X-Long: " + "x" * 200_000],
        ["Authorization: Bearer a", "Authorization: Bearer b"],
        ["X-Null: a\0b"],
        [" Folded: x"],
        ["Content-Type : text"],
    ],
    ids=lambda headers: headers[0][:24],
)
def test_header_tricks_are_refused(hasty: Client, headers: list[str]) -> None:
    answer = post(hasty, b"{}", JSON, *headers)
    assert answer == b"" or 400 <= status(answer) < 500, answer
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert hasty.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/sessions/..%2f..%2fetc%2fpasswd",
        "/sessions/%2e%2e",
        "/sessions/../runs",
        "/sessions/a%00b",
        "/sessions/%ff%fe",
        "/sessions/" + "a" * 5000,
        "/sessions/a%0d%0aX: y",
        "/runs/..%2f",
        "/runs/%00",
        "/agents/%2e%2e/schema",
        "/v1/models/%F0%9F%92%A9",
        "//runs",
        "/runs/",
    ],
    ids=lambda path: path[:24],
)
def test_path_tricks_lead_nowhere(client: Client, path: str) -> None:
    answer = raw(client, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("latin-1"))
    assert status(answer) in (307, 400, 404, 422), answer
    assert b"root:" not in answer and b"\r\nX: y" not in answer


def test_an_incomplete_request_is_dropped_after_its_time_limit(hasty: Client) -> None:
    assert raw(hasty, b"GET /runs HTTP/1.1\r\nHost: loc") == b""
    assert raw(hasty, b"") == b""
    head = f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\n{JSON}\r\nContent-Length: 50\r\n\r\n"
    answer = raw(hasty, head.encode() + b'{"agent"')
    assert status(answer) == 400 and b"did not arrive" in answer
    assert hasty.get("/healthz").status_code == 200


def test_a_connection_without_a_request_or_with_half_of_a_second_request_is_closed(hasty: Client) -> None:
    one = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\n\r\n".encode()
    for sent, answers in ((b"", 0), (one, 1), (one + one[:20], 1)):
        with socket.create_connection(("127.0.0.1", hasty.port), timeout=LONG) as connection:
            connection.sendall(sent[: len(one)])
            answer = connection.recv(65536) if sent else b""
            connection.sendall(sent[len(one) :])
            answer += b"".join(iter(lambda at=connection: at.recv(65536), b""))
        assert answer.count(b"HTTP/1.1 200") == answers


@contextmanager
def half_requests(client: Client, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that each send the first half of a request."""
    with ExitStack() as opened:
        sockets = []
        for _ in range(count):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=LONG))
            connection.sendall(b"GET /healthz HT")
            sockets.append(connection)
        yield sockets


def is_closed(connection: socket.socket) -> bool:
    """Wait for the next data of the server; True if it closes the connection instead."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("options", [ServerOptions(connections=8), ServerOptions(connections_per_address=6)])
def test_incomplete_requests_do_not_block_other_clients(options: ServerOptions) -> None:
    """Each new connection replaces the oldest idle connection."""
    agent = Agent(ScriptedModel.repeat(Delayed(0.2, "Done.")), name="a")
    with served(agent, options=options) as client, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(client.post, "/v1/chat/completions", {"model": "a", "messages": HI})
        until(lambda: bool(client.server.limits.running))
        with half_requests(client, 30) as sockets:
            assert raw(client, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert is_closed(sockets[0])
        # A connection with a request in progress is never replaced.
        assert answer.result(LONG).status_code == 200


@pytest.mark.parametrize(
    ("addresses", "admitted"),
    [
        (["2001:db8::1", "2001:db8::2", "2001:DB8:0:0:ffff::3", "2001:db8::4%eth0"], 2),
        (["2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1"], 4),
        (["::ffff:192.0.2.1", "::ffff:c000:201", "192.0.2.1", "0:0:0:0:0:ffff:192.0.2.1"], 2),
        (["::ffff:192.0.2.1", "::ffff:192.0.2.2", "192.0.2.3", "::1"], 4),
        (["fe80::1%eth0", "fe80::2%eth1", "fe80::3"], 2),
        (["", "", ""], 2),
    ],
)
def test_the_addresses_of_a_client_of_ipv6_have_one_limit(addresses: list[str], admitted: int) -> None:
    class Busy:
        is_idle = False

        def abort(self) -> None:
            raise AssertionError

    limits, connections = ConnectionLimits(ServerOptions(connections_per_address=2)), [Busy() for _ in addresses]
    assert sum(map(limits.admit, connections, addresses)) == admitted
    for connection in connections:
        limits.remove(connection)
    assert sum(map(limits.admit, connections, addresses)) == admitted


def test_a_connection_is_refused_when_all_connections_have_requests_in_progress() -> None:
    model = ScriptedModel.repeat(Delayed(60, "late"))
    with served(Agent(model, name="a"), options=ServerOptions(connections=2, grace_seconds=0.1)) as client:
        body = json.dumps({"model": "a", "messages": HI}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
        with ExitStack() as opened:
            connect = partial(socket.create_connection, ("127.0.0.1", client.port), timeout=LONG)
            opened.enter_context(connect()).sendall(head.encode() + body)
            until(lambda: client.server.limits.running == 1)
            # An address can have three quarters of all connections: here one of two.
            assert is_closed(opened.enter_context(connect()))


async def test_an_exhausted_process_logs_one_line_per_second(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    others: list[Any] = []
    loop.set_exception_handler(lambda _, context: others.append(context))
    with brief_log():
        for _ in range(1000):
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": OSError()})
            logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        loop.call_exception_handler({"message": "another problem"})
    assert sorted(record.name for record in caplog.records) == ["agentkit.server.connections", "uvicorn.error"]
    assert others == [{"message": "another problem"}]
    loop.set_exception_handler(None)


def test_the_command_raises_the_limit_of_open_files() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert ConnectionLimits(ServerOptions()).total == 256
        raise_file_limit()
        assert file_limit() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_that_leaves_stops_its_run() -> None:
    for stream in (False, True):
        model = ScriptedModel.repeat(Delayed(60, "late"))
        with served(Agent(model, name="a"), options=OPTIONS) as client:
            body = json.dumps({"model": "a", "messages": HI, "stream": stream}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n{JSON}\r\n"
            with socket.create_connection(("127.0.0.1", client.port)) as connection:
                connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                until(lambda found=client: found.server.limits.running == 1)
            until(lambda found=client: found.server.limits.running == 0)
            until(lambda found=client: found.get("/runs").json()["runs"])
            assert client.get("/runs").json()["runs"][0]["status"] == "cancelled"


def test_a_client_that_does_not_read_its_stream_is_dropped() -> None:
    model = ScriptedModel.repeat("word " * 400_000, keep=1)
    with served(Agent(model, name="a"), options=HASTY) as client:
        body = json.dumps({"model": "a", "messages": HI, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n{JSON}\r\n"
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: model.requests and not client.server.limits.running)
        is_well_after = client.get("/healthz")
        assert is_well_after.status_code == 200


def test_a_stream_without_events_sends_heartbeats() -> None:
    model = ScriptedModel([Delayed(300, "Too late.")])
    with served(Agent(model, name="a"), options=HASTY) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"]
        with client.http.stream("GET", f"/runs/{run}/events") as answer:
            lines = answer.iter_lines()
            assert ": still here" in lines
            client.post(f"/runs/{run}/cancel")
            assert "event: end" in lines


async def test_requests_beyond_the_concurrency_limit_are_refused_with_429() -> None:
    found: list[int] = []

    class Full(ScriptedModel):
        """Answers after all other requests were refused."""

        async def request(self, composition: Composition, **_: Any) -> Reply:
            await eventually(lambda: len(found) >= 5)
            return Reply(Message("assistant", "Hm."))

    options = ServerOptions(concurrent_per_tenant=3)
    with served(Agent(Full([]), name="a"), options=options) as client, ThreadPoolExecutor(8) as threads:

        def ask() -> None:
            found.append(client.post("/v1/chat/completions", {"model": "a", "messages": HI}).status_code)

        asking = [threads.submit(ask) for _ in range(8)]
        await eventually(lambda: all(one.done() for one in asking))
        assert found == [429] * 5 + [200] * 3
        until(lambda: not client.server.limits.running)


def test_ten_thousand_problems_have_a_short_answer(client: Client) -> None:
    fields = {f"field{at}": at for at in range(10_000)}
    wrong = [{"role": "usr", "content": "x"}] * 10_000
    for path, body in (
        ("/runs", {"agent": "a", "input": "x", **fields}),
        ("/v1/chat/completions", {"model": "a", "messages": HI, **fields}),
        ("/v1/chat/completions", {"model": "a", "messages": wrong}),
        ("/v1/responses", {"model": "a", "input": wrong}),
        ("/inspector/api/compose", {"base": {"agent": "a"}, "layers": dict.fromkeys(fields, "x")}),
        ("/inspector/api/compose", {"base": {"agent": "a"}, **fields}),
    ):
        answer = client.post(path, body)
        assert 400 <= answer.status_code < 500 and len(answer.content) < 20_000, path


def test_ten_thousand_missing_kwargs_have_a_short_answer() -> None:
    needed = {f"field{at}": {"type": "string"} for at in range(10_000)}
    schema = {"type": "object", "properties": needed, "required": list(needed)}
    prompt = AdditionalInfoPrompt(Template("{{ field0 }}", params_schema=schema))
    agent = Agent(ScriptedModel.repeat("Hello."), layers=Layers(before_input=prompt), name="a")
    with served(agent) as client:
        for path, body in (
            ("/runs", {"agent": "a", "input": "x"}),
            ("/v1/chat/completions", {"model": "a", "messages": HI}),
            ("/inspector/api/start", {"agent": "a", "input": "x"}),
        ):
            answer = client.post(path, body)
            assert answer.status_code == 422 and len(answer.content) < 30_000 and "field0" in answer.text, path


@pytest.mark.untraced  # the tracer slows the thread that reads so much that others wait
def test_other_requests_are_answered_while_a_long_conversation_is_read() -> None:
    with served(Agent(ScriptedModel.repeat("Hello."), name="a")) as client:  # usual limits: a busy machine is slow
        _asks_during_a_long_conversation(client)


def _asks_during_a_long_conversation(client: Client) -> None:
    body = json.dumps({"model": "a", "messages": [{"role": "user", "content": ""}] * 30_000}).encode()
    done = threading.Event()
    found: list[bytes] = []

    def ask() -> None:
        found.append(post(client, body, JSON))
        done.set()

    thread = threading.Thread(target=ask)
    thread.start()
    answered = 0
    while not done.is_set():
        answered += client.get("/healthz").status_code == 200
    thread.join()
    assert status(found[0]) == 200
    assert answered > 10


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs", '{"agent": "a", "input": "x", "additional_kwargs": {"n": %s}}'),
        (
            "/v1/chat/completions",
            '{"model": "a", "messages": [{"role": "user", "content": "x"}], "additional_kwargs": {"n": %s}}',
        ),
        ("/inspector/api/start", '{"agent": "a", "input": "x", "kwargs": {"n": %s}}'),
    ],
)
def test_kwargs_that_no_journal_can_store_are_refused(client: Client, path: str, body: str) -> None:
    for value in ("[" * 150 + "]" * 150, "[" * 5000 + "]" * 5000, "NaN", "1e999", '"\\ud800"', "9" * 5000):
        answer = post(client, (body % value).encode(), JSON, path=path)
        if value == "1e999":
            assert status(answer) in (200, 202, 400, 422)  # infinity, which becomes null
        else:
            assert 400 <= status(answer) < 500, (value[:10], answer)
    assert client.get("/runs").status_code == 200


@pytest.mark.parametrize("options", [{"body_bytes": 0}, {"run_seconds": -1}, {"cors_origins": ("*",)}, {"timeout": 3}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with raises(ValueError, name=next(iter(options))):
        ServerOptions(**options)
