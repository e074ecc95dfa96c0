"""The inspector of a server shows a caller its own runs and sessions only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentkit import Agent, Message, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.memory import Memory, Scope
from agentkit.server import Access, add_token
from tests.server.serving_agents import ended, served
from tests.waiting import until


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def cashier() -> Agent[Any, Any]:
    wants = Message("assistant", tool_calls=(ToolCall("c1", "pay", '{"amount": 3}'),))
    return Agent(ScriptedModel.repeat(wants, "Paid."), "You pay.", tools=[pay], name="cashier")


def test_a_run_is_started_shown_and_decided(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    acme = add_token(path, "a", "acme", scopes=("run", "read", "approve"))
    bolt = add_token(path, "b", "bolt", scopes=("run", "read", "approve"))
    reads = add_token(path, "r", "acme", scopes=("read",))
    with served(cashier(), access=Access(path)) as client:
        assert "script-src 'self'" in client.get("/inspector/").headers["content-security-policy"]
        assert client.get("/inspector/api/overview").status_code == 401
        asked = {"agent": "cashier", "input": "Pay 3.", "session": "s"}
        assert client.post("/inspector/api/start", asked, reads).status_code == 403
        begun = client.post("/inspector/api/start", asked, acme)
        assert begun.status_code == 200, begun.text
        run = client.get("/runs", acme).json()["runs"][0]["id"]
        assert ended(client, run, acme)["status"] == "waiting"
        overview = client.get("/inspector/api/overview", acme).text
        assert run in overview and "cashier" in overview
        assert run not in client.get("/inspector/api/overview", bolt).text
        assert client.get(f"/inspector/api/run?id={run}", acme).status_code == 200
        assert client.get(f"/inspector/api/run?id={run}", bolt).status_code == 404
        decision = {"run": run, "decisions": {"c1": {"approve": True}}}
        assert client.post("/inspector/api/decide", decision, reads).status_code == 403
        assert client.post("/inspector/api/decide", decision, acme).status_code == 200
        assert ended(client, run, acme)["output"] == "Paid."
        assert client.get("/inspector/api/session?name=s", acme).status_code == 200
        assert client.get("/inspector/api/session?name=s", bolt).status_code == 404


def test_requests_of_openai_clients_are_shown_too() -> None:
    with served(Agent(ScriptedModel(["Hello."]), "You are brief.", name="a")) as client:
        client.openai().chat.completions.create(model="a", messages=[{"role": "user", "content": "Hi"}])
        run = until(lambda: client.get("/runs").json()["runs"])[0]
        assert (run["status"], run["output"]) == ("finished", "Hello.")
        shown = client.get(f"/inspector/api/run?id={run['id']}")
        assert shown.status_code == 200 and "Hello." in shown.text
        layers = client.post("/inspector/api/compose", {"base": {"run": run["id"]}})
        assert layers.status_code == 200 and "system" in layers.text, layers.text


def test_only_a_token_with_the_scope_play_starts_runs_and_its_tenant_pays(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    tokens = {
        name: add_token(path, name, tenant, scopes=scopes, user=user)
        for name, tenant, scopes, user in (
            ("plays", "acme", ("run", "read", "play"), None),
            ("runs", "acme", ("run", "read", "approve", "metrics"), None),
            ("other", "bolt", ("run", "read", "play"), None),
            ("user", "acme", ("read", "play"), "ada"),
        )
    }
    path.write_text("tenants:\n  acme: {tokens_per_day: 1000}\n" + path.read_text())
    hello, answered = (
        Reply(Message("assistant", "Hello."), Usage(10)),
        Reply(Message("assistant", "Asked."), Usage(990)),
    )
    model = ScriptedModel([hello, answered, answered])
    with served(Agent(model, "You are brief.", name="a"), access=Access(path)) as client:
        run = client.post("/runs", {"agent": "a", "input": "Hi"}, tokens["plays"]).json()["id"]
        assert ended(client, run, tokens["plays"])["status"] == "finished"
        body = {"base": {"run": run}, "input": "Bye"}
        case = {**body, "expected": "y"}
        for path_, data in (("ask", body), ("curl", body), ("case", case)):
            assert client.post(f"/inspector/api/{path_}", data, tokens["runs"]).status_code == 403
        assert client.get("/inspector/api/overview", tokens["runs"]).json()["play"]["allowed"] is False
        assert client.get("/inspector/api/overview", tokens["plays"]).json()["play"]["cases"] is None
        # Runs of another tenant and of another user do not exist for the caller.
        for name in ("other", "user"):
            assert client.post("/inspector/api/ask", body, tokens[name]).status_code == 404
        assert len(model.requests) == 1
        answer = client.post("/inspector/api/ask", body, tokens["plays"])
        assert answer.json()["text"] == "Asked." and model.requests[-1].messages[-1].text == "Bye"
        refused = client.post("/inspector/api/ask", body, tokens["plays"])
        assert (refused.status_code, len(model.requests)) == (429, 2)
        saved = client.post("/inspector/api/case", case, tokens["plays"]).json()
        assert saved["file"] is None and json.loads(saved["line"]) == {"input": "Bye", "expected": "y"}
        days = client.get("/usage", tokens["plays"]).json()["days"]
        assert [(day["runs"], day["input_tokens"]) for day in days] == [(1, 1000)]


def test_a_run_of_the_form_acts_for_the_named_user(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    acme = add_token(path, "a", "acme", scopes=("run", "read"))
    ada = add_token(path, "b", "acme", scopes=("run", "read"), user="ada")
    cases: tuple[tuple[str, dict[str, Any], int, tuple[str | None, str | None]], ...] = (
        (acme, {}, 200, (None, None)),
        (acme, {"user": ""}, 200, (None, None)),
        (acme, {"user": None, "session": "s"}, 200, (None, "s")),
        (acme, {"user": "ada"}, 200, ("ada", None)),
        (acme, {"user": "ada", "session": "t"}, 200, ("ada", "t")),
        (acme, {"user": "ada", "session": "ada/t"}, 200, ("ada", "t")),
        (acme, {"session": "bob/t"}, 200, ("bob", "t")),
        (acme, {"user": "bob", "session": "ada/t"}, 422, (None, None)),
        (acme, {"user": "bob/ada"}, 422, (None, None)),
        (acme, {"user": 3}, 422, (None, None)),
        (ada, {}, 200, ("ada", None)),
        (ada, {"user": "ada"}, 200, ("ada", None)),
        (ada, {"user": "bob"}, 403, (None, None)),
        (ada, {"session": "bob/t"}, 403, (None, None)),
    )
    wrong = []
    with served(Agent(ScriptedModel.repeat("ok"), "x", name="a"), access=Access(path)) as client:
        named = [client.get("/inspector/api/overview", token).json()["names_users"] for token in (acme, ada)]
        for token, fields, status, expected in cases:
            answer = client.post("/inspector/api/start", {"agent": "a", "input": "Hi", **fields}, token)
            owner: tuple[Any, Any] = (None, None)
            if answer.status_code == 200:
                run = ended(client, answer.json()["run"], token)
                owner = (run["user"], run["session"])
            if (answer.status_code, owner) != (status, expected):
                wrong.append((fields, answer.status_code, owner, answer.text))
    assert (named, wrong) == ([True, False], [])


def test_a_search_of_the_memory_reads_the_messages_of_the_named_user(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    acme = add_token(path, "a", "acme", scopes=("run", "read"))
    ada = add_token(path, "b", "acme", scopes=("run", "read"), user="ada")
    bolt = add_token(path, "c", "bolt", scopes=("run", "read"))
    with Memory(tmp_path / "home") as memory:
        for tenant, user in (("acme", "ada"), ("acme", "bob"), ("bolt", "ada")):
            session = memory.within(Scope(tenant, user=user)).session("s")
            session.append(Message("user", f"My parcel number is {tenant}-{user}."))
        memory.worker().drain()
        agent = Agent(ScriptedModel.repeat("ok"), "x", name="a", memory=memory)
        cases: tuple[tuple[str, Any, int, str | None], ...] = (
            (acme, None, 200, None),
            (acme, "", 200, None),
            (acme, "ada", 200, "acme-ada"),
            (acme, "bob", 200, "acme-bob"),
            (acme, "eve", 200, None),
            (acme, "ada/s", 422, None),
            (acme, 3, 422, None),
            (ada, None, 200, "acme-ada"),
            (ada, "ada", 200, "acme-ada"),
            (ada, "bob", 403, None),
            (bolt, "ada", 200, "bolt-ada"),
            (bolt, "bob", 200, None),
        )
        wrong = []
        with served(agent, access=Access(path)) as client:
            for token, user, status, found in cases:
                query = {"query": "parcel number", "agent": "a", "user": user}
                composed = {"base": {"agent": "a"}, "input": "parcel number", "recall": True, "user": user}
                for name, body in (("recall", query), ("compose", composed)):
                    answer = client.post(f"/inspector/api/{name}", body, token)
                    names = {owner for owner in ("acme-ada", "acme-bob", "bolt-ada") if owner in answer.text}
                    if answer.status_code != status or names != ({found} - {None}):
                        wrong.append((name, user, answer.status_code, names, answer.text[:200]))
            # The prompt of a new run that continues a session has the conversation of the session.
            for name, status in (("ada/s", 200), ("eve/s", 404)):
                body = {"base": {"agent": "a", "session": name}, "input": "And?", "recall": True, "user": "ada"}
                answer = client.post("/inspector/api/compose", body, acme)
                if answer.status_code != status or ("acme-ada" in answer.text) is not (status == 200):
                    wrong.append((name, answer.status_code, answer.text[:200]))
    assert wrong == []
