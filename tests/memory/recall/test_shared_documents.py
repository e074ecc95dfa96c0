"""Shared documents: read by name only, stored for no tenant, and tenants without documents."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agentkit.memory import InvalidArgument, Memory, RecallFilter, Scope
from tests.raising import raises

TEXT = "The zebra may be returned within 30 days."


def test_shared_documents_are_read_by_name_and_belong_to_no_tenant(either: Memory, docs: Path) -> None:
    (docs / "returns.md").write_text(TEXT)
    either.ingest(docs, shared="manuals")
    either.shared_documents("prices").add("A zebra costs 30.", source="prices")
    either.documents.add("The zebra of local.", source="local")
    readers = (
        (either, {"local"}),
        (either.within("acme"), set()),
        (either.within(Scope("acme", user="manuals")), set()),
        (either.within("manuals"), set()),
        (either.within("acme", shared=["Manuals", "manual", "manuals2"]), set()),
        (either.within("acme", shared=["manuals"]), {"returns.md"}),
        (either.within("acme", shared=("manuals", "prices", "manuals")), {"returns.md", "prices"}),
        (either.within("x", shared=["manuals"]).within(Scope("acme", user="ada", session="s")), {"returns.md"}),
        (either.within("x", shared=["manuals"]).within("acme", shared=[]), set()),
        (either.within("local", shared=iter(["prices"])), {"local", "prices"}),
    )
    wrong = []
    for reader, expected in readers:
        for where in (None, RecallFilter(kinds=("chunk",))):
            sources = {Path(document.source).name for document in reader.recall("zebra", where=where).documents}
            if sources != expected:
                wrong.append((reader.scope, reader.shared, sources))
    assert wrong == []
    reader = either.within("acme", shared=["manuals"])
    reader.documents.add("A zebra of acme.", source="acme")
    assert reader.erase("acme").complete
    assert [Path(document.source).name for document in reader.recall("zebra").documents] == ["returns.md"]
    assert either.admin.verify().ok
    # Only the handle of the shared documents can forget the shared document.
    shared = either.shared_documents("manuals")
    (document,) = shared
    assert not any(memory.documents.forget(document.source) for memory in (either, reader))
    assert (shared.forget(document.source), reader.recall("zebra").documents) == (True, ())


def test_no_scope_has_the_name_of_shared_documents(memory: Memory) -> None:
    for tenant in ("shared:manuals", "shared:"):
        for name in (memory.within, Scope, Scope("acme").of):
            with raises(InvalidArgument, value=tenant):
                name(tenant)  # type: ignore[operator]
    for names in ("manuals", b"manuals", 3, None, [3], [""], ["a\0"], ["m" * 249], [["manuals"]]):
        if names is not None:
            with pytest.raises(InvalidArgument):
                memory.within("acme", shared=names)  # type: ignore[arg-type]
    for name in (3, "", "a\0", "m" * 249):
        with pytest.raises(InvalidArgument):
            memory.shared_documents(name)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            memory.ingest(".", shared=name)  # type: ignore[arg-type]
    assert memory.within("Shared:manuals").scope.tenant == "Shared:manuals"


def test_a_tenant_without_documents_is_reported_once(either: Memory, caplog: pytest.LogCaptureFixture) -> None:
    def reported(reader: Memory) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "agentkit.memory"):
            reader.recall("zebra")
            reader.recall("zebra")
        assert [record.getMessage() for record in caplog.records] == reader.missing_documents()
        return [record.getMessage().split(",")[0] for record in caplog.records]

    # An empty store misses no documents; a tenant is checked once in a process.
    assert either.within("first").missing_documents() == []
    either.within(Scope("bolt", user="bob")).documents.add(TEXT, source="bob")
    either.within("acme").session("talk")
    cases = (
        (either.within("acme"), ["the tenant 'acme' has no documents"]),
        (either.within(Scope("cell", user="ada")), ["the tenant 'cell' has no documents"]),
        (either.within("bolt"), []),
        (either.within(Scope("bolt", session="s")), None),
        (
            either.within("bolt", shared=["manuals"]),
            ["no shared documents have the name 'manuals'"],
        ),
    )
    wrong = []
    for reader, expected in cases:
        if expected is None:
            caplog.clear()
            reader.recall("zebra")
            assert not caplog.records
        elif [text[: len(start)] for text, start in zip(reported(reader), expected, strict=True)] != expected:
            wrong.append((reader.scope, reader.shared))
    assert wrong == []
    either.shared_documents("manuals").add(TEXT, source="manual")
    assert either.within("dash", shared=["manuals"]).missing_documents() == []
    assert len(either.within("dash", shared=["manual"]).missing_documents()) == 2
    either.within(Scope("bolt", user="bob")).documents.forget("bob")
    assert "Memory(..., shared=['manuals'])" in either.within("dash").missing_documents()[0]
