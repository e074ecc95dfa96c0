"""Two versions of an agent share the sessions of a server; each run records its version."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from agentkit import Agent, Composition, Memory, ScriptedModel
from agentkit.agent_files import LoadedAgent
from agentkit.errors import AgentDefinitionError
from agentkit.prompts import AdditionalInfoPrompt, Layers, Template
from agentkit.runs.run_store import RunStore
from agentkit.server import Server, Variant
from tests.raising import raises
from tests.server.conftest import RunService
from tests.server.serving_agents import Client, ended, served
from tests.waiting import until


def desk(text: str, **options: Any) -> Agent[Any, Any]:
    """Return an agent that answers with its system prompt."""
    model = ScriptedModel.repeat(lambda composition: composition.system.text)
    return Agent(model, text, name="desk", **options)


def outputs(client: Client, sessions: list[str | None]) -> list[str]:
    """Return the answers of a run in each session."""
    found = []
    for session in sessions:
        body = {"agent": "desk", "input": "Hi"} | ({} if session is None else {"session": session})
        done = ended(client, client.post("/runs", body).json()["id"])
        assert done["status"] == "finished", done
        found.append(done["output"])
    return found


def test_a_session_has_one_version_and_each_version_gets_its_share(run_service: RunService) -> None:
    names: list[str | None] = [f"s{number}" for number in range(6)]
    with run_service(desk("old"), variants=[Variant(desk("new"), 0.5)]) as client:
        first = outputs(client, names)
        assert first[:2] == outputs(client, names[:2]) and set(first) == {"old", "new"}
        versions = client.get("/agents/desk").json()["versions"]
        assert [each["share"] for each in versions] == [0.5, 0.5]
        found = Counter((run["version"], run["output"]) for run in client.get("/runs?limit=100").json()["runs"])
        by_output = {"old": versions[0]["version"], "new": versions[1]["version"]}
        assert set(found) == {(version, output) for output, version in by_output.items()}
        expected = {version: str(count) for (version, _), count in found.items()}

        def counted() -> bool:
            metrics = client.get("/metrics").text
            pattern = r'version_runs_total\{agent="desk",version="(\w+)",state="finished"\} (\d+)'
            return dict(re.findall(pattern, metrics)) == expected

        until(counted)


def test_requests_without_a_session_choose_by_user_or_by_run() -> None:
    store = RunStore()
    with served(desk("old"), store=store, variants=[Variant(desk("new"), 0.3), Variant(desk("newer"), 0.3)]) as client:
        user = [
            client.post(
                "/v1/chat/completions",
                {"model": "desk", "messages": [{"role": "user", "content": "Hi"}], "user": name},
            ).json()["choices"][0]["message"]["content"]
            for name in ["ann", "bob"] * 5
        ]
        assert len(set(user[::2])) == len(set(user[1::2])) == 1
        until(lambda: sum(use.runs for use in store.versions.uses()) == 10)
        requested = {use.parts["system"] for use in store.versions.uses()}
        assert set(store.versions.texts(requested).values()) == set(user)
        assert set(outputs(client, [None] * 40)) == {"old", "new", "newer"}
        # The texts of all versions are stored once, by their hash.
        uses = {use.version: use for use in store.versions.uses(agent="desk")}
        assert len(uses) == 3 and sum(use.runs for use in uses.values()) == 50 and not store.versions.uses("other")
        texts = store.versions.texts({hash for use in uses.values() for hash in use.parts.values()})
        assert {texts[use.parts["system"]] for use in uses.values()} == {"old", "new", "newer"}
        assert all(use.first <= use.last and use.failed == 0 for use in uses.values())


def test_a_run_is_stored_with_the_version_that_answered_if_the_agent_changes_meanwhile(tmp_path: Path) -> None:
    store = RunStore()
    servers: list[Server] = []
    with Memory(tmp_path / "memory") as memory:
        typed = Agent(ScriptedModel.repeat("5"), "new", output=int, name="desk", memory=memory)

        def reply(composition: Composition) -> str:
            servers[0].agents.replace(LoadedAgent(typed, ""))
            return composition.system.text

        old = Agent(ScriptedModel.repeat(reply), "old", name="desk", memory=memory)
        body = {"model": "desk", "messages": [{"role": "user", "content": "Hi"}]}
        with served(old, store=store, prepare=servers.append) as client:
            answer = client.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
            assert answer == "old"
            run = until(lambda: client.get("/runs").json()["runs"])[0]
            journal = store.journal(run["id"])
            assert journal is not None and run["version"] == journal.version == old.definition.version.id
            assert client.get("/agents/desk").json()["versions"][0]["version"] != run["version"]


def test_a_paused_run_continues_with_its_version() -> None:
    agents = Server([desk("old")], variants=[Variant(desk("new"), 0.5)]).agents
    from agentkit.server.owner import Owner

    owner = Owner("local", "")
    versions = [agents.version("desk", number).id for number in (0, 1)]
    numbers = {agents.number("desk", owner, None, f"r{at}") for at in range(20)}
    assert numbers == {0, 1}
    assert all(agents.number("desk", owner, None, f"r{at}", versions[at % 2]) == at % 2 for at in range(20))
    assert agents.number("desk", owner, None, "r1", "unknown") == agents.number("desk", owner, None, "r1")


def test_invalid_variants_are_refused() -> None:
    kwargs = Layers(AdditionalInfoPrompt(Template("{{ shop }}"), volatility="session"))
    with_kwargs = Agent(ScriptedModel.repeat("ok"), layers=kwargs, name="desk")
    other_name = Agent(ScriptedModel.repeat("ok"), "x", name="disk")
    cases: list[Any] = [
        [Variant(other_name, 0.5)],
        [Variant(with_kwargs, 0.5)],
        [Variant(desk("new"), 0.6), Variant(desk("newer"), 0.4)],
        *[[Variant(desk("new"), share)] for share in (0, 1, -0.1, float("nan"), True, "0.5")],
        [desk("new")],
        [Variant("new.yaml", 0.5)],  # type: ignore[arg-type]
    ]
    for variants in cases:
        with raises(AgentDefinitionError, name="variants"):
            Server([desk("old")], variants=variants)
    with raises(AgentDefinitionError):
        Server([desk("old")], variants=3)  # type: ignore[arg-type]
