"""Tokens, tenants and their permissions: no caller reads, decides or uses data of another caller."""

from __future__ import annotations

import gc
import json
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any, NamedTuple

import openai
import pytest
import yaml

from agentkit import Agent, Message, Reply, ScriptedModel, ToolCall, Usage, tool
from agentkit.agent import tenant_agent
from agentkit.errors import AgentDefinitionError
from agentkit.memory import Memory, Scope
from agentkit.server import Access, Server, add_token
from agentkit.server.access import token_hash
from agentkit.server.owner import Owner
from agentkit.server.server_errors import AccessFileError, Conflict, ServerFull, UnknownResource
from agentkit.server.serving import uvicorn_server
from agentkit.server.session_store import SessionStore
from tests.raising import raises
from tests.server.serving_agents import ended, served
from tests.waiting import until

HI: Any = [{"role": "user", "content": "Hi"}]


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def paying() -> Agent[Any, Any]:
    wants = Message("assistant", tool_calls=(ToolCall("c1", "pay", '{"amount": 3}'),))
    return Agent(ScriptedModel.repeat(wants, "Paid."), tools=[pay], name="cashier")


def tokens(path: Path, **scopes: tuple[Any, ...]) -> dict[str, str]:
    """Make an access file with a token per tenant."""
    return {tenant: add_token(path, f"t-{tenant}", tenant, scopes=given) for tenant, given in scopes.items()}


ALL: Any = ("run", "read", "approve", "metrics")


def test_two_tenants_with_sessions_of_the_same_name_are_separate(tmp_path: Path) -> None:
    own = tokens(tmp_path / "access.yaml", acme=ALL, bolt=ALL)
    model = ScriptedModel.repeat("Noted.")
    with Memory(tmp_path / "home") as memory:
        agent = Agent(model, "You note.", name="notes", memory=memory)
        with served(agent, access=Access(tmp_path / "access.yaml")) as client:
            for tenant, text in (("acme", "The code is 4711."), ("bolt", "What is the code?")):
                run = client.post("/runs", {"agent": "notes", "input": text, "session": "main"}, own[tenant]).json()
                assert ended(client, run["id"], own[tenant])["status"] == "finished"
            asked = "\n".join(message.text for message in model.requests[-1].messages)
            assert "4711" not in asked and "What is the code?" in asked
            messages = client.get("/sessions/main/messages", own["bolt"]).json()["messages"]
            assert [one["content"] for one in messages] == ["What is the code?", "Noted."]
            assert client.get("/sessions", own["acme"]).json()["sessions"][0]["messages"] == 2
            assert client.delete("/sessions/main", own["bolt"]).status_code == 204
            assert client.get("/sessions/main", own["bolt"]).status_code == 404
            assert client.get("/sessions/main", own["acme"]).status_code == 200
            done = client.openai(own["bolt"]).chat.completions.create(model="notes", messages=HI)
            assert done.choices and "4711" not in "".join(one.text for one in model.requests[-1].messages)


def test_callers_without_tokens_belong_to_the_tenant_of_the_memory_of_the_agents(tmp_path: Path) -> None:
    model = ScriptedModel.repeat("Noted.")
    with Memory(tmp_path / "home", scope="acme") as memory:
        memory.documents.add("The code of the gate is 4711.", source="gate.md")
        with served(Agent(model, "You note.", name="notes", memory=memory)) as client:
            client.openai().chat.completions.create(
                model="notes", messages=[{"role": "user", "content": "What is the code of the gate?"}]
            )
        assert "4711" in model.requests[-1].text
        others = Agent(model, name="others", memory=memory.within(Scope("bolt")))
        agent = Agent(model, name="notes", memory=memory)
        with raises(AgentDefinitionError, name="tenant", value="acme"):
            Server([agent, others])
        with raises(AgentDefinitionError, name="tenant", value="local"):
            Server([agent], access=Access())
        with raises(
            AgentDefinitionError,
            name="memory",
            value="adas has Scope(tenant='acme', user='ada', session='', agent='')",
        ):
            Server([Agent(model, name="adas", memory=memory.within(Scope("acme", user="ada")))])


THEIRS = [
    ("GET", "/runs/{}"),
    ("GET", "/runs/{}/events"),
    ("GET", "/runs/{}/journal"),
    ("POST", "/runs/{}/decisions"),
    ("POST", "/runs/{}/cancel"),
    ("DELETE", "/runs/{}"),
    ("GET", "/inspector/api/run?id={}"),
]


