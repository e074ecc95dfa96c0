"""Agent files that change while a server runs."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentkit import Composition, Message, Reply, Runs, ScriptedModel, ToolCall
from agentkit.agent_files import SharedMemories, load_agent
from agentkit.server import Server
from agentkit.server.agent_reload import AgentReload
from tests.server.serving_agents import ended, served
from tests.waiting import eventually, until

FILE = "name: shop\nmodel: offline\nlayers: prompts\nmemory: true\ntools: [./tools.py:price]\n"
TOOL = 'def price() -> str:\n    """Tell the price."""\n    return "{}"\n'

ASKING = "from agentkit import tool\n\n\n@tool(approval='always')\n"


def test_a_changed_file_applies_to_the_next_run_and_an_invalid_file_changes_nothing(tmp_path: Path) -> None:
    file, prompt, tools = tmp_path / "agent.yaml", tmp_path / "prompts" / "system.prompt.j2", tmp_path / "tools.py"
    prompt.parent.mkdir()
    file.write_text(FILE)
    prompt.write_text("---\nrole: system\n---\nYou sell books.")
    prompt.with_name("found.prompt.j2").write_text("---\nrole: before_input\nkind: memo\n---\n")
    tools.write_text(TOOL.format("30"))
    asks = Message("assistant", tool_calls=(ToolCall("c", "price", "{}"),))
    model = ScriptedModel.repeat(asks, "Done.")
    memories = SharedMemories()
    load = partial(load_agent, model=model, memories=memories)
    reports: list[tuple[str, str | None]] = []
    reloading: list[AgentReload] = []

    def prepare(server: Server) -> None:
        reloading.append(AgentReload(server, load, lambda *report: reports.append(report)))

    with served(load(file), prepare=prepare) as client:

        def run_once() -> tuple[str, str]:
            run = client.post("/runs", {"agent": "shop", "input": "How much?", "session": "s"}).json()["id"]
            assert ended(client, run)["output"] == "Done."
            sent = model.requests[-1].messages
            return sent[0].text, sent[-1].text

        def written(path: Path, text: str) -> str | None:
            """Change a file, and return the next report."""
            count = len(reports)
            path.write_text(text)
            report: tuple[str, str | None] = until(lambda: reports[count:])[0]
            return report[1]

        assert run_once() == ("You sell books.", "30")
        assert written(prompt, "---\nrole: system\n---\nYou sell pens.") is None and run_once()[0] == "You sell pens."
        assert written(tools, TOOL.format("31")) is None and run_once() == ("You sell pens.", "31")
        for text, problem in (
            (FILE + "toolz: []\n", "agent.yaml, line 6: toolz: unknown key"),
            (FILE.replace("shop", "stall"), "no agent 'stall'"),
            (FILE.replace("memory: true", "memory: {home: other}"), "restart the server"),
        ):
            assert problem in str(written(file, text))
            assert run_once() == ("You sell pens.", "31")
        assert written(file, f"{FILE}instructions: Be brief.") is None and "Be brief." in run_once()[0]
        assert client.get("/sessions/s").json()["messages"] == 4 * 7
        assert [problem is None for _, problem in reports] == [True, True, False, False, False, True]
    reloading[0].close()
    memories.close()


@pytest.mark.long
def test_durable_runs_continue_with_the_present_version_of_the_agent(tmp_path: Path) -> None:
    file, tools = tmp_path / "agent.yaml", tmp_path / "tools.py"
    file.write_text("name: a\nmodel: offline\nmemory: true\ntools: [./tools.py:price]\n")
    tools.write_text(ASKING + TOOL.format("30"))
    model = ScriptedModel.repeat(Message("assistant", tool_calls=(ToolCall("c", "price", "{}"),)), "Done.")
    memories = SharedMemories()
    load = partial(load_agent, model=model, memories=memories)
    runs = Runs(f"sqlite:///{tmp_path / 'durable.db'}")
    reports: list[str | None] = []

    def prepare(server: Server) -> None:
        AgentReload(server, load, lambda _, problem: reports.append(problem))

    with served(load(file), prepare=prepare, runs=runs, version="reloaded") as client:

        def start_waiting() -> str:
            run: str = client.post("/runs", {"agent": "a", "input": "x"}).json()["id"]
            until(lambda: client.get(f"/runs/{run}").json()["status"] == "waiting")
            return run

        def paid(run: str) -> str:
            client.post(f"/runs/{run}/decisions", {"decisions": {"c": {"approve": True}}})
            assert ended(client, run)["output"] == "Done."
            return model.requests[-1].messages[-1].text

        waiting = start_waiting()
        tools.write_text(ASKING + TOOL.format("31"))
        assert until(lambda: reports) == [None]
        assert (paid(waiting), paid(start_waiting())) == ("31", "31")
    runs.close()
    memories.close()


def test_started_runs_end_with_the_agent_that_they_started_with(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("name: a\nmodel: offline\ninstructions: One.\n")
    goes_on = threading.Event()

    class Slow(ScriptedModel):
        async def request(self, composition: Composition, **options: Any) -> Reply:
            reply = await super().request(composition, **options)
            await eventually(goes_on.is_set)
            return reply

    model = Slow.repeat("Done.")
    memories = SharedMemories()
    load = partial(load_agent, model=model, memories=memories)
    reports: list[str | None] = []

    def prepare(server: Server) -> None:
        AgentReload(server, load, lambda _, problem: reports.append(problem))

    with served(load(file), prepare=prepare) as client:
        run = client.post("/runs", {"agent": "a", "input": "x"}).json()["id"]
        until(lambda: model.requests)
        file.write_text("name: a\nmodel: offline\ninstructions: Two.\n")
        assert until(lambda: reports) == [None]
        assert client.get(f"/runs/{run}").json()["status"] == "running"
        goes_on.set()
        assert ended(client, run)["output"] == "Done."
        assert model.requests[0].messages[0].text == "One."
