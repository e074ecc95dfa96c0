"""Calls of a memory in the vocabulary of other libraries: the message names the way, which works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import Memory, RecallFilter, Scope
from agentkit_memory.errors import InvalidArgument
from tests.wrong_calls import check_right_way

USER = "memory.within(Scope(tenant, user=...))"
ANN = Scope("shop", user="ann")
WRONG: list[tuple[Callable[[Any], object], type[Exception], str, Callable[[Any], object]]] = [
    (lambda m: m.add("Lamps."), AttributeError, "memory.documents.add(text)", lambda m: m.documents.add("Lamps.")),
    (
        lambda m: m.add_document("Lamps."),
        AttributeError,
        "memory.documents.add(text, source=...)",
        lambda m: m.documents.add("Lamps.", source="a.md"),
    ),
    (lambda m: m.add_fact("Green."), AttributeError, "memory.facts.add(text)", lambda m: m.facts.add("Green.")),
    (lambda m: m.facts(user="ann"), TypeError, f"{USER}.facts.list()", lambda m: m.within(ANN).facts.list() == ()),
    (lambda m: m.documents(), TypeError, "memory.documents.list()", lambda m: m.documents.list()),
    (lambda m: m.search("warranty"), AttributeError, "memory.recall(text, limit=...)", lambda m: m.recall("warranty")),
    (lambda m: m.recall("x", k=1), TypeError, "use limit=...", lambda m: m.recall("warranty", limit=1)),
    (
        lambda m: m.recall("x", user="ann"),
        TypeError,
        f"{USER}.recall(...)",
        lambda m: m.within(ANN).recall("warranty"),
    ),
    (
        lambda m: m.recall("x", filter={"kind": "desk"}),
        TypeError,
        "RecallFilter(metadata={'key': 'value'})",
        lambda m: not m.recall("warranty", where=RecallFilter(metadata={"kind": "desk"})).documents,
    ),
    (
        lambda m: m.recall("x", where={"kind": "desk"}),
        InvalidArgument,
        "RecallFilter(metadata={...})",
        lambda m: m.recall("warranty", where=RecallFilter(metadata={"kind": "lamp"})).documents,
    ),
    (
        lambda m: RecallFilter(kind="desk"),  # type: ignore[call-arg]
        InvalidArgument,
        "metadata={'kind': value}",
        lambda m: m.recall("warranty", where=RecallFilter(kinds=["chunk"])).documents,
    ),
    (
        lambda m: m.delete("a.md"),
        AttributeError,
        "memory.documents.forget(source)",
        lambda m: m.documents.forget("lamps.md"),
    ),
    (lambda m: m.erase(user="ann"), TypeError, "memory.erase(Scope(tenant, user=...))", lambda m: m.erase(ANN)),
    (
        lambda m: m.session("chat", user="ann"),
        TypeError,
        f"{USER}.session(id)",
        lambda m: m.within(ANN).session("chat").id == "chat",
    ),
    (
        lambda m: m.within(user="ann"),
        TypeError,
        f"use {USER}",
        lambda m: m.within(ANN).facts.add("Green."),
    ),
    (
        lambda m: m.facts.add("Green.", user="ann"),
        TypeError,
        f"{USER}.facts.add(text)",
        lambda m: m.within(ANN).facts.add("Green."),
    ),
    (lambda m: m.facts.delete("f1"), AttributeError, "facts.remove(id)", lambda m: not m.facts.remove("f1")),
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "memory", scope="shop") as opened:
        opened.documents.add("A warranty of two years.", source="lamps.md", metadata={"kind": "lamp"})
        yield opened


@pytest.mark.parametrize(("wrong", "error", "message", "right"), WRONG)
def test_the_message_names_a_way_that_works(
    memory: Memory,
    wrong: Callable[[Any], object],
    error: type[Exception],
    message: str,
    right: Callable[[Any], object],
) -> None:
    check_right_way(lambda: wrong(memory), error, message, lambda: right(memory))


def test_a_pattern_of_files_becomes_a_list_of_paths(memory: Any, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Desks.")
    (tmp_path / "b.txt").write_text("Chairs.")
    with pytest.raises(TypeError) as caught:
        memory.ingest(tmp_path, glob="*.md")
    assert "memory.ingest([*Path(folder).glob('*.md')])" in str(caught.value)
    assert memory.ingest([*tmp_path.glob("*.md")]).added == (str(tmp_path / "a.md"),)


def test_a_scope_without_a_tenant_belongs_to_the_tenant_of_a_memory_without_a_scope(tmp_path: Path) -> None:
    with Memory(tmp_path / "memory") as memory:
        assert Scope(user="ann").tenant == memory.scope.tenant
        memory.within(Scope(user="ann")).facts.add("Likes tea.")
        memory.facts.add("Opens at nine.")
        assert len(memory.within(Scope(user="ann")).recall("tea nine").knowledge) == 2
        assert len(memory.within(Scope(user="bob")).recall("tea nine").knowledge) == 1
    with pytest.raises(InvalidArgument):
        Scope("", user="ann")


def test_a_memory_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Memory(tmp_path / "shop.db")
    assert f"Memory({str(tmp_path / 'shop')!r})" in str(caught.value)
    (tmp_path / "old.db").mkdir()
    Memory(tmp_path / "old.db").close()


def test_the_file_of_a_memory_leads_to_its_folder(tmp_path: Path) -> None:
    with Memory(tmp_path / "shop") as memory:
        memory.facts.add("Green.")
    with pytest.raises(InvalidArgument) as caught:
        Memory(tmp_path / "shop" / "memory.db")
    assert f"Memory({str(tmp_path / 'shop')!r})" in str(caught.value)


def test_the_module_names_the_filter() -> None:
    with pytest.raises(ImportError, match=r"use agentkit\.memory\.RecallFilter"):
        exec("from agentkit.memory import Filter")
