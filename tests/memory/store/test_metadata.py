"""Limits of metadata: values that are too deep or too large are refused before they are stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentkit.memory import IngestOptions, InvalidArgument, Memory
from tests.raising import raises


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def test_metadata_that_is_too_deep_or_too_large_is_not_stored(home: Path) -> None:
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    with Memory(home) as memory:
        for metadata in (nested(33), nested(330), nested(100_000), cyclic, {"a": "x" * 8192}, {"a": float("nan")}):
            with raises(InvalidArgument, name="metadata"):
                memory.facts.add("zebra again", metadata=metadata)
        kept = memory.facts.add("zebra at the bound", metadata=nested(32))
        assert kept.metadata == nested(32)
        assert "zebra at the bound" in [fact.text for fact in memory.recall("zebra bound").knowledge]


def test_a_record_refuses_metadata_that_is_too_deep(tmp_path: Path) -> None:
    lines = [{"text": "zebra", "deep": nested(330)}, {"text": "zebra flat", "deep": nested(3)}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = IngestOptions(lenient=True, record_metadata=("deep",))
    with Memory(tmp_path / "home") as memory:
        report = memory.ingest(tmp_path / "a.jsonl", options=options)
        assert "line 1 has metadata that nests deeper than 32 levels" in str(report.repaired[0])
        assert [found.text for found in memory.recall("zebra")] == ["zebra flat"]