def test_the_run_of_another_tenant_is_not_found(tmp_path: Path) -> None:
    own = tokens(tmp_path / "access.yaml", acme=ALL, bolt=ALL)
    with served(paying(), access=Access(tmp_path / "access.yaml")) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay 3."}, own["acme"]).json()["id"]
        assert ended(client, run, own["acme"])["status"] == "waiting"
        body = {"decisions": {"c1": {"approve": True}}}
        headers = {"Authorization": f"Bearer {own['bolt']}"}
        for method, path in THEIRS:
            theirs, nothing = (
                client.http.request(method, path.format(name), headers=headers, json=body if "dec" in path else None)
                for name in (run, "nothing")
            )
            assert theirs.status_code == nothing.status_code == 404
            assert theirs.text == nothing.text.replace("nothing", run)
        assert client.get("/runs", own["bolt"]).json() == {"runs": []}
        assert client.get(f"/runs/{run}", own["acme"]).json()["status"] == "waiting"


def test_a_user_of_a_tenant_has_separate_sessions_runs_and_responses(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    all_users = add_token(path, "t", "acme", scopes=ALL)
    ada, bob = (add_token(path, name, "acme", scopes=ALL, user=name) for name in ("ada", "bob"))
    with served(Agent(ScriptedModel.repeat("Hm."), name="a"), access=Access(path)) as client:
        for token, text in ((all_users, "of the tenant"), (ada, "of ada"), (bob, "of bob")):
            for turn in ("first", "second"):
                body = {"agent": "a", "input": f"{turn} {text}", "session": "main"}
                run = client.post("/runs", body, token).json()["id"]
                assert ended(client, run, token)["status"] == "finished"
                if token == ada:
                    of_ada = run
        for token, name in ((ada, "main"), (all_users, "ada/main")):
            seen = client.post("/inspector/api/compose", {"base": {"run": of_ada}}, token).text
            assert "first of ada" in seen and "of bob" not in seen and "of the tenant" not in seen
            assert client.get(f"/inspector/api/run?id={of_ada}", token).json()["session"] == name
            turns = client.get(f"/inspector/api/session?name={name}", token).text
            assert "second of ada" in turns and "of bob" not in turns and "of the tenant" not in turns
            listed = client.get("/inspector/api/overview", token).json()["sessions"]
            assert listed == (["main"] if token == ada else ["bob/main", "ada/main", "main"])  # used last, first
        for name in ("ada/main", "/main", "x/ada/main"):
            assert client.get(f"/inspector/api/session?name={name}", bob).status_code == 404
        assert client.get("/inspector/api/session?name=x/ada/main", all_users).status_code == 404
        body = {"agent": "a", "input": "third", "session": "ada/main"}
        assert client.post("/inspector/api/start", body, bob).status_code == 403
        run = client.post("/inspector/api/start", body, all_users).json()["run"]
        assert ended(client, run, ada)["user"] == "ada"
        response = client.openai(ada).responses.create(model="a", input="secret")
        for token, user in ((bob, None), (all_users, None), (all_users, "bob")):
            with pytest.raises(openai.NotFoundError):
                more: Any = {} if user is None else {"user": user}
                client.openai(token).responses.create(model="a", input="x", previous_response_id=response.id, **more)
        again = client.openai(all_users).responses.create(
            model="a", input="x", previous_response_id=response.id, user="ada"
        )
        assert again.output_text == "Hm."


def test_the_inspector_without_tokens_lists_the_present_sessions_of_all_users(tmp_path: Path) -> None:
    with Memory(tmp_path / "home") as memory:
        agent = Agent(ScriptedModel.repeat("Hm."), name="a", memory=memory)
        with served(agent) as client:

            def seen(name: str) -> list[str]:
                answer = client.get(f"/inspector/api/session?name={name}")
                if answer.status_code == 404:
                    return []
                assert answer.json()["session"] == name  # the page requests its turns with this key
                return [turn["input"] for turn in answer.json()["turns"]]

            memory.within("bolt").session("theirs").append(Message("user", "x"))
            memory.within(Scope("local", agent="a")).session("of one agent").append(Message("user", "x"))
            memory.within(Scope("local", user="ada")).session("main").append(Message("user", "first"), key="k")
            mine = memory.session("main")
            mine.append(Message("user", "hello"))
            assert client.get("/inspector/api/overview").json()["sessions"] == ["local/main", "ada/main"]
            assert [seen(name) for name in ("local/main", "ada/main", "bob/main", "main")] == [
                ["hello"],
                ["first"],
                [],
                [],
            ]
            mine.append(Message("assistant", "hm"), Message("user", "again"))
            assert seen("local/main") == ["hello", "again"]
            mine.redact(1)
            assert seen("local/main") == ["[redacted]", "again"]
            mine.rewind(1)
            assert seen("local/main") == ["[redacted]"]
            memory.delete_session("main")
            assert seen("local/main") == []
            memory.session("main").append(Message("user", "another"))
            assert seen("local/main") == ["another"]
            for number in range(10):  # more sessions than stay open
                memory.session(f"s{number}").append(Message("user", f"of {number}"))
            assert [seen(f"local/s{number}") for number in range(10)] == [[f"of {number}"] for number in range(10)]


def test_a_response_of_another_tenant_is_not_found(tmp_path: Path) -> None:
    own = tokens(tmp_path / "access.yaml", acme=ALL, bolt=ALL)
    with served(Agent(ScriptedModel.repeat("Hm."), name="a"), access=Access(tmp_path / "access.yaml")) as client:
        first = client.openai(own["acme"]).responses.create(model="a", input="secret")
        with pytest.raises(openai.NotFoundError):
            client.openai(own["bolt"]).responses.create(model="a", input="x", previous_response_id=first.id)


def test_a_client_cannot_continue_the_tools_of_another_client(tmp_path: Path) -> None:
    """A call id that was guessed or observed gives no access to the other conversation."""
    own = tokens(tmp_path / "access.yaml", acme=ALL, bolt=ALL)
    model = ScriptedModel.repeat(Message("assistant", "secret plan", tool_calls=(ToolCall("c", "look", "{}"),)))
    look: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    with served(Agent(model, name="a"), access=Access(tmp_path / "access.yaml")) as client:
        done = client.openai(own["acme"]).chat.completions.create(model="a", messages=HI, tools=[look])
        asked: Any = done.choices[0].message
        stolen = {"role": "assistant", "content": None, "tool_calls": [asked.tool_calls[0].model_dump()]}
        result = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "x"}
        given: Any = [*HI, stolen, result]
        client.openai(own["bolt"]).chat.completions.create(model="a", messages=given, tools=[look])
        assert "secret plan" not in "".join(one.text for one in model.requests[-1].messages)


