"""Runs, journals and access files on a full and a read-only file system: errors name the file, and work continues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agentkit import Agent, Runs, ScriptedModel, Usage
from agentkit.durable import DatabaseUnavailable
from agentkit.runs.run_errors import RunStoreError
from agentkit.runs.run_record import RunEvent, RunRecord
from agentkit.server import RunStore, add_token
from agentkit.server.server_errors import AccessFileError
from tests.small_disk import small_disk
from tests.waiting import LONG

LARGE = "x" * 200_000


def record(run_id: str, key: str | None = None) -> RunRecord:
    return RunRecord(run_id=run_id, agent="a", state="queued", created_at=1.0, updated_at=1.0, tenant="t", key=key)


async def test_each_store_call_on_a_full_or_read_only_disk_is_a_typed_error_with_the_name_of_the_file(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        folder = disk.folder
        store, runs = RunStore(folder / "runs.db"), Runs(f"sqlite:///{folder}/durable.db")
        for run_id in ("first", "second"):
            store.add(record(run_id))
        attempt = store.begin_attempt("first")
        assert attempt is not None and runs.store.rows
        agent = Agent(ScriptedModel.repeat("x"), name="a")
        runs.add(agent)
        access = folder / "access.yaml"
        add_token(access, "one", "t")

        async def started() -> None:
            with runs.worker(grace=0):
                await (await agent.start(LARGE)).result(timeout=LONG)

        def each(name: str) -> dict[str, tuple[type[Exception], Callable[[], Awaitable[Any] | object]]]:
            return {
                "add": (DatabaseUnavailable, lambda: store.add(record(name), LARGE)),
                "add with key": (DatabaseUnavailable, lambda: store.add(record(f"{name}-key", name), LARGE)),
                "lines": (DatabaseUnavailable, lambda: store.add_lines(attempt, [(LARGE, ())])),
                "usage": (DatabaseUnavailable, lambda: store.usage.add("t", "2026-01-01", Usage(1, 1), 1)),
                "events": (DatabaseUnavailable, lambda: store.events.add("first", [RunEvent(1, "k", {"x": LARGE})])),
                "cancel": (DatabaseUnavailable, lambda: store.cancel("second")),
                "open": (RunStoreError, lambda: RunStore(folder / f"{name}.db")),
                "durable runs": (DatabaseUnavailable, lambda: agent.start(LARGE)),
                "new durable runs": (DatabaseUnavailable, Runs(f"sqlite:///{folder}/{name}-durable.db").list_runs),
                "worker": (DatabaseUnavailable, started),
                "journal": (OSError, lambda: agent.run(LARGE, journal=folder / f"{name}.jsonl")),
                "token": (AccessFileError, lambda: add_token(access, name, "t")),
            }

        async def problems(name: str, calls: list[str]) -> list[str]:
            wrong = []
            for call in calls:
                kind, work = each(name)[call]
                try:
                    result = work()
                    if isinstance(result, Awaitable):
                        await result
                    wrong.append(f"{call}: no error")
                except Exception as error:
                    if not isinstance(error, kind) or str(folder) not in str(error):
                        wrong.append(f"{call}: {error!r}")
            return wrong

        disk.fill()
        assert await problems("full", [*each("full")]) == []
        assert store.get("first").state == "running"
        disk.free()
        store.add(record("third"), LARGE)
        store.add_lines(attempt, [(LARGE, ())])
        await started()
        store.close()
        runs.close()
        disk.allow_writes(allowed=False)
        opening = ["open", "durable runs", "new durable runs", "worker", "journal", "token"]
        assert await problems("read-only", opening) == []
        disk.allow_writes(allowed=True)
        await started()
        runs.close()
