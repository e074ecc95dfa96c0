"""Messages over HTTP to runs of a server: of tasks of its process, of workers, and of AG-UI front ends."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentkit import Agent, Journal, ScriptedModel, ToolCall
from agentkit.run.parts.run_inbox import checked_message
from agentkit.server import Access, Server, add_token
from tests.lookout import Lookout
from tests.server.serving_agents import ended, served
from tests.waiting import LONG, until

LOOK, PAY = ToolCall(name="look", arguments={}), ToolCall(name="pay", arguments={})


def test_a_run_receives_messages_and_refuses_messages_after_its_end(tmp_path: Path) -> None:
    lookout = Lookout(LOOK, "Both.", "Bye.", PAY)
    file = tmp_path / "access.json"
    ada, bob = [add_token(file, tenant="acme", name=f"t-{name}", user=name) for name in ("ada", "bob")]
    with served(lookout.agent, access=Access(file)) as client:
        run = client.post("/runs", {"agent": "lookout", "input": "Is a there?"}, ada).json()["id"]
        path = f"/runs/{run}/messages"
        assert lookout.calls.wait(LONG)
        sent = [client.post(path, {"input": "And b?"}, ada, headers={"Idempotency-Key": "1"}) for _ in range(2)]
        assert [answer.status_code for answer in sent] == [202, 202]
        assert sent[0].json() == sent[1].json()
        assert {name: sent[0].json()[name] for name in ("run", "when", "by")} == {
            "run": run,
            "when": "next_step",
            "by": "ada",
        }
        client.post(path, {"input": "Thanks.", "when": "idle"}, ada)
        refused = {
            (409, "idempotency_key_reused"): client.post(path, {"input": "c"}, ada, headers={"Idempotency-Key": "1"}),
            (404, "run_not_found"): client.post("/runs/other/messages", {"input": "c"}, ada),
            (422, "invalid_body"): client.post(path, {"input": "", "when": "now", "more": 1}, ada),
            (403, "wrong_user"): client.post(path, {"input": "c", "user": "bob"}, ada),
        }
        assert [(one.status_code, one.json()["error"]["code"]) for one in refused.values()] == [*refused]
        assert client.post(path, {"input": "c"}, bob).status_code == 404
        lookout.go.set()
        assert ended(client, run, ada)["output"] == "Bye."
        journal = Journal.loads(client.get(f"/runs/{run}/journal", ada).text)
        texts = [message.text for message in journal.messages]
        assert texts == ["Is a there?", "", "there", "And b?", "Both.", "Thanks.", "Bye."]
        events = client.events(f"/runs/{run}/events", ada)
        received = [json.loads(event["data"]) for event in events if event["event"] == "message_received"]
        assert [(one["text"], one["by"], one["step"]) for one in received] == [
            ("And b?", "ada", 1),
            ("Thanks.", "ada", 2),
        ]
        late = client.post(path, {"input": "Too late."}, ada)
        assert (late.status_code, late.json()["error"]["code"]) == (409, "run_ended")


def test_a_message_that_arrives_before_the_end_is_stored_is_received() -> None:
    servers, sent = list[Server](), list[str]()

    async def deps(caller: Any) -> AsyncIterator[str]:
        yield "deps"
        # After the last step of the run, and before its end is stored.
        if not sent:
            sent.append(caller.run_id)
            servers[0].store.messages.send(caller.run_id, checked_message("One more."))

    agent = Agent(ScriptedModel(["One.", "Two."]), name="racing").with_deps(deps)
    with served(agent, prepare=servers.append) as client:
        run = client.post("/runs", {"agent": "racing", "input": "Go.", "session": "s"}).json()["id"]
        assert ended(client, run)["output"] == "Two."
        messages = client.get("/sessions/s/messages").json()["messages"]
        assert [message["content"] for message in messages] == ["Go.", "One.", "One more.", "Two."]
        # The end of the run is one event, although the agent had ended before the message.
        kinds = [event["event"] for event in client.events(f"/runs/{run}/events")]
        assert (kinds.count("run_finished"), kinds[-2:]) == (1, ["run_finished", "end"])
        assert [event.kind for event in servers[0].store.events.after(run)] == kinds[:-1]


def test_a_waiting_run_receives_a_message_after_the_decision() -> None:
    lookout = Lookout(PAY, "Done.")
    with served(lookout.agent) as client:
        run = ended(client, client.post("/runs", {"agent": "lookout", "input": "Pay."}).json()["id"])
        assert client.post(f"/runs/{run['id']}/messages", {"input": "Quickly."}).status_code == 202
        decisions = {call["id"]: {"approve": True} for call in run["waiting"]}
        client.post(f"/runs/{run['id']}/decisions", {"decisions": decisions})
        assert ended(client, run["id"])["output"] == "Done."
        journal = Journal.loads(client.get(f"/runs/{run['id']}/journal").text)
        assert [message.text for message in journal.messages] == ["Pay.", "", "paid", "Quickly.", "Done."]


def test_an_ag_ui_run_receives_messages_while_it_streams() -> None:
    from tests.server.test_ag_ui import run_input

    lookout = Lookout(LOOK, "Both.")
    with served(lookout.agent) as client, ThreadPoolExecutor(1) as pool:
        body = run_input("Is a there?").model_dump(mode="json", by_alias=True)
        with client.http.stream("POST", "/agents/lookout/ag-ui", json=body) as answer:
            path = f"{answer.headers['location']}/messages"
            text = pool.submit(answer.read)
            assert lookout.calls.wait(LONG)
            assert client.post(path, {"input": "And b?"}).status_code == 202
            assert client.post(path, {"input": "c"}, headers={"Idempotency-Key": "1"}).status_code == 422
            lookout.go.set()
            events = [
                json.loads(line.removeprefix("data: ")) for line in text.result(LONG).decode().split("\n\n") if line
            ]
        users = [event["messageId"] for event in events if event.get("role") == "user"]
        deltas = [event["delta"] for event in events if event.get("messageId") in users and "delta" in event]
        assert deltas == ["And b?"]
        assert until(lambda: client.get("/runs").json()["runs"])[0]["output"] == "Both."
        assert client.post(path, {"input": "Too late."}).status_code == 409


def test_the_reason_of_a_cancellation_is_in_the_session() -> None:
    lookout = Lookout(LOOK, PAY)
    with served(lookout.agent) as client:
        run = client.post("/runs", {"agent": "lookout", "input": "Look.", "session": "s"}).json()["id"]
        assert lookout.calls.wait(LONG)
        threading.Timer(0.1, lookout.go.set).start()
        done = client.post(f"/runs/{run}/cancel", {"reason": "wrong shop"}).json()
        assert (done["status"], done["reason"]) == ("cancelled", "wrong shop")
        texts = [message["content"] for message in client.get("/sessions/s/messages").json()["messages"]]
        assert texts[-1] == "The run was cancelled: wrong shop"
        (event,) = [one for one in client.events(f"/runs/{run}/events") if one["event"] == "run_cancelled"]
        assert json.loads(event["data"])["reason"] == "wrong shop"
        waiting = ended(
            client, client.post("/runs", {"agent": "lookout", "input": "Pay.", "session": "s"}).json()["id"]
        )
        client.post(f"/runs/{waiting['id']}/cancel", {"reason": "wrong price"})
        texts = [message["content"] for message in client.get("/sessions/s/messages").json()["messages"]]
        assert texts[-1] == "The run was cancelled: wrong price"
