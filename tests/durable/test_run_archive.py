"""Archives of ended runs: nothing is lost by a kill, and a file that is not an archive is not changed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentkit import Agent, ScriptedModel
from agentkit.cli.app import app
from agentkit.durable import DurableError, read_archive
from agentkit.durable.run_archive import RunArchive
from agentkit.runs.run_record import RunRecord
from tests.durable.conftest import Working
from tests.raising import raises
from tests.waiting import LONG

pytest.importorskip("dbos", reason="needs the extra `durable`")


def record(run_id: str, state: Any = "finished") -> RunRecord:
    return RunRecord(run_id=run_id, agent="a", state=state, created_at=1.0, updated_at=2.0, tenant="acme", tags=("x",))


def journal(run_id: str) -> str:
    return Agent(ScriptedModel(["Hi."]), name="a").run_sync(run_id, run_id=run_id).journal.dumps()


async def test_runs_are_archived_before_they_are_deleted(working: Working, url: str, tmp_path: Path) -> None:
    quick = Agent(ScriptedModel.repeat("ok"), "Be quick.", name="quick")
    runs, file = working(quick), tmp_path / "runs.jsonl"
    for number in range(3):
        handle = await quick.start(f"Go {number}.", run_id=f"quick-{number}", tenant=("acme", "other")[number % 2])
        await handle.result(timeout=LONG)
    assert await runs.delete_ended(timedelta(0), tenant="other", archive=file) == 1
    words = ["runs", "delete", "--older-than", "0", "--archive", str(file), "--url", url, "--json"]
    assert json.loads(CliRunner().invoke(app, words).stdout)["deleted"] == 2
    archived = list(read_archive(file))
    assert {(run.run_id, run.tenant, run.state) for run in archived} == {
        ("quick-0", "acme", "finished"),
        ("quick-1", "other", "finished"),
        ("quick-2", "acme", "finished"),
    }
    for run in archived:
        assert run.journal is not None and run.journal.messages[-1].text == "ok"
    assert await runs.list_runs() == []
    invalid: Any = 5
    for path in (invalid, tmp_path / "\0", tmp_path / "missing" / "runs.jsonl"):
        with raises(DurableError, name="archive"):
            await runs.delete_ended(timedelta(0), archive=path)
    refused = CliRunner().invoke(app, ["runs", "delete", "x", "--archive", str(file), "--url", url])
    assert refused.exit_code == 2 and "--older-than" in refused.output


def test_after_a_kill_no_run_is_lost_and_each_is_read_once(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    archive = RunArchive(whole)
    archive.add([record("one"), record("never", "cancelled")], [journal("one"), ""])
    archive.add([record("two")], [journal("two")])
    archive.close()
    assert whole.stat().st_mode & 0o077 == 0
    content = whole.read_bytes()
    first = content.index(b"\n") + 1
    for size in (0, 1, first - 1, first, first + 1, len(content) - 1, len(content)):
        file = tmp_path / str(size)
        file.write_bytes(content[:size])
        known = [run.run_id for run in read_archive(file)]
        assert known == ["one", "never", "two"][: content[:size].count(b"\n")]
        archive = RunArchive(file)
        archive.add([record("two"), record("three")], ["", ""])
        archive.close()
        expected = [*known, *[name for name in ("two", "three") if name not in known]]
        assert [run.run_id for run in read_archive(file)] == expected, size


def test_a_file_that_is_not_an_archive_is_refused_and_not_changed(tmp_path: Path) -> None:
    run: dict[str, Any] = {
        "run_id": "r",
        "agent": "a",
        "version": "",
        "tenant": "",
        "user": "",
        "state": "finished",
        "tags": [],
    }
    whole: dict[str, Any] = {"format": 1, "run": {**run, "created_at": 1, "updated_at": 1}, "journal": ""}
    cases: dict[str, Any] = {
        "text": "notes\nmore\n",
        "a line without an end": "notes",
        "binary": "\x00\x01\n",
        "another format": json.dumps({**whole, "format": 2}) + "\n",
        "no run": json.dumps({"format": 1}) + "\n",
        "another type": json.dumps({**whole, "run": {**whole["run"], "user": 1}}) + "\n",
        "a running run": json.dumps({**whole, "run": {**whole["run"], "state": "running"}}) + "\n",
        "a journal that is none": json.dumps({**whole, "journal": "x"}) + "\n",
        "nested": "[" * 100_000 + "\n",
    }
    for name, content in cases.items():
        file = tmp_path / name
        file.write_text(content)
        with raises(DurableError, name="archive"):
            RunArchive(file)
        assert file.read_text() == content, name
        if content.endswith("\n"):
            with raises(DurableError, name="archive"):
                list(read_archive(file))
    with raises(DurableError, name="archive"):
        RunArchive(tmp_path)
    with raises(DurableError, name="archive"):
        list(read_archive(tmp_path / "missing"))
    used = RunArchive(tmp_path / "used")
    with raises(DurableError, name="archive"):
        RunArchive(tmp_path / "used")
    used.close()
