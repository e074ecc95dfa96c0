"""Deps and tools of a server act for the caller that the server verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, RunCaller, ScriptedModel, ToolContext, tool
from agentkit.agent_files import load_agent
from agentkit.errors import AgentDefinitionError
from agentkit.memory import Memory
from agentkit.server import Access, Server, add_token
from agentkit.server.server_errors import AccessFileError
from tests.raising import raises
from tests.runtime.scripts import calling
from tests.server.conftest import RunService
from tests.server.serving_agents import Client, ended, served


class Shop:
    def __init__(self, caller: RunCaller) -> None:
        permissions = "+".join(sorted(caller.permissions))
        kwargs = json.dumps(dict(caller.additional_kwargs))
        self.name = f"{caller.tenant}|{caller.user}|{caller.session}|{permissions}|{kwargs}|{caller.agent}"


@tool
def look(context: ToolContext[Shop]) -> str:
    """Look."""
    return f"{context.deps.name} {context.tenant}|{context.user}|{context.session}"


@tool(approval="always")
def pay(context: ToolContext[Shop]) -> str:
    """Pay."""
    return f"{context.deps.name} {context.tenant}|{context.user}|{context.session}"


def desk(*tools: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel.repeat(calling(tools[0].name), "ok"), "x", tools=list(tools), name="desk")


def seen(agent: Agent[Any, Any]) -> str:
    model: Any = agent.chain.model
    return str(model.requests[-1].messages[-1].text)


def test_deps_are_created_for_the_verified_caller_of_each_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    acme = add_token(path, "web", "acme", scopes=("run", "read"))
    ada = add_token(path, "ada", "acme", user="ada", scopes=("run", "read", "approve"))
    agent = desk(look)
    chat = {"model": "desk", "messages": [{"role": "user", "content": "Hi"}]}
    responses = {"model": "desk", "input": "Hi"}
    kwargs = {"additional_kwargs": {"shop": "z"}}
    run = {"agent": "desk", "input": "Hi"}
    ag_ui = {
        **{"threadId": "t", "runId": "r", "state": None, "tools": [], "context": []},
        "messages": [{"id": "1", "role": "user", "content": "Hi"}],
        "forwardedProps": {"user": "eve"},
    }
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("/v1/chat/completions", acme, chat, "acme|||read+run|{}|desk acme||"),
        ("/v1/chat/completions", acme, {**chat, "user": "bob"}, "acme|bob||read+run|{}|desk acme|bob|"),
        ("/v1/chat/completions", acme, {**chat, **kwargs}, 'acme|||read+run|{"shop": "z"}|desk acme||'),
        ("/v1/chat/completions", ada, chat, "acme|ada||approve+read+run|{}|desk acme|ada|"),
        (
            "/v1/responses",
            acme,
            {**responses, "user": "bob"},
            "acme|bob||read+run|{}|desk acme|bob|",
        ),
        ("/runs", acme, {**run, "user": "bob", "session": "s"}, "acme|bob|s|read+run|{}|desk acme|bob|s"),
        ("/runs", ada, {**run, **kwargs}, 'acme|ada||approve+read+run|{"shop": "z"}|desk acme|ada|'),
        ("/agents/desk/ag-ui", acme, ag_ui, "acme|eve||read+run|{}|desk acme|eve|"),
    ]
    with served(agent, deps=Shop, access=Access(path)) as client:
        for address, token, body, expected in cases:
            answer = client.post(address, body, token)
            assert answer.status_code in (200, 202), (address, answer.text)
            if address == "/runs":  # a run in the background
                ended(client, answer.json()["id"], token)
            assert seen(agent) == expected, (address, body)
        # A token of a user accepts no other user, and no run starts.
        before = len(agent.chain.model.requests)  # type: ignore[attr-defined]
        for address, body in (("/v1/chat/completions", {**chat, "user": "bob"}), ("/runs", {**run, "user": "bob"})):
            assert client.post(address, body, ada).status_code == 403
        assert len(agent.chain.model.requests) == before  # type: ignore[attr-defined]


def test_a_request_with_results_of_client_tools_has_no_session() -> None:
    """The conversation of such a request is a session of its run, which is not visible to clients and tools."""
    client_tool = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}
    agent = Agent(ScriptedModel([calling("theirs"), calling("look"), "ok"]), "x", tools=[look], name="desk")
    with served(agent, deps=Shop) as client:
        body = {"model": "desk", "user": "ada", "tools": [client_tool]}
        asked = [{"role": "user", "content": "Hi"}]
        reply = client.post("/v1/chat/completions", {**body, "messages": asked}).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}
        answer = client.post("/v1/chat/completions", {**body, "messages": [*asked, reply, result]})
        assert answer.status_code == 200, answer.text
    everything = "approve+metrics+play+read+run"
    assert seen(agent) == f"local|ada||{everything}|{{}}|desk local|ada|"


def test_a_token_can_belong_to_each_user_that_a_request_can_name(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    agent = Agent(ScriptedModel.repeat("ok"), "x", name="desk")
    users = ("auth0:17", "~ada", "=a+b", "@ada", "_", "a" * 128)
    tokens = {user: add_token(path, f"t{at}", "acme", user=user) for at, user in enumerate(users)}
    with served(agent, access=Access(path)) as client:
        for user, token in tokens.items():
            assert client.post("/runs", {"agent": "desk", "input": "Hi", "user": user}, token).status_code == 202, user
    # An empty name, such as of an empty variable of a shell, must not become a token of all users.
    for user in ("", " ", ".ada", "a|b", "a/b", "ada\n", "a" * 129):
        with raises(AccessFileError, path=str(path)):
            add_token(path, "other", "acme", user=user)


def test_a_run_that_waits_gets_new_deps_of_the_same_caller(run_service: RunService) -> None:
    agent = desk(pay)
    with run_service(agent, deps=Shop) as client:
        run = client.post("/runs", {"agent": "desk", "input": "Hi", "user": "ada", "session": "s"}).json()
        (call,) = ended(client, run["id"])["waiting"]
        client.post(f"/runs/{run['id']}/decisions", {"decisions": {call["id"]: {"approve": True}}})
        assert ended(client, run["id"])["status"] == "finished"
        everything = "approve+metrics+play+read+run"
        assert seen(agent) == f"local|ada|s|{everything}|{{}}|desk local|ada|s"


def test_a_server_without_the_deps_of_its_tools_does_not_start(tmp_path: Path) -> None:
    inner = desk(look).as_tool(name="ask", description="Asks.")
    middle = desk(inner).as_tool(name="ask", description="Asks.")
    for options in ({}, {"deps": "text"}, {"deps": lambda: 5}):
        for tool_with_deps in (look, inner, middle):
            with raises(AgentDefinitionError, name="deps"):
                Server([desk(tool_with_deps)], **options)
    (tmp_path / "shop.py").write_text("from tests.server.test_deps_of_callers import Shop, look\n")
    file = tmp_path / "desk.yaml"
    file.write_text("model: offline\ntools: [./shop.py:look]\n")
    with raises(AgentDefinitionError, name="deps"):
        Server([load_agent(file)])
    file.write_text("model: offline\ntools: [./shop.py:look]\ndeps: ./shop.py:Shop\n")
    assert Server([load_agent(file)]).agents
    file.write_text("model: offline\ntools: [./shop.py:look]\ndeps: ./shop.py:Shpo\n")
    with raises(AgentDefinitionError, name="deps", line=3):
        load_agent(file)


def test_deps_that_cannot_be_created_are_an_error_of_the_server(
    run_service: RunService, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(caller: RunCaller) -> Shop:
        if caller.user == "wrong":
            return 5  # type: ignore[return-value]
        raise ConnectionError("password=secret")

    agent = desk(look)
    with run_service(agent, deps=fails) as client:
        for user in ("ada", "wrong"):
            chat = {"model": "desk", "user": user, "messages": [{"role": "user", "content": "Hi"}]}
            answer = client.post("/v1/chat/completions", chat)
            run = ended(client, client.post("/runs", {"agent": "desk", "input": "Hi", "user": user}).json()["id"])
            assert answer.status_code == 500 and answer.json()["error"]["code"] == "deps_failed", (user, answer.text)
            assert run["status"] == "failed" and run["error"]["type"] == "DepsError", (user, run)
            for text in (answer.text, json.dumps(run)):
                assert "secret" not in text and "Shop" not in text, text
    assert not agent.chain.model.requests  # type: ignore[attr-defined]
    assert "password=secret" in caplog.text and "got int" in caplog.text


def test_a_user_or_a_session_with_an_invalid_name_is_refused_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A name with a separator could mean the user of another tenant, or the session of another user."""
    path = tmp_path / "access.yaml"
    acme = add_token(path, "web", "acme", scopes=("run", "read"))
    bolt = add_token(path, "shop", "bolt", scopes=("run", "read"))
    names = [
        "",
        " ",
        "a/b",
        "a\\b",
        "../ada",
        ".ada",
        "a b",
        "a\0b",
        "a\nb",
        "\x1b[31m",
        "acme|ada",
        "Zoë",
        "ada\u202e",
        "x" * 129,
    ]
    agent = Agent(ScriptedModel.repeat("ok"), "x", name="desk")
    chat = {"model": "desk", "messages": [{"role": "user", "content": "Hi"}]}
    run = {"agent": "desk", "input": "Hi"}
    ag_ui = {
        **{"threadId": "t", "runId": "r", "state": None, "tools": [], "context": []},
        "messages": [{"id": "1", "role": "user", "content": "Hi"}],
    }
    with served(agent, access=Access(path)) as client:
        for name in names:
            bodies: list[tuple[str, dict[str, Any]]] = [
                ("/v1/chat/completions", {**chat, "user": name}),
                ("/v1/responses", {"model": "desk", "input": "Hi", "user": name}),
                ("/runs", {**run, "user": name}),
                ("/runs", {**run, "session": name}),
                ("/sessions", {"name": name}),
                ("/sessions", {"name": "s", "user": name}),
                ("/agents/desk/ag-ui", {**ag_ui, "forwardedProps": {"user": name}}),
            ]
            for address, body in bodies:
                answer = client.post(address, body, acme)
                assert answer.status_code in (400, 422), (address, name, answer.text)
                assert answer.json()["error"]["code"] == "invalid_name", (address, name, answer.text)
        assert not agent.chain.model.requests  # type: ignore[attr-defined]
        assert not client.get("/runs", acme).json()["runs"] and not client.get("/sessions", acme).json()["sessions"]
        lines = [record.getMessage() for record in caplog.records]
        for address in ("/v1/chat/completions: 400", "/runs: 422", "/sessions: 422", "/agents/{agent}/ag-ui: 422"):
            assert any(f"refused POST {address} invalid_name" in line for line in lines), (address, lines)
        assert all("token web of tenant acme" in line and "\n" not in line for line in lines), lines
        # One line per second and kind, for any number of refused requests.
        assert len(lines) < len(names) * 7
        caplog.clear()
        other = client.post("/runs", run, acme).json()["id"]
        assert client.get(f"/runs/{other}", bolt).status_code == 404
        assert client.get(f"/runs/{other}", "ak_unknown").status_code == 401
        assert client.get(f"/runs/{other}").status_code == 401
        assert [record.getMessage() for record in caplog.records] == [
            "refused GET /runs/{run}: 404 run_not_found; token shop of tenant bolt",
            "refused GET /runs/{run}: 401 invalid_token",
            "refused GET /runs/{run}: 401 missing_token",
        ]
    caplog.clear()
    with served(agent) as client:  # no request has a token
        assert client.post("/runs", {**run, "agent": "dsk"}).status_code == 404
    assert [record.getMessage() for record in caplog.records] == ["refused POST /runs: 404 model_not_found ('agent')"]


