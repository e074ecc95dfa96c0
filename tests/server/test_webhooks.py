"""Webhooks: a signed request for each run that ends or waits, repeated until the receiver accepts it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Message, ScriptedModel, tool
from agentkit.cli.app import app
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelRateLimited
from agentkit.server import Access, RunStore, Server, Webhook, add_token
from agentkit.server import webhooks as module
from agentkit.server.endpoints.runs_api import run_form
from tests.loopback import Received, answering
from tests.runtime.scripts import calling
from tests.server.conftest import RunService
from tests.server.serving_agents import ended, served
from tests.waiting import LONG, until

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()


class Receiver:
    """A server on loopback that stores requests, and answers with the next of its statuses."""

    url: str

    def __init__(self) -> None:
        self.requests: list[tuple[Mapping[str, str], bytes]] = []
        self.statuses: list[int] = []

    def answer(self, request: Received) -> tuple[int, dict[str, str], bytes]:
        self.requests.append((request.headers, request.body))
        return self.statuses.pop(0) if self.statuses else 204, {"location": "/other"}, b""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    with answering(receiver.answer) as address:
        receiver.url = f"{address}/hooks"
        yield receiver


@tool(approval="always")
def pay() -> str:
    """Pay."""
    return "paid"


def test_each_end_and_each_wait_is_sent_once_and_signed(run_service: RunService, receiver: Receiver) -> None:
    script: list[Any] = [Message("assistant", "ok"), ModelRateLimited("slow down"), calling("pay"), "done"]
    agent = Agent(ScriptedModel(script), tools=[pay], name="desk")
    with run_service(agent, webhooks=[Webhook(receiver.url, SECRET)]) as client:
        for _ in range(3):
            run = ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
        client.post(f"/runs/{run['id']}/decisions", {"decisions": {run["waiting"][0]["id"]: {"approve": True}}})
        until(lambda: len(receiver.requests) == 4)
    # Several notices are sent at once, so their order is not defined.
    messages = sorted(receiver.messages, key=lambda message: str(message["type"]))
    types = ["run.failed", "run.finished", "run.finished", "run.waiting"]
    assert [message["type"] for message in messages] == types
    assert {message["data"]["output"] for message in messages[1:3]} == {"ok", "done"}
    for headers, body in receiver.requests:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.digest(b"0123456789abcdef", signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"


def test_a_request_is_repeated_until_it_is_accepted(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.0,) * 4)
    agent = Agent(ScriptedModel.repeat("ok"), name="desk")
    receiver.statuses = [500, 302, 429, 204]
    with served(agent, webhooks=[Webhook(receiver.url, SECRET)]) as client:
        ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
        until(lambda: len(receiver.requests) == 4)
    ids = {headers["webhook-id"] for headers, _ in receiver.requests}
    assert len(ids) == 1


@pytest.mark.parametrize("statuses", [[500] * 9, [410]])
def test_a_notice_is_dropped_after_its_last_attempt(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, statuses: list[int]
) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.0,) * 2)
    receiver.statuses = list(statuses)
    with served(Agent(ScriptedModel.repeat("ok"), name="desk"), webhooks=[Webhook(receiver.url, SECRET)]) as client:
        ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
        until(lambda: "given up" in caplog.text)
    assert len(receiver.requests) == (3 if statuses[0] == 500 else 1)
    assert SECRET not in caplog.text


def test_notices_of_a_stopped_server_are_sent_by_the_next_server(tmp_path: Path, receiver: Receiver) -> None:
    agent = Agent(ScriptedModel.repeat("ok"), name="desk")
    gone = Webhook("http://127.0.0.1:9/hooks", SECRET)
    with served(agent, store=RunStore(tmp_path / "runs.db"), webhooks=[gone]) as client:
        run = ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
        client.server.store.notices.register({Webhook(receiver.url, SECRET).id: (None, ["finished"])})
        later = ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
        client.server.store.close()
    with served(agent, store=RunStore(tmp_path / "runs.db"), webhooks=[Webhook(receiver.url, SECRET)]) as client:
        until(lambda: receiver.requests)
        assert [message["data"]["id"] for message in receiver.messages] == [later["id"]] != [run["id"]]
        client.server.store.close()


def test_a_webhook_of_a_tenant_gets_its_runs_only(tmp_path: Path, receiver: Receiver) -> None:
    access = tmp_path / "access.json"
    tokens = {tenant: add_token(access, tenant, tenant) for tenant in ("acme", "globex")}
    hooks = [Webhook(receiver.url, SECRET, tenant="globex", events=("finished",))]
    with served(Agent(ScriptedModel.repeat("ok"), name="desk"), access=Access(access), webhooks=hooks) as client:
        for tenant in ("acme", "globex", "acme"):
            run = client.post("/runs", {"agent": "desk", "input": tenant}, token=tokens[tenant]).json()["id"]
            ended(client, run, token=tokens[tenant])
        until(lambda: receiver.requests)
    assert [message["tenant"] for message in receiver.messages] == ["globex"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("ftp://a/b", SECRET),
        ("http://", SECRET),
        ("http://u:p@a/b", SECRET),
        ("http://a/b", "short"),
        ("http://a/b", "whsec_???"),
        ("http://a/b", SECRET, ""),
        ("http://a/b", SECRET, None, ("ended",)),
        ("http://a/b", SECRET, None, ()),
        ("http://a:99999/b", SECRET),
        ("http://a/b\n", SECRET),
        ("http://a b/c", SECRET),
        ("http://a/" + "b" * 2_000, SECRET),
        ("http://a/b", SECRET.encode()),
        ("http://a/b", "0123456789abcdef\n"),
    ],
)
def test_invalid_webhooks_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(AgentDefinitionError) as caught:
        Webhook(*arguments)
    assert SECRET not in str(caught.value) and "short" not in str(caught.value)
    assert SECRET not in repr(Webhook("http://a/b", SECRET))


@pytest.mark.parametrize("webhooks", ["http://a/b", ["http://a/b"], [None], Webhook("http://a/b", SECRET)])
def test_a_server_refuses_other_objects_as_webhooks(webhooks: Any) -> None:
    with pytest.raises(AgentDefinitionError):
        Server([Agent(ScriptedModel.repeat("ok"), name="desk")], webhooks=webhooks)


def test_a_receiver_with_an_endless_answer_delays_only_its_own_notices(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(module, "_PAUSES", (0.0,) * 9)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        asked: list[bytes] = []

        def drip() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    asked.append(connection.recv(65_536))
                    while connection.send(b"H"):
                        time.sleep(0.02)

        dripping = threads.submit(drip)
        slow = Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}/", SECRET)
        agent = Agent(ScriptedModel.repeat("ok"), name="desk")
        with served(agent, webhooks=[slow, Webhook(receiver.url, SECRET)]) as client:
            ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
            until(lambda: receiver.requests)
            # The request has a time limit, and is repeated.
            dripping.result(LONG)
        assert len(asked) == 2


def test_a_notice_whose_run_cannot_be_read_is_postponed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSES", (0.0,))
    failures = [KeyError("x")]

    def failing_form(record: Any) -> Any:
        if failures:
            raise failures.pop()
        return run_form(record)

    monkeypatch.setattr(module, "run_form", failing_form)
    with served(Agent(ScriptedModel.repeat("ok"), name="desk"), webhooks=[Webhook(receiver.url, SECRET)]) as client:
        ended(client, client.post("/runs", {"agent": "desk", "input": "Hi"}).json()["id"])
        until(lambda: receiver.requests)
    assert "KeyError; again in" in caplog.text


def test_an_empty_tenant_is_not_all_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTKIT_WEBHOOK_SECRET", SECRET)
    # The second address ends the command in any case.
    result = CliRunner().invoke(app, ["serve", "--webhook", "=https://example.com", "--webhook", "ftp://a"])
    assert result.exit_code == 1
    assert "tenant" in result.output
