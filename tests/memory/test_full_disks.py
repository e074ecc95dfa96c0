"""Full and read-only file systems: a typed error, and the store continues after space is free again."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentkit.memory import Memory, StoreUnavailable
from agentkit.prompts import Message
from tests.small_disk import small_disk


def test_a_full_or_read_only_disk_is_a_typed_error_and_the_store_continues_afterwards(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "large.md").write_text("# Words\n" + "word " * 100_000)
    with small_disk(tmp_path / "disk") as disk:
        home = disk.folder / "m"
        with Memory(home, scope="t") as memory:
            session = memory.session("s")
            session.append(Message("user", "first"))
            disk.fill()
            with pytest.raises(StoreUnavailable):
                for number in range(50):
                    session.append(Message("user", f"{number}" * 20_000))
            with pytest.raises(StoreUnavailable):
                memory.facts.add("The heron is a bird. " * 400)
            with pytest.raises(StoreUnavailable):
                memory.ingest(tmp_path / "docs")
            with pytest.raises(StoreUnavailable):
                memory.worker().drain()
            with pytest.raises(StoreUnavailable):
                Memory(disk.folder / "new", scope="t")
            disk.free()
            session.refresh()
            session.append(Message("user", "last"))
        disk.allow_writes(allowed=False)
        with pytest.raises(StoreUnavailable), Memory(home, scope="t") as memory:
            memory.session("s").append(Message("user", "lost"))
        disk.allow_writes(allowed=True)
        with Memory(home, scope="t") as memory:
            texts = [message.text for message in memory.session("s").conversation]
            assert (texts[0], texts[-1]) == ("first", "last") and "lost" not in texts
