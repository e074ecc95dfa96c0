"""Places of tenants with many sessions, and the order of the runs of a session."""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa

from agentkit import Agent, Composition, Message, Runs, ScriptedModel, Session, Tool, ToolCall
from agentkit.durable import RunHandle
from agentkit.runs.run_database import runs_table
from tests.waiting import LONG, eventually


class Shop:
    """An agent whose runs of the tenant `evil` wait for an event, and the record of their starts."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = defaultdict(Session)
        self.started: list[str] = []
        self.running = 0
        self.maximum = 0
        self.may_end = False
        self.agent = Agent(ScriptedModel.repeat(self.reply), name="shop", tools=[Tool(self.work)])

    def reply(self, sent: Composition) -> Message | str:
        if not len(sent.intermediate):
            self.started.append(sent.user.text)
        if len(sent.intermediate) or not sent.user.text.startswith("evil"):
            return "ok"
        return Message("assistant", tool_calls=(ToolCall("1", "work", "{}"),))

    async def work(self) -> str:
        """Work until all may end."""
        self.running += 1
        self.maximum = max(self.maximum, self.running)
        try:
            await eventually(lambda: self.may_end)
        finally:
            self.running -= 1
        return "done"

    def add_to(self, runs: Runs) -> None:
        runs.add(self.agent, sessions=lambda name: self.session(name.id))

    def session(self, name: str) -> Session:
        return self.sessions.setdefault(name, Session(id=name))

    async def start(self, tenant: str, session: str, number: int = 0, delay: float = 0.0) -> RunHandle[str]:
        text = f"{tenant} {session} {number}"
        return await self.agent.start(text, session=self.session(session), tenant=tenant, delay=delay)


def count_held(runs: Runs) -> int:
    query = sa.select(sa.func.count()).where(runs_table.c.held_until.is_not(None), runs_table.c.state == "queued")
    return runs.store.rows.database.work(lambda connection: connection.execute(query).scalar_one())


async def test_a_tenant_with_many_sessions_leaves_places_for_another_tenant(runs: Runs) -> None:
    shop = Shop()
    shop.add_to(runs)
    evil = [await shop.start("evil", f"e{number}") for number in range(8)]
    with runs.worker(concurrency=3, tenant_concurrency=2, poll=0.05, grace=0):
        await eventually(lambda: shop.running == 2)
        acme = await shop.start("acme", "a")
        await acme.result(timeout=LONG)
        assert (shop.running, count_held(runs)) == (2, 6)
        shop.may_end = True
        for handle in evil:
            await handle.result(timeout=LONG)
    assert (shop.maximum, shop.started[2], len(shop.started)) == (2, "acme a 0", 9)


async def test_held_runs_of_a_session_keep_their_order_when_another_worker_continues(runs: Runs) -> None:
    shop = Shop()
    shop.add_to(runs)
    evil = [await shop.start("evil", f"e{number % 3}", number) for number in range(9)]
    with runs.worker(tenant_concurrency=2, poll=0.05, grace=0):
        await eventually(lambda: shop.running == 2)
        await evil[2].cancel()
    first = len(shop.started)
    shop.may_end = True
    with runs.worker(poll=0.05, grace=0):  # without a limit
        for handle in (*evil[:2], *evil[3:]):
            await handle.result(timeout=LONG)
    assert (first, count_held(runs)) == (2, 0)
    for session in ("e0", "e1", "e2"):
        numbers = [int(text.split()[2]) for text in shop.started[first:] if text.split()[1] == session]
        assert numbers == sorted(numbers), shop.started


async def test_a_delayed_run_of_a_session_delays_no_other_run(runs: Runs) -> None:
    shop = Shop()
    shop.add_to(runs)
    late = await shop.start("acme", "a", delay=600)
    with runs.worker(tenant_concurrency=1, poll=0.05, grace=0):
        for number in range(1, 3):
            await (await shop.start("acme", "a", number)).result(timeout=LONG)
        assert (await late.info()).state == "queued"
        soon = await shop.start("acme", "b", delay=0.2)
        await soon.result(timeout=LONG)
        await late.cancel()
    info = await soon.info()
    assert info.updated_at - info.created_at >= 0.2
