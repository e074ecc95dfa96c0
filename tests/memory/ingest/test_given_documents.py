"""Documents without files: added, listed, shown and forgotten by their source; missing files are forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import IngestError, Memory, Scope
from agentkit.prompts import Document
from tests.memory.interleaving import before
from tests.raising import raises


def test_a_text_is_recalled_listed_and_forgotten_by_its_source(either: Memory) -> None:
    added = either.documents.add(
        "Steep green tea at 80 degrees.", source="wiki/tea", metadata={"lang": "en", "year": 2024}
    )
    assert (added.source, added.chunks, added.is_file, dict(added.metadata)) == (
        "wiki/tea",
        1,
        False,
        {"lang": "en", "year": 2024},
    )
    (found,) = either.recall("How hot should green tea be?").documents
    assert (found.source, found.metadata["year"], found.position) == ("wiki/tea", 2024, 0)
    assert either.documents.list() == (added,) == (either.documents.get("wiki/tea"),)
    assert [chunk.text for chunk in either.documents.chunks("wiki/tea")] == ["Steep green tea at 80 degrees."]
    either.worker().drain()
    assert either.documents.forget("wiki/tea") and not either.documents.forget("wiki/tea")
    assert (
        either.recall("green tea") == () and either.documents.list() == () and either.documents.get("wiki/tea") is None
    )
    either.worker().drain()
    assert either.admin.verify().points == 0


def test_equal_content_changes_nothing_and_other_content_replaces_it(memory: Memory) -> None:
    first = memory.documents.add("Green tea is hot.", source="tea")
    memory.worker().drain()
    assert memory.documents.add("Green tea is hot.", source="tea") == first
    assert memory.admin.verify().pending == 0
    memory.documents.add("Black tea is hotter.", source="tea")
    assert [found.text for found in memory.recall("tea")] == ["Black tea is hotter."]
    renewed = memory.documents.add("Black tea is hotter.", source="tea", metadata={"kind": "black"})
    assert renewed.id == first.id and memory.recall("tea")[0].metadata["kind"] == "black"


def test_bytes_are_read_by_the_ending_of_their_source(memory: Memory) -> None:
    memory.documents.add(
        b"<html><body><h1>Tea</h1><p>Steep it.</p><script>no()</script>", source="https://x.org/a.html?b=1"
    )
    memory.documents.add("# Coffee\n\nGrind it.\n", source="notes/coffee.md")
    memory.documents.add(b'{"text": "Cocoa is sweet", "page": 3}\n', source="more.jsonl", metadata={"by": "Ada"})
    assert [(found.title, found.text) for found in memory.recall("steep")] == [("Tea", "Tea\n\nSteep it.")]
    assert [found.title for found in memory.recall("grind")] == ["Coffee"]
    (found,) = memory.recall("cocoa").documents
    assert (found.metadata["page"], found.metadata["by"]) == (3, "Ada")


def test_a_document_keeps_its_source_title_and_metadata(memory: Memory) -> None:
    given = Document("Steep it at 80 degrees.", source="wiki", title="Green tea", metadata={"a": 1, "b": 1})
    memory.documents.add(given, metadata={"b": 2})
    (found,) = memory.recall("green tea").documents
    assert (found.source, found.title) == ("wiki", "Green tea")
    assert (found.metadata["a"], found.metadata["b"]) == (1, 2)


def test_a_title_is_stored_without_characters_that_a_database_refuses(memory: Memory) -> None:
    memory.documents.add(Document("Green tea.", source="wiki", title="a\0b\ud800"))
    assert [chunk.title for chunk in memory.documents.chunks("wiki")] == ["a\ufffdb\ufffd"]


def test_a_document_that_is_forgotten_during_its_addition_is_an_error(memory: Memory) -> None:
    documents = memory.documents
    forgetting = before(memory, "SELECT documents.id, documents.source", 1, lambda: documents.forget("tea"))
    with forgetting, raises(IngestError, source="tea"):
        documents.add("Green tea.", source="tea")
    assert documents.list() == ()


def test_documents_of_another_scope_are_not_seen(memory: Memory) -> None:
    ada, bob = (memory.within(Scope("t", user=name)) for name in ("ada", "bob"))
    ada.documents.add("Green tea.", source="tea")
    assert bob.documents.list() == () and bob.documents.get("tea") is None and bob.documents.chunks("tea") == ()
    assert not bob.documents.forget("tea") and len(ada.recall("tea")) == 1


def test_a_long_document_is_added_and_read_in_pages(memory: Memory) -> None:
    text = "\n\n".join(f"Paragraph {number} is about subject {number}. " * 20 for number in range(2100))
    added = memory.documents.add(text, source="long")
    assert added.chunks == 2100
    page = memory.documents.chunks("long", after=2097)
    assert [chunk.position for chunk in page] == [2098, 2099]
    for number in (1, 2, 3):
        memory.documents.add("short", source=f"short {number}")
    assert [each.source for each in memory.documents.list(limit=2)] == ["long", "short 1"]
    assert [each.source for each in memory.documents.list(after="short 1")] == ["short 2", "short 3"]


@pytest.mark.parametrize(
    ("content", "options", "problems"),
    [
        (3, {"source": ""}, ["expected text, bytes or a Document", "name the document"]),
        ("x", {"source": 3}, ["name the document"]),
        ("x", {"source": "a\0"}, ["NUL"]),
        ("x", {"source": "a" * 5000}, ["too long"]),
        ("x", {"source": "a", "metadata": {"deep": object()}}, ["not JSON"]),
        ("x", {"source": "a", "metadata": {"long": "x" * 10**6}}, ["1,000,012 characters"]),
        ("x", {"source": "a", "metadata": [1]}, ["mapping of names"]),
        (b"\xff\xfe\xff", {"source": "a.md"}, ["text"]),
        (b"%PDF-1.7 nonsense", {"source": "a.pdf"}, ["a.pdf"]),
        (b"%PDF-1.7 \0", {}, ["`.pdf`"]),
        ("a\0b", {"source": "a"}, ["binary"]),
        ("a\ud800b", {"source": "a"}, ["not UTF-8 text"]),
    ],
)
def test_the_error_of_an_invalid_document_names_each_problem_and_changes_nothing(
    memory: Memory, content: Any, options: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(IngestError) as raised:
        memory.documents.add(content, **options)
    assert all(problem in str(raised.value) for problem in problems), raised.value
    assert memory.documents.list() == ()


def test_a_document_without_a_source_is_named_by_its_content(memory: Memory) -> None:
    first, again = memory.documents.add("The tower is high."), memory.documents.add("The tower is high.")
    other = memory.documents.add(b"The river is long.")
    as_bytearray: Any = bytearray(b"The river is long.")
    assert memory.documents.add(as_bytearray) == other
    assert first.source == again.source != other.source
    assert sorted(each.source for each in memory.documents.list()) == sorted([first.source, other.source])


def test_an_ingested_file_is_listed_and_forgotten(memory: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("Green tea.")
    memory.ingest(docs)
    (listed,) = memory.documents.list()
    assert listed.is_file and listed.source == str(docs / "a.md")
    assert memory.documents.forget(listed.source) and memory.recall("tea") == ()
    assert memory.ingest(docs).added == (listed.source,)


def test_ingesting_a_missing_file_by_name_forgets_it(either: Memory, docs: Path) -> None:
    file, other = docs / "a.md", docs / "b.md"
    file.write_text("Green tea.")
    other.write_text("Black tea.")
    either.ingest([file, other])
    file.unlink()
    report = either.ingest([file, other])
    assert (report.removed, report.errors, report.unchanged) == ((str(file),), (), (str(other),))
    assert [found.text for found in either.recall("tea")] == ["Black tea."]
    with pytest.raises(IngestError) as caught:  # the file is already forgotten
        either.ingest(file)
    assert caught.value.source == str(file)


def test_ingesting_a_missing_folder_by_name_forgets_its_files(memory: Memory, docs: Path) -> None:
    (docs / "sub").mkdir()
    (docs / "sub" / "a.md").write_text("Green tea.")
    (docs / "b.md").write_text("Black tea.")
    memory.ingest(docs)
    (docs / "sub" / "a.md").unlink()
    (docs / "sub").rmdir()
    report = memory.ingest(docs / "sub")
    assert [Path(name).name for name in report.removed] == ["a.md"] and report.errors == ()
    assert [found.text for found in memory.recall("tea")] == ["Black tea."]