def test_a_request_without_a_valid_token_is_refused(tmp_path: Path) -> None:
    tokens(tmp_path / "access.yaml", acme=ALL)
    wrong = ("", "Bearer", "Basic eDp5", "Bearer ak_nothing", "Bearer " + "x" * 100_000, "ak_x", "Bearer \xff")
    with served(paying(), access=Access(tmp_path / "access.yaml")) as client:
        for sent in [{}, *[{"Authorization": header.encode("latin-1")} for header in wrong]]:
            answer = client.http.get("/runs", headers=sent)
            assert answer.status_code in (401, 400)  # a header of 100 kB is refused before it is read
        assert client.http.get("/healthz").status_code == client.http.get("/readyz").status_code == 200


def test_each_action_needs_its_scope(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    own = tokens(path, acme=("run", "read"))
    reads = add_token(path, "reader", "acme", scopes=("read",))
    with served(paying(), access=Access(path)) as client:
        run = client.post("/runs", {"agent": "cashier", "input": "Pay 3."}, own["acme"]).json()["id"]
        ended(client, run, own["acme"])
        decided = client.post(f"/runs/{run}/decisions", {"decisions": {"c1": {"approve": True}}}, own["acme"])
        assert (decided.status_code, decided.json()["error"]["code"]) == (403, "missing_scope")
        assert client.get("/metrics", own["acme"]).status_code == 403
        assert client.post("/runs", {"agent": "cashier", "input": "Pay 3."}, reads).status_code == 403
        with pytest.raises(openai.PermissionDeniedError):
            client.openai(reads).chat.completions.create(model="cashier", messages=HI)
        assert client.get(f"/runs/{run}", reads).status_code == 200


def test_a_token_of_a_user_acts_as_that_user_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    own = tokens(path, acme=ALL)
    ada = add_token(path, "ada", "acme", scopes=ALL, user="ada")
    with served(Agent(ScriptedModel.repeat("Hm."), name="a"), access=Access(path)) as client:
        whole = client.post("/runs", {"agent": "a", "input": "x"}, own["acme"]).json()["id"]
        hers = client.post("/runs", {"agent": "a", "input": "x", "session": "s"}, ada).json()
        assert hers["user"] == "ada"
        assert client.get(f"/runs/{whole}", ada).status_code == 404
        assert [run["id"] for run in client.get("/runs", ada).json()["runs"]] == [hers["id"]]
        assert client.post("/runs", {"agent": "a", "input": "x", "user": "bob"}, ada).status_code == 403
        assert client.get("/sessions?user=bob", ada).status_code == 403
        ended(client, hers["id"], ada)
        assert [one["name"] for one in client.get("/sessions", ada).json()["sessions"]] == ["s"]
        assert client.get("/sessions", own["acme"]).json() == {"sessions": []}
        assert [one["name"] for one in client.get("/sessions?user=ada", own["acme"]).json()["sessions"]] == ["s"]


def test_a_token_for_some_agents_lists_no_other_agents(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    token = add_token(path, "t", "acme", scopes=ALL)
    path.write_text(path.read_text().replace("    scopes", "    agents: [a]\n    scopes"))
    agents = [Agent(ScriptedModel.repeat("Hm."), name=name) for name in ("a", "b")]
    with served(*agents, access=Access(path)) as client:
        assert [one.id for one in client.openai(token).models.list()] == ["a"]
        assert client.get("/agents/b/schema", token).status_code == 404
        assert client.post("/runs", {"agent": "b", "input": "x"}, token).status_code == 404
        every = add_token(path, "every", "acme", scopes=ALL)
        until(lambda: client.get("/agents/b", every).status_code == 200)
        response = client.openai(every).responses.create(model="b", input="secret")
        with pytest.raises(openai.NotFoundError):
            client.openai(token).responses.create(model="a", input="x", previous_response_id=response.id)


def test_a_removed_token_stops_working_also_in_an_invalid_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access.yaml"
    own = tokens(path, acme=ALL, bolt=ALL)
    with served(paying(), access=Access(path)) as client:
        assert client.get("/runs", own["bolt"]).status_code == 200
        good = path.read_text()
        path.write_text(f"{good}oops: [")
        until(lambda: [client.get(path, own["bolt"]).status_code for path in ("/runs", "/readyz")] == [200, 503])
        warnings = [record for record in caplog.records if "access file is invalid" in record.getMessage()]
        assert len(warnings) == 1 and "access.yaml" in warnings[0].getMessage()
        hash = next(token["sha256"] for token in yaml.safe_load(good)["tokens"] if token["tenant"] == "bolt")
        path.write_text(f"{good.replace('sha256: ' + json.dumps(hash), '# ' + hash)}oops: [")
        until(lambda: client.get("/runs", own["bolt"]).status_code == 401)
        assert [client.get(path, own["acme"]).status_code for path in ("/runs", "/readyz")] == [200, 503]
        kept = [token for token in yaml.safe_load(good)["tokens"] if token["tenant"] == "acme"]
        path.write_text(json.dumps({"tokens": kept}))
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/runs", own["acme"]).status_code == 200


def test_the_file_contains_hashes_and_is_private_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    token = add_token(path, "ci", "acme")
    assert token not in path.read_text() and token_hash(token) in path.read_text()
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0
    with raises(AccessFileError, path=str(path), line=None, name="ci"):
        add_token(path, "ci", "acme")
    with raises(AccessFileError, path=str(path), line=None, name="name"):
        add_token(path, "c i", "acme")
    path.write_text("tokens:\n  - name: x\n    sha256: short\n    tenant: acme\n    scope: [run]\n")
    with pytest.raises(AccessFileError) as caught:
        Access(path)
    assert "line 3: tokens[0].sha256" in str(caught.value) and "did you mean 'scopes'" in str(caught.value)
    # The problems of the file, at the lines that its owner sees, before problems of the new token.
    with pytest.raises(AccessFileError) as refused:
        add_token(path, "x", "acme")
    assert str(refused.value) == str(caught.value)
    path.write_text("# none\ntokens: []\n")
    with raises(AccessFileError, path=str(path), line=2, name="tokens"):
        add_token(path, "x", "acme")


def test_quotas_limits_and_usage_apply_to_each_tenant(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    own = tokens(path, acme=ALL, bolt=ALL)
    path.write_text("tenants:\n  acme: {tokens_per_day: 100}\n  bolt: {requests_per_minute: 1}\n" + path.read_text())
    model = ScriptedModel.repeat(Reply(Message("assistant", "Hm."), Usage(50, 10, 5, 0.25)))
    with served(Agent(model, name="a"), access=Access(path)) as client:
        acme = client.openai(own["acme"])
        for _ in range(2):
            acme.chat.completions.create(model="a", messages=HI)
        with pytest.raises(openai.RateLimitError) as caught:
            acme.chat.completions.create(model="a", messages=HI)
        assert caught.value.code == "insufficient_quota" and "120 of its 100 tokens" in str(caught.value)
        assert client.post("/runs", {"agent": "a", "input": "x"}, own["acme"]).status_code == 429
        day = client.get("/usage", own["acme"]).json()["days"][0]
        assert (day["runs"], day["input_tokens"], day["output_tokens"], day["money"]) == (2, 100, 20, 0.5)
        assert client.get("/usage", own["bolt"]).json()["days"] == []
        answers = [client.get("/v1/models", own["bolt"]) for _ in range(3)]
        assert answers[-1].status_code == 429 and int(answers[-1].headers["retry-after"]) >= 1


def test_without_tokens_only_this_machine_is_served_under_its_names() -> None:
    agent = paying()
    with served(agent) as client:
        # The check of the port, which listens for a moment, comes second.
        for port in (0, client.port):
            with raises(AgentDefinitionError, name="host", value="0.0.0.0"):
                uvicorn_server(Server([agent]), host="0.0.0.0", port=port)
        assert client.get("/runs").status_code == 200
        assert client.http.get("/runs", headers={"Host": "evil.example.com"}).status_code == 403
        assert client.http.get("/runs", headers={"Host": f"localhost:{client.port}"}).status_code == 200


def test_a_web_page_cannot_send_requests(tmp_path: Path) -> None:
    with served(paying()) as client:
        form = client.http.post(
            "/runs", content='{"agent": "cashier", "input": "x"}', headers={"Content-Type": "text/plain"}
        )
        assert form.status_code == 415
        asked = client.http.options(
            "/runs", headers={"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        )
        assert "access-control-allow-origin" not in asked.headers
        assert (
            "access-control-allow-origin"
            not in client.http.get("/agents", headers={"Origin": "https://a.example"}).headers
        )


def test_agents_of_one_server_share_one_store(tmp_path: Path) -> None:
    with Memory(tmp_path / "a", scope=Scope("local")) as one, Memory(tmp_path / "b") as other:
        agents = [Agent(ScriptedModel([]), name=f"a{at}", memory=memory) for at, memory in enumerate((one, other))]
        with raises(AgentDefinitionError, name="memory"):
            Server(agents)
    with raises(AgentDefinitionError, name="agents", value="a0"):
        Server([Agent(ScriptedModel([]), name="a0"), Agent(ScriptedModel([]), name="a0")])


def test_a_fork_has_the_kwargs_of_its_source_and_counts_as_a_conversation(tmp_path: Path) -> None:
    owner = Owner("acme", "ada")
    with Memory(tmp_path / "home") as memory:
        for store in (SessionStore(memory, 2), SessionStore(None, 2)):
            session: Any = store.open(owner, "one")
            session.append(Message("user", "Hi"), Message("assistant", "Hello"))
            session.keep_kwargs({"tier": "gold"})
            assert store.fork(owner, "one", "two", 2).messages == 2
            forked: Any = store.open(owner, "two")
            assert dict(forked.additional_kwargs) == {"tier": "gold"}
    with raises(ServerFull, status=503, code="too_many_sessions"):
        store.fork(owner, "one", "three", None)


def at_once(*calls: Callable[[], object]) -> list[BaseException | None]:
    """Return the errors of calls that start at the same time in threads."""
    barrier = Barrier(len(calls))

    def outcome(call: Callable[[], object]) -> BaseException | None:
        barrier.wait()
        try:
            call()
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(len(calls)) as threads:
        return [*threads.map(outcome, calls)]


def test_of_simultaneous_forks_with_the_same_name_one_succeeds_and_messages_are_not_mixed(tmp_path: Path) -> None:
    owner, names = Owner("acme", "ada"), ("a", "b", "c", "d")
    with Memory(tmp_path / "home") as memory:
        for store in (SessionStore(memory, 500), SessionStore(None, 500)):
            for name in names:
                store.open(owner, name).append(Message("user", name), Message("assistant", name))
            for number in range(10):
                errors = at_once(*[partial(store.fork, owner, name, f"fork{number}", None) for name in names])
                assert [error for error in errors if error is not None and not isinstance(error, Conflict)] == []
                winner = names[errors.index(None)]
                texts = [row.message.text for row in store.messages(owner, f"fork{number}")]
                assert errors.count(None) == 1 and texts == [winner, winner]


def test_no_token_is_lost_if_tokens_are_added_at_once(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    names = [f"t{number}" for number in range(8)]
    assert at_once(*[partial(add_token, path, name, "acme") for name in names]) == [None] * 8
    assert sorted([caller.name for caller in Access(path).callers]) == names
    with raises(AccessFileError):
        add_token(tmp_path, "t", "acme")
    assert not tmp_path.with_name(f"{tmp_path.name}.lock").exists()


@pytest.mark.long
def test_a_deleted_conversation_does_not_stay_open_for_readers(tmp_path: Path) -> None:
    owner = Owner("acme", "ada")
    with Memory(tmp_path / "home") as memory:
        store = SessionStore(memory, 2)
        own = memory.within(Scope("acme", user="ada"))
        for delete in (partial(store.delete, owner), own.delete_session):
            store.open(owner, "one").append(Message("user", "Hi"))
            opened = weakref.ref(store.read(owner, "one"))
            assert store.read(owner, "one") is opened()  # it is not read again
            delete("one")
            with pytest.raises(UnknownResource):
                store.read(owner, "one")
            gc.collect()
            assert opened() is None


def test_a_conversation_deleted_by_another_process_is_closed_at_the_next_read(tmp_path: Path) -> None:
    owner = Owner("acme", "ada")
    with Memory(tmp_path / "home") as memory, Memory(tmp_path / "home", scope=Scope("acme")) as elsewhere:
        store = SessionStore(memory, 2)
        for name in ("one", "two", "three"):
            store.open(owner, name).append(Message("user", "Hi"))
        opened, kept = [weakref.ref(store.read(owner, name)) for name in ("one", "two")]
        elsewhere.within(Scope("acme", user="ada")).delete_session("one")
        store.read(owner, "three")
        gc.collect()
        assert opened() is None and kept() is not None


def test_messages_to_an_agent_without_memory_are_recalled_only_for_the_same_tenant_and_user(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    tokens = {
        name: add_token(file, name, whose[0], user=whose[1])
        for name, *whose in (("ada", "acme", "ada"), ("eve", "evil", "ada"))
    }
    with Memory(tmp_path / "home") as memory:
        plain = Agent(ScriptedModel.repeat("Noted."), name="plain")
        with served(plain, memory=memory, access=Access(file)) as client:
            asked = {"agent": "plain", "input": "My barn owl is called Xanthippe.", "session": "s"}
            ended(client, client.post("/runs", asked, tokens["ada"]).json()["id"], tokens["ada"])
            assert client.get("/sessions/s", tokens["eve"]).status_code == 404

        def found(scope: Scope) -> str:
            return " ".join([one.text for one in memory.within(scope).recall("What is my barn owl called?")])

        assert "Xanthippe" in found(Scope("acme", user="ada"))
        for other in (Scope("acme"), Scope("acme", user="bob"), Scope("evil", user="ada"), Scope("local")):
            assert found(other) == "", other


def test_agents_are_bound_to_tenants_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bound(NamedTuple):
        tenant: str

    class Tenant(str):
        """A name whose second hash of a look-up lets another thread fill the cache of tenants."""

        __slots__ = ("hashes",)

        def __hash__(self) -> int:
            self.hashes = getattr(self, "hashes", 0) + 1
            if self.hashes == 2:
                thread = Thread(target=lambda: [agents.get(agent, name) for name in ("b", "c")])
                thread.start()
                # A lock keeps the other thread out until this look-up has ended.
                thread.join(0.1)
                threads.append(thread)
            return super().__hash__()

    monkeypatch.setattr(tenant_agent, "_MAX_BOUND", 2)
    monkeypatch.setattr(tenant_agent, "agent_of_tenant", lambda agent, tenant: Bound(str(tenant)))
    agent, agents, threads = paying(), tenant_agent.BoundAgents(), list[Thread]()
    bound: Any = agents.get(agent, "a")
    assert agents.get(agent, Tenant("a")) is bound
    (thread,) = threads
    thread.join()
    assert agents.get(agent, "a") == bound and agents.get(agent, "a") is not bound
