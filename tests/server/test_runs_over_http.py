"""Runs that continue with or without a listener: followed, resumed, decided, cancelled, continued after a restart."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from sqlalchemy import event

from agentkit import Agent, Journal, Message, ScriptedModel, ToolCall, tool
from agentkit.memory import Memory
from agentkit.prompts import Document, Image, UserInput
from agentkit.runs.run_record import RunRecord
from agentkit.runs.sqlite_engine import sqlite_engine
from agentkit.server import RunStore, Server, ServerOptions
from agentkit.testing import Delayed
from agentkit.tools import ToolContext
from tests.cases import collected
from tests.server.conftest import RunService
from tests.server.serving_agents import ended, served
from tests.waiting import LONG, until


def calling(*calls: tuple[str, str, str]) -> Message:
    return Message("assistant", tool_calls=tuple([ToolCall(*call) for call in calls]))


PAID: list[int] = []


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


def cashier(*replies: Any, **options: Any) -> Agent[Any, Any]:
    PAID.clear()
    return Agent(ScriptedModel(replies), tools=[pay], name="cashier", **options)


ONE = ("c1", "pay", '{"amount": 3}')
TWO = ("c2", "pay", '{"amount": 4}')


def test_events_are_resumed_after_the_last_received_event() -> None:
    with served(Agent(ScriptedModel(["One two three."]), name="a")) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"]
        events = client.events(f"/runs/{run}/events")
        kinds = [event["event"] for event in events]
        assert kinds == ["prompt_composed", *["text_delta"] * 3, "model_replied", "run_finished", "end"]
        assert [int(event["id"]) for event in events[:-1]] == [1, 2, 3, 4, 5, 6]
        again = client.events(f"/runs/{run}/events", headers={"Last-Event-ID": "3"})
        assert again == events[3:]
        assert client.events(f"/runs/{run}/events?after=6") == events[6:]
        assert client.get(f"/runs/{run}/events", headers={"Last-Event-ID": "x"}).status_code == 400
        journal = Journal.loads(client.get(f"/runs/{run}/journal").text)
        assert [message.text for message in journal.messages] == ["Hi", "One two three."]


def test_citations_are_in_the_run_and_in_its_last_event() -> None:
    blue = Document("The sky is blue.", source="sky.md", title="Sky", position=0)
    text = "Blue [sky.md#0], not green [sea.md#9]."
    with served(Agent(ScriptedModel.repeat(text), name="a", memory=lambda query: [blue])) as client:
        run = ended(client, client.post("/runs", {"agent": "a", "input": "Which colour?"}).json()["id"])
        cited = {"label": "sky.md#0", "source": "sky.md", "title": "Sky", "text": blue.text, "start": 6, "end": 14}
        assert (run["citations"], run["unknown_labels"]) == ([cited], ["sea.md#9"])
        finished = json.loads(client.events(f"/runs/{run['id']}/events")[-2]["data"])
        assert {name: run[name] for name in ("citations", "unknown_labels", "output")}.items() <= finished.items()
        listed = client.get("/runs").json()["runs"]
        assert listed == [run]
        body = {"model": "a", "messages": [{"role": "user", "content": "Which colour?"}]}
        client.post("/v1/chat/completions", body)
        asked = client.get("/runs").json()["runs"][0]
        assert asked["id"] != run["id"] and asked["citations"] == [cited]
        paths = client.get("/openapi.json").json()["paths"]
        schema = paths["/runs/{run}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "additionalProperties": False, "required": [*schema["properties"]]}).validate(
            run
        )
        assert schema["properties"]["citations"]["items"]["properties"].keys() == cited.keys()
        events = paths["/runs/{run}/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
        assert "`unknown_labels`" in events["description"]


def test_events_of_an_agent_that_is_a_tool_have_the_id_of_its_call() -> None:
    expert = Agent(ScriptedModel(["Blue."]), name="expert").as_tool(name="expert", description="Knows colours.")
    calls = calling(("c1", "expert", '{"input": "Which?"}'))
    with served(Agent(ScriptedModel([calls, "It is blue."]), tools=[expert], name="a")) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"]
        events = client.events(f"/runs/{run}/events")
    inner = [json.loads(event["data"]) for event in events if event["event"] == "nested"]
    assert {(one["call_id"], one["name"]) for one in inner} == {("c1", "expert")}
    assert [one["kind"] for one in inner] == ["prompt_composed", "text_delta", "model_replied", "run_finished"]
    assert (inner[1]["event"]["text"], inner[-1]["event"]["output"]) == ("Blue.", "Blue.")


def test_a_listener_receives_the_events_of_a_run_in_progress() -> None:
    gate = threading.Event()

    def look() -> str:
        gate.wait(LONG)
        return "seen"

    agent = Agent(ScriptedModel([calling(("c1", "look", "{}")), "Done."]), tools=[look], name="a")
    with served(agent) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"]
        heard = []
        with client.http.stream("GET", f"/runs/{run}/events") as answer:
            for line in answer.iter_lines():
                heard.append(line)
                if line == "event: tool_started":
                    assert client.get(f"/runs/{run}").json()["status"] == "running"
                    gate.set()
        assert "event: run_finished" in heard and 'data: {"status":"finished"}' in heard


def test_a_run_waits_for_decisions_about_all_its_calls_and_continues(run_service: RunService) -> None:
    with run_service(cashier(calling(ONE, TWO), "Done.")) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay.", "session": "s"}).json()["id"]
        waiting = ended(client, run)
        assert (waiting["status"], [call["id"] for call in waiting["waiting"]]) == ("waiting", ["c1", "c2"])
        assert [call["lines"] for call in waiting["waiting"]] == [["amount: 3"], ["amount: 4"]]
        assert client.events(f"/runs/{run}/events")[-1]["event"] == "pause"
        wrong = client.post(f"/runs/{run}/decisions", {"decisions": {"c9": {"approve": True}}})
        assert wrong.status_code == 422 and "c1, c2" in wrong.json()["error"]["message"]
        for amount in ("x", None, [2]):
            bad = {"decisions": {call: {"approve": True, "arguments": {"amount": amount}} for call in ("c1", "c2")}}
            for decisions in (bad, {"decisions": {"c2": bad["decisions"]["c2"]}}):
                refused = client.post(f"/runs/{run}/decisions", decisions)
                assert refused.status_code == 422 and "amount: expected an integer" in refused.text, refused.text
        first = client.post(
            f"/runs/{run}/decisions", {"decisions": {"c1": {"approve": True, "arguments": {"amount": 2}}}}
        )
        assert first.json()["status"] == "waiting" and [call["id"] for call in first.json()["waiting"]] == ["c2"]
        assert PAID == []
        second = {"decisions": {"c2": {"approve": False, "reason": "too much"}}}
        assert client.post(f"/runs/{run}/decisions", second).status_code == 200
        done = ended(client, run)
        assert (done["status"], done["output"], PAID) == ("finished", "Done.", [2])
        assert client.post(f"/runs/{run}/decisions", second).status_code == 409
        contents = [one["content"] for one in client.get("/sessions/s/messages").json()["messages"]]
        assert contents[2] == "paid 2" and "too much" in contents[3]
        ids = [int(event["id"]) for event in client.events(f"/runs/{run}/events") if "id" in event]
        assert ids == sorted(set(ids))


def test_a_form_of_a_tool_waits_like_a_call(run_service: RunService) -> None:
    @tool
    async def order(context: ToolContext) -> str:
        """Order."""
        size = await context.ask("Which size?", {"type": "object", "properties": {"size": {"type": "string"}}})
        return f"{size} {await context.ask('Sure?', {'type': 'object'})}"

    agent: Agent[Any] = Agent(ScriptedModel([calling(("c1", "order", "{}")), "Done."]), tools=[order], name="shop")
    with run_service(agent) as client:
        run = client.post("/runs", {"agent": "shop", "input": "A shirt."}).json()["id"]
        for arguments in ({"answer": {"size": 7}}, {"answer": {"size": "L"}}, None):
            waiting = ended(client, run)
            assert waiting["status"] == "waiting", waiting
            (form,) = waiting["waiting"]
            decision = {"approve": True, "arguments": arguments}
            client.post(f"/runs/{run}/decisions", {"decisions": {form["id"]: decision}})
        assert ended(client, run)["status"] == "finished"
        journal = Journal.loads(client.get(f"/runs/{run}/journal").text)
        assert [str(result.content) for result in journal.tool_results] == ["{'size': 'L'} {}"]


def test_a_run_is_counted_once_for_any_number_of_waits(run_service: RunService) -> None:
    with run_service(cashier(calling(ONE), calling(TWO), "Done.", calling(ONE))) as client:

        def counted() -> int:
            return sum([day["runs"] for day in client.get("/usage").json()["days"]])

        run = client.post("/runs", {"agent": "cashier", "input": "Pay."}).json()["id"]
        for call in ("c1", "c2"):
            assert ended(client, run)["status"] == "waiting" and counted() == 0
            client.post(f"/runs/{run}/decisions", {"decisions": {call: {"approve": True}}})
        assert ended(client, run)["status"] == "finished" and until(lambda: counted() == 1)
        left = client.post("/runs", {"agent": "cashier", "input": "Pay."}).json()["id"]
        assert ended(client, left)["status"] == "waiting" and counted() == 1
        client.post(f"/runs/{left}/cancel", {})
        assert until(lambda: counted() == 2)


NO_DECISIONS: list[tuple[Any, str]] = [
    ({"approve": "yes"}, 'decisions.c1.approve: expected a boolean, got "yes"'),
    ({"approve": 1}, "decisions.c1.approve: expected a boolean, got 1"),
    ({"approve": None}, "decisions.c1.approve: expected a boolean, got null"),
    ({}, "decisions.c1.approve: is missing"),
    ({"approve": True, "reason": "x"}, "decisions.c1.reason: only valid if approve is false"),
    ({"approve": False, "arguments": {}}, "decisions.c1.arguments: only valid if approve is true"),
    (True, "decisions.c1: expected an object with approve, got true"),
]


def test_only_a_decision_approves(run_service: RunService) -> None:
    with run_service(cashier(calling(ONE), "Done.")) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay."}).json()["id"]
        ended(client, run)
        for decision, message in NO_DECISIONS:
            refused = client.post(f"/runs/{run}/decisions", {"decisions": {"c1": decision}})
            error = refused.json()["error"]
            assert (refused.status_code, error["message"]) == (422, message)
            assert error["param"] == message.partition(":")[0]
            assert client.get(f"/runs/{run}").json()["status"] == "waiting" and PAID == []
        for body in (
            '{"decisions": {"c1": {"approve": false}, "c1": {"approve": true}}}',
            '{"decisions": {"c1": {"approve": false}, "c\\u0031" : {"approve": true}}}',
            '{"decisions": {}, "decisions": {"c1": {"approve": true}}}',
            '{"decisions": {"c1": {"approve": false, "approve"\n:true}}}',
            '{"decisions": {"c1": {"approve": true, "arguments": {"amount": 1, "a\\\\": 2, "amount": 900}}}}',
        ):
            headers = {"content-type": "application/json"}
            refused = client.http.post(f"/runs/{run}/decisions", content=body, headers=headers)
            assert refused.status_code == 400 and "duplicate name" in refused.text, body
            assert client.get(f"/runs/{run}").json()["status"] == "waiting" and PAID == []


def test_concurrent_decisions_are_all_applied_and_each_is_counted_once(run_service: RunService) -> None:
    calls = [(f"c{at}", "pay", f'{{"amount": {at}}}') for at in range(8)]
    with run_service(cashier(calling(*calls), "Done.")) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay."}).json()["id"]
        ended(client, run)
        answers: list[int] = []

        def decide(call: str) -> None:
            body = {"decisions": {call: {"approve": True}}}
            answers.append(client.post(f"/runs/{run}/decisions", body).status_code)

        threads = [threading.Thread(target=decide, args=(call,)) for call, _, _ in calls * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers.count(200) == 8 and set(answers) <= {200, 409, 422}
        assert ended(client, run)["status"] == "finished" and sorted(PAID) == list(range(8))


def test_a_cancelled_run_releases_its_session() -> None:
    model = ScriptedModel([Delayed(60, "late"), "Here."])
    with served(Agent(model, name="a")) as client:
        body = {"agent": "a", "input": "Hi", "session": "s"}
        run = client.post("/runs", body).json()["id"]
        until(lambda: model.requests)
        busy = client.post("/runs", body)
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "session_busy")
        assert client.delete(f"/runs/{run}").status_code == 409
        assert client.delete("/sessions/s").status_code == 409
        assert client.post(f"/runs/{run}/cancel").json()["status"] == "cancelled"
        assert client.events(f"/runs/{run}/events")[-1]["data"] == '{"status":"cancelled"}'
        assert client.post(f"/runs/{run}/cancel").json()["status"] == "cancelled"
        assert ended(client, client.post("/runs", body).json()["id"])["output"] == "Here."
        assert client.delete(f"/runs/{run}").status_code == 204
        assert client.get(f"/runs/{run}").status_code == 404


def test_clients_do_not_read_the_path_of_a_full_database(tmp_path: Path) -> None:
    RunStore(tmp_path / "runs.db").close()
    engine = sqlite_engine(str(tmp_path / "runs.db"))
    # SQLite refuses every page beyond the present size, as on a full disk.
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    with served(cashier("Hi."), store=RunStore(engine)) as client:
        answer = client.post("/runs", {"agent": "cashier", "input": "x" * 100_000})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "store_unavailable" and "refuses" not in answer.text
    engine.dispose()


def test_a_run_is_cancelled_while_it_is_stored() -> None:
    is_stored, may_go_on = threading.Event(), threading.Event()

    class SlowStore(RunStore):
        def add(self, record: RunRecord, journal: str = "") -> RunRecord:
            added = super().add(record, journal)
            is_stored.set()
            may_go_on.wait(LONG)
            return added

    agent, body = Agent(ScriptedModel.repeat(Delayed(60, "late")), name="a"), {"agent": "a", "input": "Hi"}
    with closing(SlowStore()) as store, served(agent, store=store) as client, ThreadPoolExecutor(2) as pool:
        started = pool.submit(client.post, "/runs", body)
        assert is_stored.wait(LONG)
        run = client.get("/runs").json()["runs"][0]["id"]
        cancelled = pool.submit(client.post, f"/runs/{run}/cancel")
        with suppress(TimeoutError):
            cancelled.result(0.5)
        try:
            assert client.get(f"/runs/{run}", timeout=5).status_code == 200
        finally:
            may_go_on.set()
        assert started.result(LONG).status_code == 202
        assert cancelled.result(LONG).json()["status"] == "cancelled"
        assert client.get(f"/runs/{run}").json()["status"] == "cancelled"


async def test_a_run_is_cancelled_before_its_first_step() -> None:
    runs = Server([Agent(ScriptedModel(["Hi."]), name="a")]).runs
    record = RunRecord(run_id="r", tenant="local", agent="a", state="queued", created_at=1, updated_at=1)
    await runs.start(replace(record, input=UserInput("Hi")))
    assert (await runs.cancel(record)).state == "cancelled"
    await runs.close()


def test_a_run_that_waits_can_be_cancelled(run_service: RunService) -> None:
    with run_service(cashier(calling(ONE), "Done.")) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay."}).json()["id"]
        ended(client, run)
        assert client.post(f"/runs/{run}/cancel").json()["status"] == "cancelled"
        assert client.post(f"/runs/{run}/decisions", {"decisions": {"c1": {"approve": True}}}).status_code == 409
        assert PAID == []


def test_the_same_key_starts_one_run(run_service: RunService) -> None:
    model = ScriptedModel.repeat("Hm.")
    with run_service(Agent(model, name="a")) as client:
        body, key = {"agent": "a", "input": "Hi", "session": "s"}, {"Idempotency-Key": "order-1"}
        runs = {client.post("/runs", body, headers=key).json()["id"] for _ in range(3)}
        assert len(runs) == 1
        ended(client, runs.pop())
        assert len(model.requests) == 1
        other = client.post("/runs", {**body, "input": "Other"}, headers=key)
        assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")


def test_a_failed_run_reports_its_error_without_internal_text(run_service: RunService) -> None:
    with run_service(Agent(ScriptedModel([RuntimeError("password=hunter2")]), name="a")) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"]
        done = ended(client, run)
        assert (done["status"], done["error"]["type"]) == ("failed", "RuntimeError")
        everything = json.dumps(done) + json.dumps(client.events(f"/runs/{run}/events"))
        assert "hunter2" not in everything


_BODIES = [
    {},
    {"agent": "a"},
    {"agent": "a", "input": 3},
    {"agent": None, "input": True},
    {"agent": "a", "input": "x", "additional_kwargs": 1},
    {"agent": "a", "input": "x", "tags": [" x", None]},
    {"agent": "a", "input": "x", "sesion": "s"},
    {"agent": "a", "input": "x", "session": "../../etc"},
    {"agent": "a", "input": "x", "session": ".."},
    {"agent": "a", "input": "x", "session": "a/b"},
    {"agent": "a", "input": "x", "session": "a\u0000b"},
    {"agent": "a", "input": "x", "session": "a" * 200},
    {"agent": "a", "input": "x", "session": ""},
    {"agent": "a", "input": "x", "user": "a b"},
    {"agent": "a", "additional_kwargs": {"x": 1}, "session": "s"},
    [],
    "x",
    None,
]


def test_an_invalid_run_is_refused_and_not_stored(run_service: RunService) -> None:
    failures: list[str] = []
    with run_service(Agent(ScriptedModel.repeat("Hm."), name="a")) as client:
        for body in _BODIES:
            with collected(failures, body):
                headers = {"Content-Type": "application/json"}
                answer = client.http.post("/runs", content=json.dumps(body), headers=headers)
                assert answer.status_code == 422, answer.text
                words = ("Value error", "Input should", "dictionary", "None", "True")
                assert not any(word in answer.text for word in words), answer.text
                assert client.get("/runs").json() == {"runs": []}
                assert client.get("/sessions").json() == {"sessions": []}
    assert failures == []


async def test_a_server_that_stops_loses_no_run(tmp_path: Path) -> None:
    """The next server continues it without repeating calls."""
    done: list[str] = []

    def look() -> str:
        done.append("looked")
        return "seen"

    def agent(*replies: Any, memory: Memory) -> Agent[Any, Any]:
        return Agent(ScriptedModel(replies), tools=[look], name="a", memory=memory)

    options = ServerOptions(grace_seconds=0.2)
    with Memory(tmp_path / "home") as memory:
        first = agent(calling(("c1", "look", "{}")), Delayed(60, "never"), memory=memory)
        with closing(RunStore(tmp_path / "runs.db")) as store, served(first, store=store, options=options) as client:
            run = client.post("/runs", {"agent": "a", "input": "Hi", "session": "s"}).json()["id"]
            model: Any = first.chain.model
            await asyncio.to_thread(until, lambda: len(model.requests) == 2)
            seen = client.get(f"/runs/{run}").json()
            assert seen["status"] == "running"
        second = agent("Done.", memory=memory)
        with closing(RunStore(tmp_path / "runs.db")) as store, served(second, store=store) as client:
            finished = await asyncio.to_thread(ended, client, run)
            assert (finished["status"], finished["output"], done) == ("finished", "Done.", ["looked"])
            roles = [one["role"] for one in client.get("/sessions/s/messages").json()["messages"]]
            assert roles == ["user", "assistant", "tool", "assistant"]
            ids = [int(event["id"]) for event in client.events(f"/runs/{run}/events") if "id" in event]
            assert ids == sorted(set(ids))


def test_a_journal_of_a_newer_version_is_left_to_a_newer_server(tmp_path: Path) -> None:
    now = time.time()
    record = RunRecord(
        run_id="r",
        tenant="local",
        agent="cashier",
        state="running",
        created_at=now,
        updated_at=now,
        input=UserInput("Pay."),
    )
    journal = Journal("cashier", "r", cashier().context("Pay.")).dumps()
    newer = journal.replace('"journal":1', '"journal":99')
    assert newer != journal
    for text, status in ((newer, "queued"), (journal, "finished")):
        with closing(RunStore(tmp_path / "runs.db")) as store:
            store.delete("r")
            store.add(record, text)
            with served(cashier("Done."), store=store) as client:
                until(lambda: client.server.runs.live == 0)
                until(lambda wanted=status: client.get("/runs/r").json()["status"] == wanted)
                found = client.get("/runs/r").json()
                shown = client.get("/inspector/api/run?id=r")
                if status == "finished":
                    assert found["error"] is None and found["output"] == "Done."
                    continue
                assert "format 99 was written by a newer agentkit" in found["error"]["message"]
                assert shown.status_code == 422 and "newer agentkit" in shown.json()["error"]["message"]
                assert client.get("/runs/r/journal").text == newer


def test_a_tenant_cannot_exceed_its_number_of_runs(run_service: RunService) -> None:
    agent = Agent(ScriptedModel.repeat(Delayed(300, "late")), name="a")
    with ThreadPoolExecutor(4) as pool, run_service(agent, options=ServerOptions(runs_per_tenant=2)) as client:

        def start(key: str) -> Any:
            return client.post("/runs", {"agent": "a", "input": "Hi"}, headers={"Idempotency-Key": key})

        begun = [one for one in pool.map(start, "abcd") if one.status_code == 202]  # all at once
        assert len(begun) == 2 and start("e").status_code == 429
        runs = [one.json() for one in begun]
        known = next(key for key in "abcd" if start(key).status_code == 202)
        assert start(known).json()["id"] in [run["id"] for run in runs]  # a repeated start takes no place
        client.post(f"/runs/{runs[0]['id']}/cancel")
        until(lambda: start("e").status_code == 202)
        for run in client.get("/runs").json()["runs"]:
            client.post(f"/runs/{run['id']}/cancel")


IMAGE = {"source": {"bytes": "iVBO"}, "media_type": "image/png", "name": None, "kind": "image"}


@pytest.mark.parametrize(
    ("output", "value", "expected"),
    [
        (Image, Image(b"\x89PN", media_type="image/png"), IMAGE),
        (lambda: b"\x89PN", None, "iVBO"),
    ],
)
def test_bytes_of_an_answer_are_base64(output: Any, value: Any, expected: Any) -> None:
    reply = calling(("c1", "answer", "{}"))
    if value is not None:
        reply = Message("assistant", content=(value,))
    else:
        output.__name__ = "answer"
    with served(Agent(ScriptedModel([reply]), name="a", output=output)) as client:
        run = ended(client, client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"])
        assert (run["status"], run["output"]) == ("finished", expected)


def test_an_answer_without_a_json_form_is_stored_and_shown() -> None:
    def far() -> float:
        return float("nan")

    agent = Agent(ScriptedModel([calling(("c1", "far", "{}"))]), name="a", output=far)
    with served(agent) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}).json()["id"]
        assert ended(client, run)["status"] == "finished"
        assert client.get("/runs").json()["runs"][0]["output"] is None
        assert [one["id"] for one in client.get("/inspector/api/overview").json()["runs"]] == [run]
        assert "end" in [event["event"] for event in client.events(f"/runs/{run}/events")]


@pytest.mark.parametrize("body", ["{", "[]", "", '{"output": 7}', '{"output": Infinity, "error": [1]}'])
def test_a_damaged_stored_run_is_reported_and_affects_no_other_run(tmp_path: Path, body: str) -> None:
    path = tmp_path / "runs.db"
    record = RunRecord(run_id="good", tenant="local", agent="a", state="finished", created_at=1, updated_at=2)
    with closing(RunStore(path)) as store:
        store.add(record)
        store.add(replace(record, run_id="bad", state="queued"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE agentkit_runs SET outcome = ? WHERE run_id = 'bad'", (body,))
    with closing(RunStore(path)) as store, served(Agent(ScriptedModel(["Hm."]), name="a"), store=store) as client:
        bad, good = client.get("/runs").json()["runs"]
        assert bad["error"]["message"] == "the stored data of this run is corrupt" and good["error"] is None
        assert [one["id"] for one in client.get("/inspector/api/overview").json()["runs"]] == ["bad", "good"]
        assert client.get("/inspector/api/run?id=bad").status_code == 200
        client.post("/runs/bad/cancel")
        assert client.delete("/runs/bad").status_code == 204


def test_decisions_can_be_sent_to_the_next_server(tmp_path: Path) -> None:
    with closing(RunStore(tmp_path / "runs.db")) as store, served(cashier(calling(ONE)), store=store) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay."}).json()["id"]
        ended(client, run)
    with closing(RunStore(tmp_path / "runs.db")) as store, served(cashier("Done."), store=store) as client:
        client.post(f"/runs/{run}/decisions", {"decisions": {"c1": {"approve": True}}})
        assert ended(client, run)["output"] == "Done." and PAID == [3]


def test_an_unknown_query_parameter_is_refused_with_the_valid_names(run_service: RunService) -> None:
    """A filter with a wrong name would return all runs."""
    agent = Agent(ScriptedModel.repeat("ok"), name="a")
    with run_service(agent) as client:
        for path, name in (
            ("/runs?state=waiting", "state"),
            ("/runs?status=waiting&sesion=s", "sesion"),
            ("/sessions?usr=ada", "usr"),
            ("/runs/none/events?from=1", "from"),
            ("/runs?status=wating", "status"),
        ):
            refused = client.get(path)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["param"]) == (422, "invalid_query", name), refused.text
        assert error["message"].endswith(", got 'wating'")
        accepted = ("/runs?status=waiting", "/healthz?x=1", "/v1/models?x=1", "/runs?limit=1&agent=a")
        assert [client.get(path).status_code for path in accepted] == [200] * 4
        unknown = client.post("/runs", {"agent": "b", "input": "Hi"}).json()["error"]
        assert (unknown["param"], unknown["code"]) == ("agent", "model_not_found")


def test_runs_are_listed_by_page(run_service: RunService) -> None:
    with run_service(Agent(ScriptedModel.repeat("Hm."), name="a")) as client:
        runs = [client.post("/runs", {"agent": "a", "input": str(at)}).json()["id"] for at in range(5)]
        page = [run["id"] for run in client.get("/runs?limit=2").json()["runs"]]
        assert page == runs[:-3:-1]
        assert [run["id"] for run in client.get(f"/runs?limit=2&before={page[-1]}").json()["runs"]] == runs[2:0:-1]
        for query in ("limit=0", "limit=x", "limit=201", "status=nope", "before=%00"):
            assert client.get(f"/runs?{query}").status_code == 422, query


class SlowlyStored(RunStore):
    """A store on a slow disk."""

    def add(self, record: RunRecord, journal: str = "") -> RunRecord:
        time.sleep(0.3)
        return super().add(record, journal)


def test_a_run_that_was_answered_is_listed_immediately(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel.repeat("Hi."), name="a")
    with closing(SlowlyStored(tmp_path / "runs.db")) as store, served(agent, store=store) as client:
        body = {"model": "a", "messages": [{"role": "user", "content": "Hello"}]}
        assert client.post("/v1/chat/completions", body).status_code == 200
        (run,) = client.get("/runs").json()["runs"]
        assert client.post("/v1/chat/completions", body).status_code == 200
        assert len(client.get("/runs").json()["runs"]) == 2
        assert client.get(f"/runs/{run['id']}").json()["status"] == "finished"
