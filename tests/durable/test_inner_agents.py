"""Agents that run as tools of a durable run are part of it, and continue, wait and end with it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, Approved, Composition, Message, Paused, Reply, Runs, ScriptedModel, ToolCall, Usage, tool
from agentkit.cli.app import app
from agentkit.durable import RunCancelled, RunIdTaken, RunNotFound, RunRecord
from agentkit.models import ModelUnavailable
from agentkit.runs.run_errors import AttemptEnded
from tests.raising import raises
from tests.waiting import LONG

Working = Callable[..., Runs]
TABLES = {"agentkit_runs": "run_id", "agentkit_journal_lines": "run", "workflow_status": "workflow_uuid"}
"""Rows with the ids of runs."""


def calling(*calls: tuple[str, str]) -> Reply:
    asked = [ToolCall(id, name, "{}" if name == "pay" else '{"input": "Go."}') for id, name in calls]
    return Reply(Message("assistant", tool_calls=tuple(asked)), Usage(10, 2))


class Firm:
    """A boss that calls two clerks at once, each of which calls a payer, and the list of the payments."""

    def __init__(self, *, approval: Any = "never", payer: Any = None, clerk: str = "clerk") -> None:
        self.paid: list[str] = []

        @tool(approval=approval)
        def pay() -> str:
            """Pay."""
            self.paid.append("paid")
            return "paid"

        def reply(*calls: tuple[str, str]) -> Any:
            def answer(sent: Composition) -> Reply:
                return Reply(Message("assistant", "Done."), Usage(10, 2)) if len(sent.intermediate) else calling(*calls)

            return ScriptedModel.repeat(answer)

        self.payer = Agent(payer or reply(("p", "pay")), tools=[pay], name="payer")
        pays = self.payer.as_tool(name="payer", description="Pays.")
        asked = Agent(reply(("c", "payer")), tools=[pays], name=clerk)
        clerks = [asked.as_tool(name=name, description="A clerk.") for name in ("ann", "bob")]
        self.boss = Agent(reply(("a ", "ann"), ("b\0", "bob")), tools=clerks, name="boss")


def rows(url: str, query: str) -> list[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        return database.execute(query).fetchall()


def known(found: list[RunRecord]) -> list[tuple[str, str | None, str]]:
    """Return inner agents with the agent of their outer run, and their states."""
    agents = {info.run_id: info.agent for info in found}
    return sorted((info.agent, agents.get(info.parent or "", info.parent), info.state) for info in found)


async def test_inner_agents_have_separate_records_and_journals(working: Working) -> None:
    firm = Firm()
    runs = working(firm.boss)
    handle = await firm.boss.start("Pay.", run_id="r", tenant="acme", user="ada")
    ended = await handle.result(timeout=LONG)
    assert (ended.output, firm.paid, ended.usage) == ("Done.", ["paid", "paid"], Usage(100, 20))
    found = await handle.inside()
    clerk = ("clerk", "r", "finished")
    assert known(found) == [clerk, clerk, ("payer", "clerk", "finished"), ("payer", "clerk", "finished")]
    assert {(info.tenant, info.user, info.error) for info in found} == {("acme", "ada", None)}
    assert [info.run_id for info in await runs.list_runs()] == ["r"]
    clerks = [info for info in found if info.agent == "clerk"]
    assert {info.run_id for info in clerks} == {one.run_id for one in ended.journal.inner.values()}
    assert sorted(ended.journal.inner) == ["a ", "b\0"]
    for info in clerks:
        clerk_handle = runs.handle(info.run_id)
        journal = await clerk_handle.journal()
        assert journal.dumps() in {one.dumps() for one in ended.journal.inner.values()}
        assert [message.role for message in journal.messages] == ["user", "assistant", "tool", "assistant"]
        assert await clerk_handle.info() == info
        assert [one.agent for one in await clerk_handle.inside()] == ["payer"]
        assert len([event async for event in clerk_handle.events(follow=True)]) == 3
        assert (await clerk_handle.trace())["name"] == "invoke_agent clerk"


async def test_inner_agents_wait_are_cancelled_and_continue_with_the_run(working: Working) -> None:
    firm = Firm(approval="always")
    runs = working(firm.boss)
    handle = await firm.boss.start("Pay.", run_id="r")
    with pytest.raises(Paused) as paused:
        await handle.result(timeout=LONG)
    assert sorted(call.id for call in paused.value.calls) == ["a /c/p", "b\0/c/p"]
    before = await handle.inside()
    assert {info.state for info in before} == {"waiting"} and len(before) == 4
    inner = runs.handle(before[0].run_id)
    for refused in (inner.approve(), inner.cancel(), inner.resume(), inner.result(), inner.decided()):
        with raises(RunNotFound, around="r"):
            await refused
    with raises(RunNotFound, around="r"):
        await runs.delete([inner.run_id])
    with pytest.raises(RunIdTaken):
        await firm.boss.start("Pay.", run_id=inner.run_id)
    await handle.cancel()
    with pytest.raises(RunCancelled):
        await handle.result(timeout=LONG)
    assert {info.state for info in await handle.inside()} == {"cancelled"}
    await handle.resume()
    with pytest.raises(Paused):
        await handle.result(timeout=LONG)
    await handle.approve("b\0/c/p", by="ada")
    await handle.deny("a /c/p")
    ended = await handle.result(timeout=LONG)
    assert firm.paid == ["paid"]
    assert [info.run_id for info in await handle.inside()] == [info.run_id for info in before]
    assert {info.state for info in await handle.inside()} == {"finished"}
    assert {len(one.messages) for one in ended.journal.inner.values()} == {4}


async def test_an_inner_agent_that_fails_reports_its_error_and_the_run_continues(working: Working) -> None:
    firm = Firm(payer=ScriptedModel([ModelUnavailable("gone", model="m"), ModelUnavailable("gone", model="m")]))
    working(firm.boss)
    handle = await firm.boss.start("Pay.", run_id="r")
    assert (await handle.result(timeout=LONG)).output == "Done."
    found = await handle.inside()
    assert known(found) == [("clerk", "r", "finished")] * 2 + [("payer", "clerk", "failed")] * 2
    assert all("gone" in str(info.error) for info in found if info.agent == "payer")


async def test_a_run_is_deleted_with_its_inner_agents(working: Working, url: str) -> None:
    firm = Firm()
    runs = working(firm.boss)
    for run_id in ("r", "other"):
        await (await firm.boss.start("Pay.", run_id=run_id)).result(timeout=LONG)
    kept = {"other", *[info.run_id for info in await runs.handle("other").inside()]}
    assert await runs.delete(["r"]) == 1
    stored = {
        table: [own for (own,) in rows(url, f"SELECT DISTINCT {id} FROM {table}")] for table, id in TABLES.items()
    }
    assert {*stored["agentkit_runs"]} == kept and stored["agentkit_journal_lines"] == ["other"]
    assert [leg.split("/")[1] for leg in stored["workflow_status"]] == ["other"]
    assert len(await runs.handle("other").inside()) == 4
    with pytest.raises(RunNotFound):
        await runs.handle("r").inside()
    assert (await (await firm.boss.start("Pay.", run_id="r")).result(timeout=LONG)).usage == Usage(100, 20)


async def test_lines_of_an_earlier_attempt_are_refused_at_any_depth(runs: Runs, url: str) -> None:
    firm = Firm(approval="always")
    runs.add(firm.boss)
    with runs.worker(poll=0.1, grace=0), pytest.raises(Paused):
        await (await firm.boss.start("Pay.", run_id="r")).result(timeout=LONG)
    stored = runs.store.rows
    stored.decide("r", {None: Approved()})
    old = stored.begin_attempt("r")
    assert old is not None and stored.begin_attempt("r") is None
    assert runs.store.queue.again("r", ("running",))
    new = stored.begin_attempt("r")
    head = json.dumps({"journal": 1, "run_id": "fresh", "agent": "x"}, separators=(",", ":")) + "\n"
    text, inside = stored.journal_text("r"), await runs.handle("r").inside()
    for calls in ((), ("a ",), ("a ", "c"), ("a ", "c", "n")):
        with raises(AttemptEnded, is_cancelled=False):
            stored.add_lines(old, [(head, calls)])
    assert stored.journal_text("r") == text and len(await runs.handle("r").inside()) == len(inside) == 4
    assert new is not None
    stored.add_lines(new, [(head, ("a ", "c", "n"))])
    assert stored.journal_text("r").startswith(text) and stored.any("fresh").state == "running"
    (payer,) = [one for one in inside if one.run_id == stored.any("fresh").parent]
    assert payer.agent == "payer"


async def test_an_agent_that_is_restarted_has_no_results_of_its_earlier_attempt(working: Working, url: str) -> None:
    tried: list[str] = []

    def once(sent: Composition) -> Any:
        if not len(sent.intermediate):
            return calling((f"h{len(tried)}", "helper"))
        tried.append("once")
        if len(tried) == 1:
            raise ModelUnavailable("gone", model="m")
        return Message("assistant", "Helped.")

    helper = Agent(ScriptedModel.repeat("ok"), name="helper")
    clerk = Agent(ScriptedModel.repeat(once), tools=[helper.as_tool(name="helper", description="Helps.")], name="clerk")
    asking = ScriptedModel.repeat(
        lambda sent: calling(("c", "clerk")) if not len(sent.intermediate) else Message("assistant", "Done.")
    )
    boss = Agent(asking, tools=[clerk.as_tool(name="clerk", description="A clerk.", retries=1)], name="boss")
    runs = working(boss)
    handle = await boss.start("Go.", run_id="r")
    assert (await handle.result(timeout=LONG)).output == "Done."
    assert tried == ["once", "once"]
    journal = (await handle.journal()).inner["c"]
    assert list(journal.inner) == ["h1"]
    assert known(await handle.inside()) == [("clerk", "r", "finished"), ("helper", "clerk", "finished")]
    (clerks,) = [info for info in await handle.inside() if info.agent == "clerk"]
    assert (await runs.handle(clerks.run_id).journal()).dumps() == journal.dumps()


def test_the_command_line_lists_and_shows_inner_agents(working: Working, url: str) -> None:
    firm = Firm(approval="always")
    working(firm.boss)

    def command(*words: str) -> Any:
        return CliRunner().invoke(app, ["runs", *words, "--url", url])

    async def begin() -> None:
        with pytest.raises(Paused):
            await (await firm.boss.start("Pay.", run_id="r")).result(timeout=LONG)

    asyncio.run(begin())
    found = [json.loads(line) for line in command("list", "--inside", "r", "--json").stdout.splitlines()]
    assert sorted(info["agent"] for info in found) == ["clerk", "clerk", "payer", "payer"]
    assert found[0]["agent"] == "clerk" and found[0]["inside"] == "r"
    shown = command("show", found[0]["run_id"])
    assert f"{found[0]['run_id']}: waiting, agent clerk, inside of r, started" in shown.stdout
    assert "model calls payer" in shown.stdout
    refused = command("cancel", found[0]["run_id"])
    assert refused.exit_code == 1 and "is an agent inside of run 'r'" in refused.stderr
    assert command("list", "--inside", "nothing").exit_code == 1
    assert command("list", "--inside", "r", "--state", "waiting").exit_code == 2


@pytest.mark.long
async def test_inner_agents_with_any_names_and_call_ids_are_stored_also_in_postgresql(
    postgres_url: str,
) -> None:
    firm, runs = Firm(approval="always", clerk="clerk \0\ud800"), Runs(postgres_url)
    runs.add(firm.boss)
    handle = runs.handle(f"inside-{os.getpid()}")
    with closing(runs), runs.worker(poll=0.1, grace=0):
        await firm.boss.start("Pay.", run_id=handle.run_id)
        with pytest.raises(Paused):
            await handle.result(timeout=LONG)
        await handle.approve()
        ended = await handle.result(timeout=LONG)
        assert (ended.output, firm.paid, sorted(ended.journal.inner)) == ("Done.", ["paid", "paid"], ["a ", "b\0"])
        found = await handle.inside()
        assert sorted(info.agent for info in found) == ["clerk \ufffd?"] * 2 + ["payer"] * 2
        assert {info.state for info in found} == {"finished"}
        assert await runs.delete([handle.run_id]) == 1
        assert not any(runs.store.rows.has(info.run_id) for info in found)
