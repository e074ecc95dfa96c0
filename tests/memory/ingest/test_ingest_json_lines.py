"""JSON lines: each record is a separate document, with the named fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import IngestError, IngestOptions, Memory
from agentkit.testing import StoreProbe
from agentkit_memory.ingest.readers import json_lines as records


def put(docs: Path, *lines: Any) -> None:
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (docs / "a.jsonl").write_text("\n".join(rows) + "\n")


def stored(memory: Memory) -> list[tuple[int, int, str, str, dict[str, Any]]]:
    return [(row.position, row.line, row.title, row.text, json.loads(row.meta)) for row in StoreProbe(memory).items()]


def test_a_record_has_text_title_metadata_and_a_line(either: Memory, docs: Path) -> None:
    put(
        docs,
        {"title": "Zoo", "text": "A zebra.", "year": 1999, "tags": ["x"]},
        "",
        {"content": "A violin.", "ok": True},
    )
    report = either.ingest(docs)
    assert (report.errors, report.chunks) == ((), 2)
    assert stored(either) == [
        (0, 1, "Zoo", "A zebra.", {"year": 1999}),
        (2, 3, "", "A violin.", {"ok": True}),  # not a neighbour of the previous record
    ]
    assert either.recall("zebra")[0].title == "Zoo"


def test_fields_within_objects_can_be_named(memory: Memory, docs: Path) -> None:
    put(docs, {"q": "Why?", "doc": {"body": "Because.", "name": "N"}, "a.b": 3, "text": "not this"})
    options = IngestOptions(
        record_text=("q", "doc.body"), record_title=("doc.name",), record_metadata=("a.b", "absent")
    )
    memory.ingest(docs, options=options)
    assert stored(memory) == [(0, 1, "N", "Why?\n\nBecause.", {"a.b": 3})]


def test_options_of_records_without_an_effect_are_refused(memory: Memory, docs: Path) -> None:
    (docs / "a.csv").write_text("text,year\nzebra,1999\n")
    for options in (
        IngestOptions(record_text=("body",)),
        IngestOptions(record_title=("name",)),
        IngestOptions(record_metadata=("year",)),
    ):
        for path in (docs, docs / "a.csv"):
            with pytest.raises(IngestError):
                memory.ingest(path, options=options)
    assert memory.recall("zebra") == ()
    put(docs, {"body": "violin"})
    assert len(memory.ingest(docs, options=IngestOptions(record_text=("body",))).added) == 2
    assert memory.ingest(docs / "a.csv", options=IngestOptions(record_metadata=None)).unchanged


def test_an_unchanged_file_is_read_again_for_other_fields(memory: Memory, docs: Path) -> None:
    put(docs, {"text": "zebra", "body": "violin"})
    memory.ingest(docs, options=IngestOptions(record_text=("text",)))
    assert memory.recall("violin") == ()
    report = memory.ingest(docs, options=IngestOptions(record_text=("body",)))
    assert (len(report.changed), len(memory.recall("violin")), memory.recall("zebra")) == (1, 1, ())


def test_a_long_record_becomes_several_adjacent_chunks(memory: Memory, docs: Path) -> None:
    put(docs, {"text": "A sentence of some words. " * 100, "id": 7}, {"text": "short"})
    memory.ingest(docs)
    rows = stored(memory)
    assert [row[0] for row in rows] == [0, 1, 2, 4]
    assert [row[1] for row in rows] == [1, 1, 1, 2]
    assert [row[4] for row in rows] == [{"id": 7}] * 3 + [{}]


BAD = [
    ("{no json", "line 2 is not JSON (Expecting property name"),
    ('{"text": NaN}', "line 2 is not JSON (NaN is not a number)"),
    ("[" * 100_000, "line 2 is not JSON (nested too deeply)"),
    ('{"text": ' + "1" * 5000 + "}", "line 2 is not JSON (Exceeds the limit"),
    ('["text"]', "line 2 is not an object but list"),
    ('{"txt": "x"}', "line 2 has no field 'text' or 'content' or 'body'; did you mean 'txt'?"),
    ('{"text": null}', "line 2 has no field 'text'"),
    ('{"text": 3}', "line 2 has a text that is not a string but int"),
    ('{"text": "\\ud800"}', "line 2 contains \\ud800, which cannot be stored"),
    ('{"text": "a\\u0000b"}', "line 2 contains \\u0000"),
    (
        json.dumps({"text": "x", **{f"field {n}": "y" * 400 for n in range(30)}}),
        "line 2 has metadata that has 12,470 characters as JSON, at most 8,192",
    ),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=[said[7:30] for _, said in BAD])
def test_an_invalid_record_is_reported_with_its_line_and_nothing_is_stored(
    memory: Memory, docs: Path, line: str, said: str
) -> None:
    put(docs, {"text": "zebra"}, line)
    (error,) = memory.ingest(docs).errors
    assert str(error).startswith(f"{docs}/a.jsonl: {said}")
    assert memory.recall("zebra") == ()


def test_all_invalid_records_are_reported_up_to_a_limit(memory: Memory, docs: Path) -> None:
    put(docs, *(["no"] * 25))
    (error,) = memory.ingest(docs).errors
    assert [f"line {number} " in str(error) for number in (1, 10, 11)] == [True, True, False]
    assert str(error).endswith("; and 15 more")


def test_lenient_ingestion_stores_valid_records_and_reports_skipped_records(either: Memory, docs: Path) -> None:
    put(docs, {"text": "zebra"}, "no", {"text": "vio\udc00lin \0 harbor"})
    report = either.ingest(docs, options=IngestOptions(lenient=True))
    assert (report.errors, len(report.added)) == ((), 1)
    assert "line 2 is not JSON" in str(report.repaired[0])
    assert [row[3] for row in stored(either)] == ["zebra", "vio\ufffdlin \ufffd harbor"]


def test_a_line_that_is_too_long_is_reported_and_not_kept_in_memory(
    memory: Memory, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_RECORD", 100_000)
    with (docs / "a.jsonl").open("w") as file:
        file.write('{"text": "zebra"}\n{"text": "' + "x" * 600_000 + '"}\n{"text": "violin"}\n' + "y" * 200_000)
    (error,) = memory.ingest(docs).errors
    assert str(error).endswith("line 2 is longer than 100,000 characters; line 4 is longer than 100,000 characters")
    memory.ingest(docs, options=IngestOptions(lenient=True))
    assert [row[1:4] for row in stored(memory)] == [(1, "", "zebra"), (3, "", "violin")]


def test_a_record_without_words_becomes_no_chunk(memory: Memory, docs: Path) -> None:
    put(docs, {"text": " \n"}, {"text": ""}, {"text": "zebra"})
    assert memory.ingest(docs).chunks == 1
