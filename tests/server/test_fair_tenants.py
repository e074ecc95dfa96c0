"""Tenants share a server: no tenant takes the places of another tenant, or deletes its records."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Message, ScriptedModel, ToolCall
from agentkit.server import Access, RunStore, ServerOptions, add_token
from agentkit.server.owner import Owner
from agentkit.server.request_runs.client_tools import HeldReplies
from agentkit.server.served_runs.fair_places import FairPlaces
from agentkit.server.server_errors import ServerFull
from agentkit.server.session_store import SessionStore
from tests.server.serving_agents import ended, served
from tests.waiting import LONG


class Hanging(ScriptedModel):
    """A model that answers inputs with the word "slow" after minutes."""

    async def request(self, composition: Any, **options: Any) -> Any:
        if "slow" in composition.messages[-1].text:
            await asyncio.sleep(300)
        return await super().request(composition, **options)


def shop() -> Agent[Any, Any]:
    return Agent(Hanging.repeat("ok"), name="shop")


def tokens(path: Path, *users: str) -> dict[str, str]:
    """Return a token per `tenant/user`."""
    return {
        name: add_token(path, name.replace("/", "-"), name.partition("/")[0], user=name.partition("/")[2] or None)
        for name in users
    }


async def order_of(places: FairPlaces, *tenants: str) -> list[str]:
    """Return the tenants in the order in which they get places, which each leaves at the second step after."""
    order: list[str] = []

    async def run(tenant: str) -> None:
        async with places.place(tenant):
            order.append(tenant)
            await asyncio.sleep(0)

    await asyncio.gather(*[run(tenant) for tenant in tenants])
    return order


@pytest.mark.parametrize(
    ("places", "per_tenant", "tenants", "order"),
    [
        (1, 1, "aaab", "abaa"),
        (2, 2, "aaaab", "aabaa"),
        (4, 3, "aaaaab", "aaabaa"),
        (1, 1, "aaabbc", "abcaba"),
        (3, 3, "aaa", "aaa"),
        (2, 1, "aab", "aba"),
    ],
)
async def test_a_free_place_goes_to_the_tenant_with_the_fewest_runs(
    places: int, per_tenant: int, tenants: str, order: str
) -> None:
    assert "".join(await order_of(FairPlaces(places, per_tenant), *tenants)) == order


async def test_a_cancelled_run_leaves_its_place_or_its_turn() -> None:
    places = FairPlaces(1, 1)

    async def hang() -> None:
        async with places.place("a"):
            await asyncio.sleep(300)

    running, waiting, granted = [asyncio.create_task(hang()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.cancel()
    running.cancel()
    await asyncio.sleep(0)  # the place is assigned to the third run, which has not noticed it
    granted.cancel()
    await asyncio.gather(running, waiting, granted, return_exceptions=True)
    assert await asyncio.wait_for(order_of(places, *"ab"), LONG) == ["a", "b"]


async def test_tenants_whose_waiting_runs_are_cancelled_use_no_memory() -> None:
    places = FairPlaces(1, 1)

    async def run(tenant: str) -> None:
        async with places.place(tenant):
            await asyncio.sleep(0)

    def size() -> int:
        return len(pickle.dumps([each for each in vars(places).values() if isinstance(each, dict)]))

    before = size()
    for number in range(20):
        # The second run of the tenant waits when the first ends, and is cancelled before it gets the place.
        tasks = [asyncio.create_task(run(tenant)) for tenant in (f"tenant {number}", "other", f"tenant {number}")]
        await asyncio.sleep(0)
        await tasks[0]
        tasks[2].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert size() == before


def test_a_tenant_gets_a_place_next_to_a_tenant_with_many_runs(tmp_path: Path) -> None:
    own = tokens(tmp_path / "access.yaml", "acme", "evil")
    with served(shop(), access=Access(tmp_path / "access.yaml"), options=ServerOptions(background_runs=4)) as client:
        slow = {"agent": "shop", "input": "slow"}
        runs = [client.post("/runs", slow, own["evil"]).json()["id"] for _ in range(8)]
        quick = client.post("/runs", {"agent": "shop", "input": "quick"}, own["acme"]).json()["id"]
        assert ended(client, quick, own["acme"])["status"] == "finished"
        states = [client.get(f"/runs/{run}", own["evil"]).json()["status"] for run in runs]
        assert states == ["running"] * 3 + ["queued"] * 5
        for run in runs:
            client.post(f"/runs/{run}/cancel", token=own["evil"])


@pytest.mark.parametrize("is_stored", [False, True])
def test_requests_of_a_tenant_delete_no_order_of_another_tenant(tmp_path: Path, is_stored: bool) -> None:
    own = tokens(tmp_path / "access.yaml", "acme", "evil")
    store = RunStore(tmp_path / "runs.db" if is_stored else None)
    options = ServerOptions(kept_runs=5, requests_per_minute=1_000_000)
    with served(shop(), access=Access(tmp_path / "access.yaml"), store=store, options=options) as client:
        order = {"json": {"agent": "shop", "input": "order once"}, "headers": {"Idempotency-Key": "order-1"}}

        def ask(tenant: str) -> str:
            headers = {**order["headers"], "Authorization": f"Bearer {own[tenant]}"}
            run_id: str = client.http.post("/runs", json=order["json"], headers=headers).json()["id"]
            return run_id

        run = ask("acme")
        ended(client, run, own["acme"])
        body = {"model": "shop", "messages": [{"role": "user", "content": "x"}]}
        for _ in range(210):
            assert client.post("/v1/chat/completions", body, own["evil"]).status_code == 200
        assert client.get(f"/runs/{run}", own["acme"]).status_code == 200
        assert len(client.get("/runs?limit=200", own["evil"]).json()["runs"]) < 20
        assert ask("acme") == run != ask("evil")
    store.close()


def test_users_of_a_tenant_have_separate_idempotency_keys(tmp_path: Path) -> None:
    own = tokens(tmp_path / "access.yaml", "acme/ada", "acme/bob", "acme")
    with served(shop(), access=Access(tmp_path / "access.yaml"), options=ServerOptions(kept_keys=4)) as client:

        def ask(owner: str, text: str, key: str = "order-1") -> Any:
            headers = {"Idempotency-Key": key, "Authorization": f"Bearer {own[owner]}"}
            return client.http.post("/runs", json={"agent": "shop", "input": text}, headers=headers)

        runs = {owner: ask(owner, f"order of {owner}").json()["id"] for owner in own}
        assert len(set(runs.values())) == 3
        assert {owner: ask(owner, f"order of {owner}").json()["id"] for owner in own} == runs
        assert ask("acme/bob", "order of acme/ada").status_code == 409
        assert ask("acme", "another", "order-2").status_code == 202
        refused = ask("acme", "another", "order-3")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_keys")
        assert ask("acme", "another", "order-2").status_code == 202


def test_sessions_in_memory_are_limited_for_each_tenant() -> None:
    store = SessionStore(None, 2)
    for name in ("one", "two"):
        store.open(Owner("evil", "mallory"), name)
    for user in ("", "eve"):
        with pytest.raises(ServerFull):
            store.open(Owner("evil", user), "three")
    with pytest.raises(ServerFull):
        store.fork(Owner("evil", "mallory"), "one", "three", None)
    for name in ("one", "two"):
        store.open(Owner("acme"), name)
    store.delete(Owner("evil", "mallory"), "one")
    store.open(Owner("evil", "mallory"), "three")


@pytest.mark.parametrize(("count", "size"), [(100, 1), (1, 6_000_000), (20, 1_000_000)])
def test_replies_that_wait_for_a_client_are_dropped_for_the_largest_tenant(count: int, size: int) -> None:
    def reply(number: int) -> Message:
        return Message("assistant", tool_calls=(ToolCall(f"c{number}", "ask", "{}"),))

    held = HeldReplies(10)
    earlier = (Message("user", "earlier"),)
    held.add(("acme", "", "shop"), earlier, reply(0))
    held.add(("acme", "", "shop"), earlier, reply(0))
    for number in range(count):
        held.add(("evil", "", "shop"), (Message("user", "x" * size),), reply(number))
    assert held.restore(("acme", "", "shop"), [reply(0)]) == (*earlier, reply(0))
    assert held.restore(("evil", "", "shop"), [reply(0)])[-1] == reply(0)
