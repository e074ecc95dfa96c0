"""Runs of a server on a database of durable runs: any server or worker of this database continues them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from sqlalchemy import event, text

pytest.importorskip("dbos", reason="needs the extra `durable`")

from agentkit import Agent, Approved, Composition, Message, Reply, Runs, ScriptedModel, ToolCall, Usage, tool
from agentkit.errors import AgentDefinitionError
from agentkit.memory import Memory
from agentkit.prompts import UserInput
from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit.runs.run_store import RunStore
from agentkit.server import Access, Server, add_token
from agentkit.testing import Delayed
from tests.paths import ROOT
from tests.raising import raises
from tests.server.serving_agents import Client, ended, served
from tests.waiting import LONG, eventually

AGENTS = ROOT / "tests" / "durable" / "durable_agents.py"


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def reply(sent: Composition) -> Message:
    if "fail" in sent.user.text:
        raise RuntimeError("a secret of ours")
    if "pay" in sent.user.text and not len(sent.intermediate):
        return Message("assistant", tool_calls=(ToolCall("a", "pay", '{"amount": 3}'),))
    if sent.user.text.endswith("sky"):
        return Message("assistant", f"Blue [{sent.context.documents[0].label}], not green [sea.md#9].")
    return Message("assistant", f"{sent.user.text} after {len(sent.conversation)}")


def until(client: Client, run: str, token: str, *statuses: str) -> dict[str, Any]:
    end = time.monotonic() + LONG
    while (now := client.get(f"/runs/{run}", token).json())["status"] not in statuses:
        assert time.monotonic() < end, now
        time.sleep(0.05)
    return dict(now)


def assert_counted(client: Client, records: RunStore, run: str, runs: int) -> None:
    """Check that the usage of a run of a tenant is counted once, and that no count waits."""
    end = time.monotonic() + LONG
    wanted = runs, records.get(run).usage
    while client.server.runs.live or [*records.usage.of("acme").values()] != [wanted]:
        assert time.monotonic() < end, (client.server.runs.live, records.usage.of("acme"), wanted)
        time.sleep(0.05)


def queries(records: RunStore, limit: int) -> int:
    """Return the number of queries of a page of runs."""
    found: list[str] = []
    own = threading.get_ident()  # the worker sends queries too
    engine = records.database.engine

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        if threading.get_ident() == own:
            found.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        assert len(records.page(RunsWanted(tenant="acme", limit=limit))) == limit
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return len([one for one in found if one.lstrip().upper().startswith(("SELECT", "WITH"))])


def test_the_usage_of_a_run_that_ends_while_the_server_stops_is_counted(tmp_path: Path) -> None:
    begun = threading.Event()

    def late(_: Composition) -> Delayed:
        begun.set()
        return Delayed(2, Reply(Message("assistant", "Late."), usage=Usage(7, 1)))

    runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
    records = runs.store.rows
    with Memory(tmp_path / "home", scope="acme") as memory:
        agent = Agent(ScriptedModel([late]), name="shop", memory=memory)
        with served(agent, runs=runs) as client:
            run = client.post("/runs", {"agent": "shop", "input": "a"}).json()["id"]
            assert begun.wait(LONG)
        assert records.get(run).state == "finished"
        assert [(runs, usage.input_tokens) for runs, usage in records.usage.of("acme").values()] == [(1, 7)]


def test_a_run_with_a_damaged_journal_occupies_no_place_after_its_end(tmp_path: Path) -> None:
    runs, model = Runs(f"sqlite:///{tmp_path / 'durable.db'}"), ScriptedModel.repeat(Delayed(300, "late"))
    records = runs.store.rows
    with (
        Memory(tmp_path / "home", scope="acme") as memory,
        served(Agent(model, name="shop", memory=memory), runs=runs) as client,
    ):
        bad, good = [client.post("/runs", {"agent": "shop", "input": "a"}).json()["id"] for _ in range(2)]
        end = time.monotonic() + LONG
        while len(model.requests) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        damage = text("UPDATE agentkit_journal_lines SET line = :line WHERE run = :run")
        records.database.work(lambda connection: connection.execute(damage, {"line": "x\n", "run": bad}))
        for run in (bad, good):
            assert client.post(f"/runs/{run}/cancel", {}).json()["status"] == "cancelled"
        while client.server.runs.live and time.monotonic() < end:
            time.sleep(0.05)
        assert client.server.runs.live == 0
        assert sum([day["runs"] for day in client.get("/usage").json()["days"]]) == 2


async def test_a_run_is_counted_if_two_requests_decide_about_its_calls_at_once(tmp_path: Path) -> None:
    def two_calls(sent: Composition) -> Reply:
        calls = () if len(sent.intermediate) else tuple([ToolCall(name, "pay", '{"amount": 3}') for name in "ab"])
        return Reply(Message("assistant", "done", tool_calls=calls), usage=Usage(7, 1))

    runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
    records = runs.store.rows
    with Memory(tmp_path / "home", scope="acme") as memory:
        server = Server([Agent(ScriptedModel.repeat(two_calls), tools=[pay], name="shop", memory=memory)], runs=runs)
        async with server.app.router.lifespan_context(server.app):
            started = RunRecord(run_id="r", tenant="acme", agent="shop", state="queued", created_at=1, updated_at=1)
            await server.runs.start(replace(started, input=UserInput("a")))
            await eventually(lambda: records.get("r").state == "waiting" and server.runs.live == 0)
            record = records.get("r")  # both requests read the run before the first decision
            for call in "ab":
                await server.runs.decide(record, {call: Approved()})
            await eventually(lambda: records.get("r").state == "finished")
        assert [(runs, usage.input_tokens) for runs, usage in records.usage.of("acme").values()] == [(1, 14)]


def test_all_data_of_a_durable_run_is_deleted_with_it(tmp_path: Path) -> None:
    runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
    with (
        Memory(tmp_path / "home", scope="acme") as memory,
        served(Agent(ScriptedModel.repeat("Hi."), name="shop", memory=memory), runs=runs) as client,
    ):
        run = client.post("/runs", {"agent": "shop", "input": "a"}).json()["id"]
        ended(client, run)
        assert len(runs.store.client.list_workflows()) == 1
        assert client.delete(f"/runs/{run}").status_code == 204
        assert client.get(f"/runs/{run}").status_code == 404
        assert runs.store.client.list_workflows() == []


def test_runs_wait_are_listed_and_end_like_runs_of_this_process(tmp_path: Path) -> None:
    access = tmp_path / "access.yaml"
    acme, other = [add_token(access, tenant, tenant, scopes=("run", "read", "approve")) for tenant in ("acme", "other")]
    agent = Agent(ScriptedModel.repeat(reply), "You pay.", tools=[pay], name="cashier")
    runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
    records = runs.store.rows
    left = RunRecord(run_id="left", tenant="acme", agent="cashier", state="running", created_at=1, updated_at=1)
    records.add(replace(left, input=UserInput("left")))  # of a request, in the state after a kill of its server
    with raises(AgentDefinitionError, name="memory"):
        Server([agent], runs=runs)
    with (
        Memory(tmp_path / "home", scope="acme") as memory,
        served(agent.with_changes(memory=memory), access=Access(access), runs=runs) as client,
    ):
        (tmp_path / "sky.md").write_text("The sky is blue.", "utf-8")
        memory.ingest(tmp_path / "sky.md")

        def start(text: str, token: str = acme, **more: Any) -> Any:
            key = more.pop("key", None)
            headers = {} if key is None else {"Idempotency-Key": key}
            return client.post("/runs", {"agent": "cashier", "input": text, **more}, token, headers=headers)

        about = client.get("/openapi.json", acme).json()["paths"]["/runs/{run}/events"]["get"]["summary"]
        assert "these runs are durable, and have no text_delta" in about
        run = start("pay 3").json()["id"]
        assert until(client, run, acme, "waiting")["waiting"] == [
            {"id": "a", "name": "pay", "arguments": '{"amount": 3}', "lines": ["amount: 3"]}
        ]
        for ids in ((run, "left"), (run,), ("left",), ("none",), ()):
            assert {one.run_id for one in records.page(RunsWanted(tenant="acme", ids=ids))} == {*ids} - {"none"}
        waiting = RunsWanted(tenant="acme", ids=(run, "left"), state="waiting")
        assert [one.run_id for one in records.page(waiting)] == [run]
        assert records.page(RunsWanted(tenant="other", ids=(run, "left"))) == []
        assert records.page(RunsWanted(tenant="acme", ids=("left",), state="waiting")) == []
        overview = client.get("/inspector/api/overview", acme).json()
        assert {one["id"]: one["input"] for one in overview["runs"]} == {run: "pay 3", "left": "left"}
        assert client.get("/inspector/api/overview", other).json()["runs"] == []
        seen = client.events(f"/runs/{run}/events", acme)
        assert [one["event"] for one in seen] == ["recalled", "model_replied", "run_waiting", "pause"]
        # Another tenant cannot find the run with any request.
        assert client.get(f"/runs/{run}", other).status_code == 404
        assert client.post(f"/runs/{run}/cancel", {}, other).status_code == 404
        wrong = client.post(f"/runs/{run}/decisions", {"decisions": {"a": {"approve": True}}}, other)
        assert wrong.status_code == 404
        assert client.get("/runs", other).json()["runs"] == []
        unknown = client.post(f"/runs/{run}/decisions", {"decisions": {"x": {"approve": True}}}, acme)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "unknown_call")
        assert_counted(client, records, run, 1)  # counted up to the wait, as a run of the request
        decided = client.post(f"/runs/{run}/decisions", {"decisions": {"a": {"approve": True}}}, acme)
        assert decided.status_code == 200
        ended = until(client, run, acme, "finished")
        assert_counted(client, records, run, 2)
        assert (ended["output"], ended["finish_reason"]) == ("pay 3 after 0", "stop")
        later = client.events(f"/runs/{run}/events", acme, headers={"Last-Event-ID": seen[2]["id"]})
        assert [one["event"] for one in later] == [
            "approval_given",
            "tool_finished",
            "model_replied",
            "run_finished",
            "end",
        ]
        assert json.loads(later[3]["data"])["output"] == "pay 3 after 0"
        assert client.post(f"/runs/{run}/decisions", {"decisions": {"a": {"approve": True}}}, acme).status_code == 409

        # A run of a request is not a durable run, but can be resumed too.
        assert until(client, "left", acme, "finished")["output"] == "left after 0"
        asked = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": None, "forwardedProps": None}
        asked["messages"] = [{"id": "m", "role": "user", "content": "pay 4"}]
        assert '"interrupt"' in client.post("/agents/cashier/ag-ui", asked, acme).text
        request = client.get("/runs?status=waiting", acme).json()["runs"][0]["id"]
        assert [one["event"] for one in client.events(f"/runs/{request}/events", acme)] == ["pause"]
        decided = client.post(f"/runs/{request}/decisions", {"decisions": {"a": {"approve": True}}}, acme)
        assert decided.status_code == 200, decided.text
        assert until(client, request, acme, "finished")["output"] == "pay 4 after 0"
        assert client.events(f"/runs/{request}/events", acme)[-2]["event"] == "run_finished"
        assert client.post("/agents/cashier/ag-ui", asked, acme).status_code == 200
        request = client.get("/runs?status=waiting", acme).json()["runs"][0]["id"]
        assert client.post(f"/runs/{request}/cancel", {}, acme).json()["status"] == "cancelled"
        for own in ("left", *[one["id"] for one in client.get("/runs?limit=2", acme).json()["runs"]]):
            assert client.delete(f"/runs/{own}", acme).status_code == 204

        # The same key is the same run; runs of one session are executed in the order of their arrival.
        first = start("one", session="s", key="k-1").json()["id"]
        second = start("two", session="s", user=None).json()["id"]
        assert start("one", session="s", key="k-1").json()["id"] == first
        assert start("other", session="s", key="k-1").status_code == 409
        theirs = start("one", other, session="s", key="k-1").json()["id"]
        assert theirs != first and until(client, theirs, other, "finished")["output"] == "one after 0"
        of_a_user = start("one", session="s", user="bob", key="k-1").json()["id"]
        assert of_a_user not in (first, theirs) and until(client, of_a_user, acme, "finished")
        assert client.delete(f"/runs/{of_a_user}", acme).status_code == 204
        assert until(client, second, acme, "finished")["output"] == "two after 2"
        messages = client.get("/sessions/s/messages", acme).json()["messages"]
        assert messages[-1]["content"] == "two after 2"

        cites = start("sky").json()["id"]
        done = until(client, cites, acme, "finished")
        assert [(one["start"], one["text"]) for one in done["citations"]] == [(6, "The sky is blue.")]
        assert done["unknown_labels"] == ["sea.md#9"]
        (last,) = [one for one in client.events(f"/runs/{cites}/events", acme) if one["event"] == "run_finished"]
        assert json.loads(last["data"])["citations"] == done["citations"]
        assert client.delete(f"/runs/{cites}", acme).status_code == 204

        failed = start("fail").json()["id"]
        assert until(client, failed, acme, "failed")["error"]["type"] == "RuntimeError"
        assert "secret" not in client.get(f"/runs/{failed}", acme).text
        ids = [one["id"] for one in client.get("/runs?limit=3", acme).json()["runs"]]
        assert ids == [failed, second, first]
        assert [one["id"] for one in client.get(f"/runs?before={first}", acme).json()["runs"]] == [run]
        gone = start("gone").json()["id"]
        until(client, gone, acme, "finished")
        assert client.delete(f"/runs/{gone}", acme).status_code == 204  # before it is counted
        end = time.monotonic() + LONG
        while client.server.runs.live:  # their usage is read by the same connections
            assert time.monotonic() < end, "a run that was deleted is waited for"
            time.sleep(0.05)
        counts = [queries(records, limit) for limit in (2, 4)]
        assert counts[1] == counts[0]  # for any number of runs
        assert client.delete(f"/runs/{run}", acme).status_code == 204
        assert client.get(f"/runs/{run}", acme).status_code == 404
        assert client.get(f"/runs/{second}/journal", acme).text.count("\n") > 3
    runs.close()


def test_a_request_is_left_to_its_server_and_continued_if_its_server_stopped(tmp_path: Path) -> None:
    begun = threading.Event()

    def late(_: Composition) -> Delayed:
        begun.set()
        return Delayed(3, "Paid.")

    model = ScriptedModel(
        [Message("assistant", tool_calls=(ToolCall("a", "pay", '{"amount": 3}'),)), late, "Continued."]
    )
    url = f"sqlite:///{tmp_path / 'durable.db'}"
    first, second = Runs(url), Runs(url)
    records = first.store.rows
    asked: dict[str, Any] = {"threadId": "t", "runId": "r", "tools": [], "context": [], "state": None}
    asked |= {"forwardedProps": None, "messages": [{"id": "m", "role": "user", "content": "pay 3"}]}
    with Memory(tmp_path / "home", scope="local") as memory, ThreadPoolExecutor(1) as threads:
        agent = Agent(model, tools=[pay], name="cashier", memory=memory)
        with served(agent, runs=first) as client:
            waiting = client.post("/agents/cashier/ag-ui", asked).text
            interrupt = json.loads(waiting.rstrip().rsplit("data: ", 1)[1])["outcome"]["interrupts"][0]["id"]
            resume = [{"interruptId": interrupt, "status": "resolved", "payload": {"approved": True}}]
            answered = threads.submit(client.post, "/agents/cashier/ag-ui", {**asked, "messages": [], "resume": resume})
            assert begun.wait(LONG)
            with served(agent, runs=second):
                assert '"RUN_FINISHED"' in (text := answered.result().text) and "Paid." in text
            assert len(model.requests) == 2

            # The server of another worker stopped in the middle of a request, and does not start again.
            left = RunRecord(run_id="left", tenant="local", agent="cashier", state="queued", created_at=1, updated_at=1)
            records.add(replace(left, input=UserInput("left")))
            assert records.begin_attempt("left", worker="of a stopped server") is not None
            assert ended(client, "left")["output"] == "Continued."
    first.close()
    second.close()


@pytest.mark.long
async def test_a_run_of_a_killed_server_is_finished_by_a_worker_and_known_to_the_next_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'durable.db'}"
    own = {"DURABLE_TEST_URL": url, "DURABLE_TEST_HOME": str(tmp_path), "DURABLE_TEST_PAUSE": "0.3"}
    environment = {**os.environ, **own}

    def command(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "agentkit", *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )

    home = str(tmp_path / "home")
    serve = ("serve", "--agent", f"{AGENTS}:cashier", "--runs", url, "--port", "0", "--home", home, "--json")
    server = command(*serve)
    worker = None
    try:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["url"]
        run = httpx.post(f"{address}/runs", json={"agent": "cashier", "input": "Pay both."}, timeout=LONG).json()["id"]
        runs = Runs(url)
        handle = runs.handle(run)
        end = time.monotonic() + LONG
        while len([one async for one in handle.events()]) < 3:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        before = (await handle.journal()).entries
        worker = command("worker", str(AGENTS), "--lease", "2", "--poll", "0.25")
        ended = await handle.result(timeout=LONG)
        assert ended.output == "paid: Pay both."
        assert ended.journal.entries[: len(before)] == before
        runs.close()
        worker.terminate()
        worker.wait()
        server = command(*serve)
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["url"]
        known = httpx.get(f"{address}/runs/{run}", timeout=LONG).json()
        assert (known["status"], known["output"]) == ("finished", "paid: Pay both.")
    finally:
        for process in (server, worker):
            if process is not None:
                process.kill()
                process.communicate()