def test_messages_without_a_user_are_recalled_in_their_own_session_only(tmp_path: Path) -> None:
    """The card number of a caller must not reach another caller."""
    path = tmp_path / "access.yaml"
    token = add_token(path, "web", "acme", scopes=("run", "read"))
    model = ScriptedModel.repeat("Noted.")
    with Memory(tmp_path / "home", scope="acme") as memory:
        memory.documents.add("The card number is on the back of the card.", source="help")
        memory.session("library").append({"role": "user", "content": "My card number is 5555."})
        agent = Agent(model, "x", name="desk", memory=memory)
        with served(agent, access=Access(path)) as client:
            _ask(client, token, "My card number is 4711.", session="mine")
            memory.worker().drain()
            for body in (
                {"session": "other"},
                {"session": "other", "user": "bob"},
                {},
                {"user": "bob"},
            ):
                _ask(client, token, "What is my card number?", **body)
                asked = "\n".join(message.text for message in model.requests[-1].messages)
                assert "4711" not in asked and "5555" not in asked and "back of the card" in asked, body
            chat = {"model": "desk", "messages": [{"role": "user", "content": "What is my card number?"}]}
            client.post("/v1/chat/completions", chat, token)
            assert "4711" not in "\n".join(message.text for message in model.requests[-1].messages)
            found = client.post("/inspector/api/recall", {"agent": "desk", "query": "card number"}, token).text
            assert "4711" not in found and "5555" not in found and "back of the card" in found
            _ask(client, token, "What is my card number?", user="local")
            assert "5555" in "\n".join(message.text for message in model.requests[-1].messages)
            # The session itself continues, and is listed, read, forked and deleted.
            _ask(client, token, "What is my card number?", session="mine")
            assert "4711" in "\n".join(message.text for message in model.requests[-1].messages)
            names = [each["name"] for each in client.get("/sessions", token).json()["sessions"]]
            assert "mine" in names and "other" in names and "library" not in names
            assert client.post("/sessions/mine/fork", {"name": "copy"}, token).status_code == 201
            assert client.get("/sessions/copy/messages", token).json()["messages"]
            assert client.delete("/sessions/mine", token).status_code == 204
            assert client.get("/sessions/mine", token).status_code == 404


def _ask(client: Client, token: str, text: str, **body: Any) -> None:
    run = client.post("/runs", {"agent": "desk", "input": text, **body}, token).json()
    assert ended(client, run["id"], token)["status"] == "finished"
