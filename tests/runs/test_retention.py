"""Limits of stored runs: by count, size and age, for each tenant, and not for runs with young idempotency keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from agentkit.runs.run_record import RunRecord, RunsWanted
from agentkit.runs.run_retention import Retention
from agentkit.runs.run_store import RunStore

HOUR = 3600.0
FAR = Retention(runs=None, characters=None)


def run(run_id: str, **changes: Any) -> RunRecord:
    record = RunRecord(run_id=run_id, tenant="acme", agent="a", state="finished", created_at=1.0, updated_at=2.0)
    return replace(record, **changes)


def listed(store: RunStore, tenant: str) -> list[str]:
    return [record.run_id for record in store.page(RunsWanted(tenant=tenant, limit=500))]


RUNS = [
    (run("keyed", key="order-1"), 10),
    (run("waiting", state="waiting"), 10),
    (run("durable", executor="dbos"), 10),
    (run("old"), 10),
    (run("large"), 100),
    (run("new"), 10),
]
LIMITS = [
    (FAR, "new large old durable waiting keyed"),
    (replace(FAR, runs=1), "new durable waiting keyed"),
    (replace(FAR, runs=2), "new large durable waiting keyed"),
    (replace(FAR, runs=2, key_seconds=HOUR), "new large durable waiting keyed"),
    (replace(FAR, runs=2, key_seconds=0.001), "new large durable waiting"),
    (replace(FAR, characters=20), "new durable waiting keyed"),
    (replace(FAR, characters=125), "new large old durable waiting keyed"),
    (replace(FAR, characters=115, key_seconds=0.001), "new large durable waiting"),
    (replace(FAR, seconds=HOUR), "durable waiting keyed"),
    (replace(FAR, seconds=HOUR, key_seconds=0.001), "durable waiting"),
    (replace(FAR, runs=1, characters=1, seconds=HOUR), "durable waiting keyed"),
    (Retention(), "new large old durable waiting keyed"),
]


@pytest.mark.parametrize(("limits", "kept"), LIMITS)
def test_the_oldest_ended_runs_of_a_tenant_are_deleted(store: RunStore, limits: Retention, kept: str) -> None:
    for tenant in ("acme", "bolt"):
        for record, size in RUNS:
            named = replace(record, run_id=f"{tenant}-{record.run_id}", tenant=tenant)
            store.add(named, "x" * (size - 1) + "\n")
    aged = sa.text("UPDATE agentkit_keys SET created_at = created_at - 60")
    store.database.work(lambda connection: connection.execute(aged))
    store.retention = limits
    store.prune("acme")
    assert listed(store, "acme") == [f"acme-{name}" for name in kept.split()]
    assert listed(store, "bolt") == [f"bolt-{record.run_id}" for record, _ in reversed(RUNS)]
    store.prune()
    assert listed(store, "bolt") == [f"bolt-{name}" for name in kept.split()]
    is_kept = "keyed" in kept
    assert (store.find("acme", "", "order-1") is not None, store.young_keys("acme")) == (
        is_kept,
        int(is_kept and limits.key_seconds > 1),
    )


def test_runs_of_a_tenant_delete_no_runs_of_other_tenants_and_their_keys(store: RunStore) -> None:
    store.retention = Retention(runs=10, characters=5_000)
    store.add(run("order", tenant="bolt", key="order-1"), "x" * 4_000)
    store.add(run("plain", tenant="bolt"))
    for number in range(250):
        store.add(run(str(number)), "x" * 100)
    assert listed(store, "bolt") == ["plain", "order"]
    again = store.add(run("again", tenant="bolt", key="order-1"))
    assert again.run_id == "order"
    assert 1 <= len(listed(store, "acme")) <= 10 + 10


def test_a_deletion_by_count_does_not_postpone_the_deletion_by_size(store: RunStore) -> None:
    store.retention = Retention(characters=8_000)
    for number in range(30):
        store.add(run(str(number)), "x" * 900)
        store.prune(with_size=False)
    assert 1 <= len(listed(store, "acme")) <= 10


def test_an_idempotency_key_belongs_to_a_tenant_and_a_user(store: RunStore) -> None:
    owners = [("acme", ""), ("acme", "ada"), ("acme", "bob"), ("bolt", "ada")]
    for number, (tenant, user) in enumerate(owners):
        assert store.add(run(str(number), tenant=tenant, user=user, key="order-1")).run_id == str(number)
    for number, (tenant, user) in enumerate(owners):
        found = store.find(tenant, user, "order-1")
        assert found is not None and found.run_id == str(number)
    store.delete("1")
    assert store.find("acme", "ada", "order-1") is None and store.find("acme", "bob", "order-1") is not None
