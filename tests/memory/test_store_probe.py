"""`StoreProbe`: reads and changes of a store by tests, without its checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkit.memory import Memory, StoreError, StoreUnavailable
from agentkit.prompts import Message
from agentkit.testing import StoreProbe


def test_a_probe_reads_and_changes_rows_counts_statements_and_sets_the_clock(either: Memory, tmp_path: Path) -> None:
    probe = StoreProbe(either)
    probe.set_clock(lambda: 7.0)
    either.session("s").append(Message("user", "hello"))
    either.facts.add("Ada likes tea.")
    either.worker().drain()
    assert sorted((item.kind, item.text, item.created_at) for item in probe.items()) == [
        ("fact", "Ada likes tea.", 7.0),
        ("turn", "hello", 7.0),
    ]
    assert [item.text for item in probe.items("turn")] == ["hello"]
    assert probe.index.count() == 2
    with probe.statements() as statements:
        assert probe.execute("UPDATE items SET text = :text WHERE text = 'Ada likes tea.'", {"text": "none"}) == 1
        assert [row.text for row in probe.rows("SELECT text FROM items WHERE kind = :kind", kind="fact")] == ["none"]
    assert [each.split()[0] for each in statements if "items" in each] == ["UPDATE", "SELECT"]
    assert probe.values("SELECT seq FROM messages") == [1]
    assert {table for table, rows in probe.dump().items() if rows} >= {"scopes", "conversations", "messages", "items"}
    with pytest.raises(StoreError), probe.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM messages")
        connection.exec_driver_sql("DELETE FROM nowhere")
    assert len(probe.values("SELECT seq FROM messages")) == 1  # rolled back
    with Memory(probe.target, index=tmp_path / "other") as again:
        assert StoreProbe(again).scope_number == probe.scope_number


def test_a_full_disk_refuses_writes_that_extend_the_file(memory: Memory) -> None:
    StoreProbe(memory).fill_disk()
    with pytest.raises(StoreUnavailable):
        memory.session("s").append(Message("user", "x" * 100_000))
