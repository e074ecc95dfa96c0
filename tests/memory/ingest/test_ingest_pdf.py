"""PDF by pages, read in a process of its own: what is broken, locked or made to explode ends only that."""

from __future__ import annotations

import io
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentkit.memory import IngestOptions, Memory
from agentkit_memory.ingest.readers import pdf, pdf_worker

pypdf = pytest.importorskip("pypdf", reason="needs the extra `ingest`")


def make(pages: Sequence[bytes | str], *, title: str = "", packed: Sequence[int] = (), shared: bool = False) -> bytes:
    """A PDF whose pages show one line of text each, or have the given content; those in `packed` are compressed.

    If it is `shared`, all show the content of the first.
    """
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        content = f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode() if isinstance(page, str) else page
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 if shared else 5 + 2 * number} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        extra = b""
        if number in packed:
            content, extra = zlib.compress(content, 9), b" /Filter /FlateDecode"
        objects.append(b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(content), extra, content))
    objects.append(f"<< /Title ({title}) >>".encode())
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    places = []
    for number, each in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, each))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(
        b"trailer << /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, len(objects), start)
    )
    return out.getvalue()


def locked(password: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(make(["zebra behind a lock"])))
    writer.encrypt(user_password=password, owner_password="owner", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def refused(memory: Memory, docs: Path, content: bytes) -> str:
    (docs / "a.pdf").write_bytes(content)
    (docs / "b.md").write_text("the rest goes on")
    report = memory.ingest(docs)
    assert len(report.added) == 1
    (error,) = report.errors
    return str(error).removeprefix(f"{docs}/a.pdf: ")


def test_every_page_is_a_chunk_with_its_page_number(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(make(["The zebra is striped", "A violin has strings", ""], title="Nature"))
    report = memory.ingest(docs)
    assert (report.errors, report.chunks) == ((), 2)
    (found,) = memory.recall("violin")
    assert (found.text, found.title, found.position) == ("A violin has strings", "Nature", 1)
    chunks = memory.documents.chunks(str(docs / "a.pdf"))
    places = [(chunk.metadata["page"], chunk.metadata["line"], chunk.metadata["start"]) for chunk in chunks]
    assert places == [(1, 1, 0), (2, 1, 0)]


def test_an_unchanged_pdf_is_passed_over_and_a_changed_one_replaced(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(make(["zebra", "violin"]))
    memory.ingest(docs)
    assert len(memory.ingest(docs).unchanged) == 1
    (docs / "a.pdf").write_bytes(make(["zebra", "harbor"]))
    assert len(memory.ingest(docs).changed) == 1
    assert [len(memory.recall(word)) for word in ("zebra", "violin", "harbor")] == [1, 0, 1]


def test_one_that_opens_without_a_password_is_read(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(locked(""))
    assert memory.ingest(docs).errors == ()
    assert len(memory.recall("zebra")) == 1


def test_one_that_asks_for_a_password_is_refused(memory: Memory, docs: Path) -> None:
    assert refused(memory, docs, locked("secret")) == "is encrypted; decrypt it first"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is corrupt, or not a PDF"),
        (b"not a pdf at all", "is corrupt, or not a PDF"),
        (b"\0" * 5000, "is corrupt, or not a PDF"),
        (make(["", ""]), "contains no text, perhaps only images; convert it with OCR first"),
        (make(["zebra"]).replace(b"/Pages 2 0 R", b"/Pages 9 0 R"), "is corrupt, or not a PDF"),
        (make(["zebra"]).replace(b"[4 0 R]", b"[2 0 R]"), ""),
    ],
    ids=["empty", "text", "zeros", "images", "no pages", "pages of themselves"],
)
def test_broken_ones_are_reported_and_the_rest_goes_on(memory: Memory, docs: Path, content: bytes, said: str) -> None:
    assert refused(memory, docs, content).startswith(said)


@pytest.mark.long
def test_a_page_that_unpacks_to_a_bomb_is_refused_with_its_number(memory: Memory, docs: Path) -> None:
    bomb = make(["zebra", b" " * 300_000_000, "violin"], packed=[1])
    assert len(bomb) < 1_000_000
    said = refused(memory, docs, bomb)
    assert said.startswith("page 2 cannot be read (LimitReachedError")
    assert memory.recall("zebra") == ()


@pytest.mark.long
def test_leniently_the_other_pages_are_stored(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(make(["zebra", b" " * 300_000_000, "violin"], packed=[1]))
    report = memory.ingest(docs, options=IngestOptions(lenient=True))
    assert (len(report.added), report.errors) == (1, ())
    assert "page 2 cannot be read" in str(report.repaired[0])
    assert [len(memory.recall(word)) for word in ("zebra", "violin")] == [1, 1]
    assert memory.ingest(docs, options=IngestOptions(lenient=True)).unchanged
    assert memory.ingest(docs).errors  # strictly, it is as bad as before
    assert len(memory.recall("violin")) == 1


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import time; time.sleep(3600)", "has a page that takes more than 0.5 seconds to read"),
        ("import os; os.abort()", "crashed its reader (exit code -6); it is corrupt"),
        ("print('[\"page\", 1, \"half', end='')", "crashed its reader (exit code 0); it is corrupt"),
        ('print(\'["no", "takes too much memory to read"]\')', "takes too much memory to read"),
    ],
)
def test_a_reader_that_hangs_or_dies_is_one_file_less(
    memory: Memory, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(program)
    monkeypatch.setattr(pdf, "_WORKER", worker)
    monkeypatch.setattr(pdf, "MAX_PAGE_SECONDS", 0.5 if "sleep" in program else 30.0)
    assert refused(memory, docs, make(["zebra"])) == said


@pytest.mark.long
def test_pages_that_share_what_they_show_have_a_limit_together(
    memory: Memory, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"BT /F1 12 Tf 10 700 Td " + b"".join(b"(Zebra %d) Tj 0 -14 Td\n" % line for line in range(500)) + b" ET"
    bomb = make([lines, *[""] * 59], packed=[0], shared=True)
    monkeypatch.setattr(pdf, "MAX_FILE_TEXT", 20_000)
    monkeypatch.setattr(pdf, "CHARS_PER_BYTE", 1)
    most = f"{20_000 + len(bomb):,}"
    said = f"has more than {most} characters of text, too many for its {len(bomb):,} bytes: it may be a bomb"
    assert refused(memory, docs, bomb) == said
    assert memory.recall("zebra") == ()
    monkeypatch.setattr(pdf, "CHARS_PER_BYTE", 32)  # a file that is as large as this may have as much
    assert memory.ingest(docs).errors == ()
    assert memory.recall("zebra")


PAGES = """if True:
    import json, time
    print(json.dumps(["title", ""]), flush=True)
    for number in range(1, 1001):
        time.sleep(0.05)
        print(json.dumps(["page", number, "zebra"]), flush=True)
    print(json.dumps(["end"]), flush=True)
"""


def test_pages_each_of_which_is_quick_have_a_time_together(
    memory: Memory, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(PAGES)
    monkeypatch.setattr(pdf, "_WORKER", worker)
    monkeypatch.setattr(pdf, "MAX_FILE_SECONDS", 0.4)
    monkeypatch.setattr(pdf, "SECONDS_PER_MB", 1000.0)
    content = make(["zebra"])
    seconds = 0.4 + len(content) / 1000
    said = f"takes more than {seconds:.0f} seconds to read, too many for its {len(content):,} bytes; split it"
    assert refused(memory, docs, content) == said
    assert memory.recall("zebra") == ()


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux")
def test_the_reader_has_a_limit_of_memory(
    memory: Memory, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdf").mkdir()
    (tmp_path / "pypdf" / "__init__.py").write_text("PdfReader = lambda stream: bytearray(1 << 30)")
    (tmp_path / "pypdf" / "errors.py").write_text("DependencyError = OSError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert refused(memory, docs, make(["zebra"])) == "takes too much memory to read: it may be a zip bomb"


def test_without_the_extra_a_pdf_is_reported(
    memory: Memory, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdf.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert refused(memory, docs, make(["zebra"])) == "needs pypdf: install the extra `ingest`"


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[bytes], list[list[object]]]:
    """Return a function that runs the program in this process, without its limits, and returns what it prints."""
    monkeypatch.setitem(sys.modules, "resource", None)

    def run(content: bytes) -> list[list[object]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        pdf_worker.main()
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_what_the_reader_says(printed: Callable[[bytes], list[list[object]]]) -> None:
    assert printed(make(["zebra", ""], title="Nature")) == [
        ["title", "Nature"],
        ["page", 1, "zebra"],
        ["page", 2, ""],
        ["end"],
    ]
    assert printed(make(["zebra"], title="Nature" * 100_000))[0] == ["title", ("Nature" * 100_000)[:65536]]
    assert printed(locked("secret")) == [["no", "is encrypted; decrypt it first"]]
    title, page, end = printed(make([b" " * 100_000_000], packed=[0]))
    assert (title, end) == (["title", ""], ["end"])
    assert page[:2] == ["bad", 1] and str(page[2]).startswith("LimitReachedError")


def test_text_that_cannot_be_stored_becomes_the_character_for_that(
    printed: Callable[[bytes], list[list[object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pypdf.PageObject, "extract_text", lambda page: "a\0b\ud800c")
    assert printed(make(["zebra"]))[1] == ["page", 1, "a\ufffdb\ufffdc"]
