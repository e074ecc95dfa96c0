"""Tags of a run: an option of a run, a field of each endpoint, stored with the run, and a filter of lists."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from agentkit import Agent, Journal, ScriptedModel, ToolCall
from agentkit.cli.app import app
from agentkit.errors import AgentDefinitionError
from agentkit.inspector import LocalSource
from agentkit.runs.run_record import RunsWanted
from tests.raising import raises
from tests.server.serving_agents import ended, served

INVALID: tuple[Any, ...] = (["a", ""], [" a"], ["a\n"], ["a\0"], ["\ud800"], ["a\u200b"], ["x" * 101], [3], [None])


def desk(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel.repeat(*(replies or ("ok",))), "x", name="desk", **options)


def test_tags_of_a_run_are_in_its_journal_and_in_no_prompt(tmp_path: Path) -> None:
    agent = desk()
    inner = desk()
    outer = desk(
        ToolCall(name="ask", arguments={"input": "Hi"}), "ok", tools=[inner.as_tool(name="ask", description="Asks.")]
    )
    file = tmp_path / "run.journal"
    for run in (agent, outer):
        file.unlink(missing_ok=True)
        journal = run.run_sync("Hi", tags=(name for name in ("vip", "Straße", "vip", "a,b")), journal=file).journal
        assert journal.tags == journal.copy().tags == Journal.read(file).tags == ("vip", "Straße", "a,b")
        assert all(each.tags == () for each in journal.inner.values())
    assert "vip" not in str(agent.chain.model.requests[-1].messages)  # type: ignore[attr-defined]
    assert '"tags"' not in agent.run_sync("Hi").journal.dumps()
    for tags in ("vip", b"vip", 3, None, *INVALID, [f"t{at}" for at in range(51)]):
        with raises(AgentDefinitionError):
            agent.run_sync("Hi", tags=tags)
    with raises(AgentDefinitionError, name="tags[0], tags[2]"):
        agent.run_sync("Hi", tags=["", "a", " b"])


def test_every_endpoint_accepts_tags_and_lists_filter_by_them() -> None:
    ag_ui = {
        **{"threadId": "t", "runId": "r", "state": None, "tools": [], "context": []},
        "messages": [{"id": "1", "role": "user", "content": "Hi"}],
    }
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"model": "desk", "messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/responses", {"model": "desk", "input": "Hi"}),
        ("/runs", {"agent": "desk", "input": "Hi"}),
        ("/agents/desk/ag-ui", ag_ui),
        ("/inspector/api/start", {"agent": "desk", "input": "Hi"}),
    ]
    wrong: list[Any] = []
    with served(desk()) as client:
        for at, (address, body) in enumerate(bodies):
            for tags in (["all", f"only-{at}", "all"], None, *INVALID, "all"):
                fields: dict[str, Any] = {} if tags is None else {"tags": tags}
                if address.endswith("ag-ui"):
                    fields = {"forwardedProps": fields}
                content = json.dumps({**body, **fields})
                answer = client.http.post(address, content=content, headers={"Content-Type": "application/json"})
                is_valid = tags is None or tags[-1:] == ["all"]
                if (answer.status_code in (200, 202)) is not is_valid or answer.status_code >= 500:
                    wrong.append((address, tags, answer.text))
        for run in client.get("/runs").json()["runs"]:
            ended(client, run["id"])
        lists: dict[str, int] = {"all": 5, "ALL": 0, "al": 0, "only-3": 1, "only-%": 0, "only_3": 0, "": 10}
        for tag, count in lists.items():
            answers = [client.get(path, params={"tag": tag}) for path in ("/runs", "/inspector/api/runs")]
            if [len(answer.json()["runs"]) for answer in answers] != [count] * 2:
                wrong.append((tag, [answer.text for answer in answers]))
        for path in ("/runs", "/inspector/api/runs"):
            (row,) = client.get(path, params={"tag": "only-2"}).json()["runs"]
            assert row["tags"] == ["all", "only-2"], row
        orders = ("newest", "longest", "tokens", "cost")
        found = [client.get("/inspector/api/runs", params={"tag": "all", "order": order}) for order in orders]
        assert [len(answer.json()["runs"]) for answer in found] == [5] * 4
        assert len(client.get("/inspector/api/runs", params={"text": "ONLY-4"}).json()["runs"]) == 1
        # Tags are a part of the run that a key identifies.
        headers, statuses = {"Idempotency-Key": "k"}, []
        for tags in (["a"], ["a"], ["b"]):
            statuses.append(client.http.post("/runs", json={**bodies[2][1], "tags": tags}, headers=headers).status_code)
        assert statuses == [202, 202, 409]
    assert wrong == []


def test_the_command_stores_tags_in_the_journal(tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(app, [*words])

    file, home = str(tmp_path / "run.journal"), str(tmp_path / "home")
    words = ("run", "Hi", "--model", "offline", "--home", home, "--journal", file)
    assert run(*words, "--tag", "vip", "--tag", "de").exit_code == 0
    journal = Journal.read(file)
    assert journal.tags == ("vip", "de")
    assert run("run", "--resume", file, "--tag", "x", "--home", home).exit_code == 2
    assert run(*words[:-2], "--tag", "").exit_code == 1
    source = LocalSource(runs=[journal])
    for tag, count in (("vip", 1), ("other", 0), (None, 1)):
        assert len(asyncio.run(source.runs(RunsWanted(tag=tag))).runs) == count
