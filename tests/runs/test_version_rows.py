"""Stored runs are grouped by the version of their agent, and each text of a part is stored once."""

from __future__ import annotations

from agentkit import Agent, Layers, ScriptedModel
from agentkit.prompts import TextPrompt
from agentkit.runs.run_record import RunRecord
from agentkit.runs.run_store import RunStore


def agent(text: str) -> Agent:
    return Agent(ScriptedModel.repeat("ok"), layers=Layers(TextPrompt(text, name="persona")), name="desk")


def test_versions_have_their_runs_failures_and_texts(store: RunStore) -> None:
    versions = [agent(text) for text in ("You help.\0", "You help well.")]
    for number, each in enumerate(versions):
        for at, state in enumerate(("finished", "failed", "finished")):
            journal = each.run_sync("Hi \0 \ud800", run_id=f"{number}-{at}").journal
            start = 1000.0 * (2 - number) + at
            record = RunRecord(
                run_id=journal.run_id,
                agent="desk",
                tenant=f"t{at}",
                state=state,  # type: ignore[arg-type]
                created_at=start,
                updated_at=start,
            )
            store.add(record, journal.dumps())
        for _ in range(2):
            store.versions.store(each.definition.version)
    store.add(RunRecord(run_id="x", agent="desk", state="failed", created_at=1.0, updated_at=1.0), '{"journal": 1}\n')
    newer, older = store.versions.uses()
    assert [use.version for use in (older, newer)] == [each.definition.version.id for each in versions]
    assert (newer.first, newer.last, newer.runs, newer.failed, newer.money) == (1000.0, 1002.0, 3, 1, 0.0)
    assert dict(older.parts) == dict(versions[0].definition.version.hashes)
    assert [use.runs for use in store.versions.uses("desk", "t1")] == [1, 1]
    assert store.versions.uses("disk") == store.versions.uses(tenant="t9") == []
    hashes = [use.parts["system.persona"] for use in (older, newer)]
    assert store.versions.texts([*hashes, "unknown"]) == {hashes[0]: "You help.\ufffd", hashes[1]: "You help well."}
