"""Verify, repair and rebuild: searches detect damage of an index, the opening detects an older copy."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from agentkit.memory import IndexBroken, Memory, StoreUnavailable
from agentkit.memory.recall import Point, VectorIndex
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.index.qdrant_edge import EdgeIndex
from agentkit_memory.terms.bm25_vectors import document_vector
from tests.effort import unless_fresh
from tests.memory.embedders.word_embedder import Words
from tests.waiting import until

ANIMALS = ("zebra", "heron", "otter", "newt", "puma", "lynx")


def recalled_texts(memory: Memory, question: str) -> list[str]:
    return [fact.text for fact in memory.recall(question).knowledge]


def test_points_with_other_content_are_found_by_searches_and_repaired(memory: Memory) -> None:
    facts = [memory.facts.add(f"{animal} number {number}") for number, animal in enumerate(ANIMALS)]
    memory.worker().drain()
    assert memory.admin.verify().ok
    probe = StoreProbe(memory)
    other = Point(facts[0].id, 1, probe.scope_number, document_vector("nothing of the kind"))  # of the same version
    probe.index.upsert([other])
    checked = memory.admin.verify()
    assert (checked.ok, checked.missing, checked.unfound) == (False, 0, 1)
    assert checked.examples == {"unfound": (facts[0].id,)}
    assert memory.admin.verify(sample=0).ok
    repaired = memory.admin.repair()
    assert (repaired.before.unfound, repaired.after.ok, repaired.after.points) == (1, True, len(ANIMALS))
    assert recalled_texts(memory, "zebra") == ["zebra number 0"]


def test_vectors_of_other_texts_are_found(home: Path) -> None:
    words = Words()
    with Memory(home, embedder=words) as memory:
        facts = [memory.facts.add(f"{animal} number {number}") for number, animal in enumerate(ANIMALS)]
        memory.worker().drain()
        assert memory.admin.verify().ok
        index, scope = StoreProbe(memory).index, StoreProbe(memory).scope_number
        for number in range(250):
            memory.facts.add(f"more {number}")
        memory.worker().drain()
        wrong = [-each for each in words.vector(facts[2].text)]
        index.upsert([Point(facts[2].id, 1, scope, document_vector(facts[2].text), wrong)])
        asked = len(words.asked)
        checked = memory.admin.verify(sample=1000)
        assert checked.examples == {"unfound": (facts[2].id,)}
        assert memory.admin.rebuild().ok
        assert memory.admin.verify(sample=1000).ok and len(words.asked) == asked  # no text was embedded twice


def test_copies_and_texts_without_words_are_not_damage(memory: Memory) -> None:
    for number in range(60):
        memory.session(f"s{number}").append(Message("user", "thanks"), Message("user", "..."), Message("user", "the"))
    memory.worker().drain()
    checked = memory.admin.verify(sample=1000)
    assert (checked.ok, checked.unfound, checked.points) == (True, 0, 180)


@pytest.mark.long
def test_an_index_that_verifies_after_damage_finds_its_texts(tmp_path: Path) -> None:
    """Change random bytes of its files: an index that verifies finds the requested texts."""
    with Memory(tmp_path / "whole") as memory:
        for number in range(400):
            memory.facts.add(f"{ANIMALS[number % 6]}{number} walks")
        memory.worker().drain()
    draw = Random(7)
    silent = []
    for number in range(unless_fresh(4, 16)):
        home = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", home)
        files = [each for each in sorted((home / "index").rglob("*")) if each.is_file() and each.stat().st_size]
        file = draw.choice([each for each in files if each.name != "lock"])
        held = bytearray(file.read_bytes())
        used = [place for place, byte in enumerate(held) if byte] or [0]
        for place in draw.sample(used, min(len(used), 200)):
            held[place] = draw.randrange(256)
        file.write_bytes(held)
        try:
            with Memory(home) as memory:
                checked = memory.admin.verify(sample=1000)
                missed = [each for each in (0, 133, 399) if not recalled_texts(memory, f"{ANIMALS[each % 6]}{each}")]
                if checked.ok and missed and not checked.pending:
                    silent.append((str(file.relative_to(home)), missed))
                assert memory.admin.repair(sample=1000).after.ok
                assert recalled_texts(memory, "zebra0")
        except StoreUnavailable:  # a typed error
            continue
        except IndexBroken as error:
            assert "rebuilt" in str(error) or "built again" in str(error) or "rebuild" in str(error)
            with Memory(home) as memory:
                assert memory.admin.rebuild().ok
                assert recalled_texts(memory, "zebra0")
        finally:
            shutil.rmtree(home, ignore_errors=True)
    assert silent == []


def change(memory: Memory, animals: tuple[str, ...]) -> None:
    """Replace the facts and messages by the same number of new facts and messages."""
    memory.delete_session("s")
    for fact in memory.facts.list():
        memory.facts.remove(fact.id)
    for animal in animals:
        memory.facts.add(f"{animal} one")
        memory.session("s").append(Message("user", f"a {animal} two"))
    memory.worker().drain()


@pytest.mark.parametrize("stayed_open", [False, True])
def test_the_opening_detects_an_older_database_with_a_newer_index(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, stayed_open: bool
) -> None:
    with Memory(home) as memory:
        change(memory, ANIMALS[:3])
        memory.admin.compact()
        if stayed_open:  # a copy of the file, made while the store was in use
            with closing(sqlite3.connect(home / "memory.db")) as file:
                file.execute("VACUUM INTO ?", (str(tmp_path / "older"),))
            change(memory, ANIMALS[3:])
    if not stayed_open:
        shutil.copy(home / "memory.db", tmp_path / "older")
        with Memory(home) as memory:
            change(memory, ANIMALS[3:])
    shutil.copy(tmp_path / "older", home / "memory.db")
    with Memory(home) as memory, caplog.at_level(logging.WARNING, "agentkit.memory"):
        first = memory.recall("zebra one")
        assert first.knowledge[0].text == "zebra one"
        assert recalled_texts(memory, "puma") == []
        memory.worker().drain()
        assert memory.admin.verify().ok and memory.admin.verify().points == 6
        assert {each.text for each in memory.recall("otter two")} >= {"a otter two"}
    assert [record.message for record in caplog.records if "older than its index" in record.message] != []


def test_the_opening_detects_an_older_index_with_a_newer_database(home: Path, tmp_path: Path) -> None:
    with Memory(home) as memory:
        change(memory, ANIMALS[:3])
    shutil.copytree(home / "index", tmp_path / "older")
    with Memory(home) as memory:
        change(memory, ANIMALS[3:])
    shutil.rmtree(home / "index")
    shutil.copytree(tmp_path / "older", home / "index")
    with Memory(home) as memory:
        memory.worker().drain()
        assert memory.admin.verify().ok and recalled_texts(memory, "puma one")[0] == "puma one"


def test_the_opening_detects_a_lost_point_and_an_idle_worker_a_lost_row(home: Path) -> None:
    with Memory(home) as memory:
        change(memory, ANIMALS)
        memory.worker().drain()
        lost = StoreProbe(memory).values("SELECT item_id FROM vector_state ORDER BY item_id")
    index = EdgeIndex(next(home.glob("index/*")))
    index.delete(lost[:1])
    index.close()
    with Memory(home) as memory:
        assert StoreProbe(memory).index.count() == len(lost) - 1
        assert StoreProbe(memory).values("SELECT item_id FROM vector_state WHERE want != have") == lost[:1]
        memory.worker().drain()
    with Memory(home) as memory:
        StoreProbe(memory).execute("DELETE FROM vector_state WHERE item_id = :item", {"item": lost[0]})
    with Memory(home) as memory:
        assert len(recalled_texts(memory, "zebra one")) > 0
        memory.worker().drain()
        memory.worker().drain()
        assert memory.admin.verify().ok


def test_index_and_database_count_the_same_writes_after_any_operation(home: Path) -> None:
    def agree(memory: Memory) -> bool:
        """True if the counts are equal: the index stores its count after SQL, possibly in another thread."""
        probe = StoreProbe(memory)
        assert isinstance(probe.index, EdgeIndex)
        return [probe.index.written()] == probe.values("SELECT writes FROM vector_spaces WHERE state = 'active'") != [0]

    with Memory(home) as memory:
        change(memory, ANIMALS)
        until(lambda: agree(memory))
        memory.admin.rebuild()
        until(lambda: agree(memory))
        memory.admin.reembed(Words(), gate=None)
        until(lambda: agree(memory))
        memory.admin.compact()
    with Memory(home, embedder=Words()) as memory:
        change(memory, ANIMALS[:2])
        until(lambda: agree(memory))


def test_an_index_without_a_count_works(home: Path) -> None:
    class Plain:
        """An index without the three methods."""

        def __init__(self, folder: Path) -> None:
            self._inner = EdgeIndex(folder)

        def __getattr__(self, name: str) -> object:
            if name in ("written", "keep_written", "is_as_written"):
                raise AttributeError(name)
            return getattr(self._inner, name)

    def opener(space: str, dimensions: int) -> VectorIndex:
        return Plain(home / space)  # type: ignore[return-value]

    for _ in range(2):
        with Memory(home, index=opener) as memory:
            change(memory, ANIMALS[:2])
            assert memory.admin.verify().ok and recalled_texts(memory, "zebra one")[0] == "zebra one"
            assert memory.admin.rebuild().ok and memory.admin.repair().after.ok
