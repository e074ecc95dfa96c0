"""Calls of a memory in the vocabulary of other libraries: the message names a call that works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import FactDraft, IngestOptions, Memory, RecallFilter, Scope
from agentkit.prompts import Document
from agentkit_memory.errors import IngestError, InvalidArgument
from tests.wrong_calls import check_right_way

USER = "memory.within(memory.scope.narrow(user=...))"
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
    (lambda m: m.erase(user="ann"), TypeError, "memory.erase(memory.scope.narrow(user=...))", lambda m: m.erase(ANN)),
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
    (lambda m: m.sessions(ANN), TypeError, f"{USER}.sessions(", lambda m: m.within(ANN).sessions() == ()),
    (lambda m: m.sessions(user="ann"), TypeError, f"{USER}.sessions()", lambda m: m.within(ANN).sessions() == ()),
    (
        lambda m: m.delete_session("chat", user="ann"),
        TypeError,
        f"{USER}.delete_session(id)",
        lambda m: not m.within(m.scope.narrow(user="ann")).delete_session("chat"),
    ),
    (lambda m: m.session("chat", tenant="desk"), TypeError, "within(tenant)", lambda m: m.within("desk").session("c")),
    (
        lambda m: m.documents.add("Lamps.", title="Lamps"),
        TypeError,
        "memory.documents.add(Document(text, title=..., source=...))",
        lambda m: m.documents.add(Document("Lamps.", title="Lamps", source="l.md")),
    ),
    (
        lambda m: m.ingest("Lamps.", title="Lamps"),
        TypeError,
        "memory.documents.add(Document(text, title=..., source=...))",
        lambda m: m.documents.add(Document("Lamps.", title="Lamps", source="l.md")),
    ),
    (lambda m: m.ingest("Lamps."), IngestError, "memory.documents.add(text)", lambda m: m.documents.add("Lamps.")),
    (
        lambda m: m.documents.get("lamps.md").title,
        AttributeError,
        "memory.documents.chunks(source)[0].title",
        lambda m: m.documents.chunks("lamps.md")[0].title == "",
    ),
    (
        lambda m: m.erase("lamps.md"),
        InvalidArgument,
        "memory.documents.forget(source)",
        lambda m: m.documents.forget("lamps.md"),
    ),
    (
        lambda m: m.recall("x", where=RecallFilter(kinds=["document"])),
        InvalidArgument,
        "'chunk' for documents",
        lambda m: m.recall("warranty", where=RecallFilter(kinds=["chunk"])).documents,
    ),
    (
        lambda m: m.facts.add(FactDraft("Green.", sources=())),
        InvalidArgument,
        "facts.add(text",
        lambda m: m.facts.add("Green."),
    ),
    (lambda m: FactDraft("Green."), TypeError, "memory.facts.add(text)", lambda m: m.facts.add("Green.")),  # type: ignore[call-arg]
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "memory", scope="shop") as opened:
        opened.documents.add("A warranty of two years.", source="lamps.md", metadata={"kind": "lamp"})
        yield opened


@pytest.mark.parametrize(("wrong", "error", "message", "right"), WRONG)
def test_the_message_names_a_call_that_works(
    memory: Memory,
    wrong: Callable[[Any], object],
    error: type[Exception],
    message: str,
    right: Callable[[Any], object],
) -> None:
    check_right_way(lambda: wrong(memory), error, message, lambda: right(memory))


def test_an_iteration_reads_all_documents_and_facts_of_the_scope(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentkit_memory.ingest.given_documents._PAGE_SIZE", 2)
    (tmp_path / "b.md").write_text("Desks.")
    memory.ingest(tmp_path / "b.md")
    # The page ends between the file and the added document of the same source.
    for source in ("/a", str(tmp_path / "b.md"), "z1", "z2"):
        memory.documents.add(source, source=source)
    sources = [document.source for document in memory.documents]
    assert sources == ["/a", *[str(tmp_path / "b.md")] * 2, "lamps.md", "z1", "z2"]
    for number in range(5):
        memory.facts.add(f"Fact {number}.")
    memory.within(ANN).facts.add("Of Ann.")
    assert [fact.text for fact in memory.facts] == [f"Fact {number}." for number in range(5)]


def test_all_attributes_of_the_options_of_ingestion_are_options() -> None:
    assert {name for name in dir(IngestOptions()) if not name.startswith("_")} == {*IngestOptions.__annotations__}


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


def test_the_file_of_a_memory_opens_its_folder(tmp_path: Path) -> None:
    with Memory(tmp_path / "shop") as memory:
        memory.facts.add("Green.")
    with pytest.raises(InvalidArgument) as caught:
        Memory(tmp_path / "shop" / "memory.db")
    assert f"Memory({str(tmp_path / 'shop')!r})" in str(caught.value)


def test_the_module_names_the_filter() -> None:
    with pytest.raises(ImportError, match=r"use agentkit\.memory\.RecallFilter"):
        exec("from agentkit.memory import Filter")
