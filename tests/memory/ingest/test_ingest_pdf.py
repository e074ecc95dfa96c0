"""PDF by pages, read in a separate process: corrupt, encrypted or hostile files end only this process."""

from __future__ import annotations

import io
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentkit.memory import IngestOptions, Memory
from agentkit_memory.ingest.isolated import one_file
from agentkit_memory.ingest.readers import separate_process
from agentkit_prompts.extras import install

pypdf = pytest.importorskip("pypdf", reason="needs the extra `ingest`")


def make(pages: Sequence[bytes | str], *, title: str = "", packed: Sequence[int] = (), shared: bool = False) -> bytes:
    """Make a PDF with a line of text on each page, or with the given contents; the pages in `packed` are compressed.

    If it is `shared`, all pages show the content of the first page.
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


def test_each_page_is_a_chunk_with_its_page_number(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(make(["The zebra is striped", "A violin has strings", ""], title="Nature"))
    report = memory.ingest(docs)
    assert (report.errors, report.chunks) == ((), 2)
    (found,) = memory.recall("violin")
    assert (found.text, found.title, found.position) == ("A violin has strings", "Nature", 1)
    chunks = memory.documents.chunks(str(docs / "a.pdf"))
    places = [(chunk.metadata["page"], chunk.metadata["line"], chunk.metadata["start"]) for chunk in chunks]
    assert places == [(1, 1, 0), (2, 1, 0)]


def test_an_unchanged_pdf_is_skipped_and_a_changed_pdf_is_replaced(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(make(["zebra", "violin"]))
    memory.ingest(docs)
    assert len(memory.ingest(docs).unchanged) == 1
    (docs / "a.pdf").write_bytes(make(["zebra", "harbor"]))
    assert len(memory.ingest(docs).changed) == 1
    assert [len(memory.recall(word)) for word in ("zebra", "violin", "harbor")] == [1, 0, 1]


def test_a_pdf_with_an_empty_password_is_read(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(locked(""))
    assert memory.ingest(docs).errors == ()
    assert len(memory.recall("zebra")) == 1


def test_a_pdf_with_a_password_is_refused(memory: Memory, docs: Path) -> None:
    assert refused(memory, docs, locked("secret")) == "is encrypted; decrypt it first"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is corrupt, or not a PDF"),
        (b"not a pdf at all", "is corrupt, or not a PDF"),
        (b"\0" * 5000, "is corrupt, or not a PDF"),
        (make(["", ""]), "contains no text: pages 1-2: no text, perhaps only an image; convert it with OCR"),
        (make(["zebra"]).replace(b"/Pages 2 0 R", b"/Pages 9 0 R"), "is corrupt, or not a PDF"),
        (make(["zebra"]).replace(b"[4 0 R]", b"[2 0 R]"), ""),
    ],
    ids=["empty", "text", "zeros", "images", "no pages", "pages of themselves"],
)
def test_corrupt_pdfs_are_reported_and_other_files_are_ingested(
    memory: Memory, docs: Path, content: bytes, said: str
) -> None:
    assert refused(memory, docs, content).startswith(said)


@pytest.mark.long
def test_a_page_that_decompresses_to_a_bomb_is_refused_with_its_number(memory: Memory, docs: Path) -> None:
    bomb = make(["zebra", b" " * 300_000_000, "violin"], packed=[1])
    assert len(bomb) < 1_000_000
    said = refused(memory, docs, bomb)
    assert said.startswith("page 2 cannot be read (LimitReachedError")
    assert memory.recall("zebra") == ()


@pytest.mark.long
def test_lenient_ingestion_stores_the_other_pages(memory: Memory, docs: Path) -> None:
    (docs / "a.pdf").write_bytes(make(["zebra", b" " * 300_000_000, "violin"], packed=[1]))
    report = memory.ingest(docs, options=IngestOptions(lenient=True))
    assert (len(report.added), report.errors) == (1, ())
    assert "page 2 cannot be read" in str(report.repaired[0])
    assert [len(memory.recall(word)) for word in ("zebra", "violin")] == [1, 1]
    assert memory.ingest(docs, options=IngestOptions(lenient=True)).unchanged
    assert memory.ingest(docs).errors  # strict ingestion refuses it again
    assert len(memory.recall("violin")) == 1


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "import time; time.sleep(3600)",
            "has a page or part that takes more than 0.5 seconds to read; split it, or save it again",
        ),
        ("import os; os.abort()", "crashed its reader (exit code -6); it is corrupt"),
        ("print('[\"text\", \"half', end='')", "crashed its reader (exit code 0); it is corrupt"),
        ('print(\'["no", "takes too much memory to read"]\')', "takes too much memory to read"),
    ],
)
def test_a_reader_that_hangs_or_dies_fails_only_its_file(
    memory: Memory, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(program)
    monkeypatch.setattr(separate_process, "_WORKER", (str(worker),))
    monkeypatch.setattr(separate_process, "MAX_PAGE_SECONDS", 0.5 if "sleep" in program else 30.0)
    assert refused(memory, docs, make(["zebra"])) == said


@pytest.mark.long
def test_pages_that_share_their_content_have_a_common_limit(
    memory: Memory, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"BT /F1 12 Tf 10 700 Td " + b"".join(b"(Zebra %d) Tj 0 -14 Td\n" % line for line in range(500)) + b" ET"
    bomb = make([lines, *[""] * 59], packed=[0], shared=True)
    monkeypatch.setattr(separate_process, "MAX_FILE_TEXT", 20_000)
    monkeypatch.setattr(separate_process, "CHARS_PER_BYTE", 1)
    most = f"{20_000 + len(bomb):,}"
    said = f"has more than {most} characters of text, too many for its {len(bomb):,} bytes: it may be a bomb"
    assert refused(memory, docs, bomb) == said
    assert memory.recall("zebra") == ()
    monkeypatch.setattr(
        separate_process, "CHARS_PER_BYTE", 32
    )  # the limit of text is proportional to the size of the file
    assert memory.ingest(docs).errors == ()
    assert memory.recall("zebra")


PAGES = """if True:
    import json, time
    print(json.dumps(["title", ""]), flush=True)
    for number in range(1, 1001):
        time.sleep(0.05)
        print(json.dumps(["section", {"page": number}]), json.dumps(["text", "zebra"]), sep="\\n", flush=True)
    print(json.dumps(["end"]), flush=True)
"""


def test_all_pages_have_a_common_time_limit(
    memory: Memory, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(PAGES)
    monkeypatch.setattr(separate_process, "_WORKER", (str(worker),))
    monkeypatch.setattr(separate_process, "MAX_FILE_SECONDS", 0.4)
    monkeypatch.setattr(separate_process, "SECONDS_PER_MB", 1000.0)
    content = make(["zebra"])
    seconds = 0.4 + len(content) / 1000
    said = f"takes more than {seconds:.0f} seconds to read, too many for its {len(content):,} bytes; split it"
    assert refused(memory, docs, content) == said
    assert memory.recall("zebra") == ()


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux")
def test_the_reader_has_a_memory_limit(
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
    assert refused(memory, docs, make(["zebra"])) == f"needs pypdf: {install('ingest')}"


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[bytes], list[list[object]]]:
    """Return a function that runs the program in this process, without its limits, and returns its output."""
    monkeypatch.setitem(sys.modules, "resource", None)

    def run(content: bytes) -> list[list[object]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        one_file.main("pdf")
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_rows_of_the_reader(printed: Callable[[bytes], list[list[object]]]) -> None:
    assert printed(make(["zebra", ""], title="Nature")) == [
        ["title", "Nature"],
        ["section", {"page": 1}],
        ["text", "zebra"],
        ["section", {"page": 2}],
        ["gap", "page", 2, "no text, perhaps only an image; convert it with OCR"],
        ["end"],
    ]
    assert printed(make(["zebra"], title="Nature" * 100_000))[0] == ["title", ("Nature" * 100_000)[:65536]]
    assert printed(locked("secret")) == [["no", "is encrypted; decrypt it first"]]
    title, page, end = printed(make([b" " * 100_000_000], packed=[0]))
    assert (title, end) == (["title", ""], ["end"])
    assert page[0] == "problem" and str(page[1]).startswith("page 1 cannot be read (LimitReachedError")


def test_characters_that_cannot_be_stored_are_replaced(
    printed: Callable[[bytes], list[list[object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pypdf.PageObject, "extract_text", lambda page, **_: "a\0b\ud800c")
    assert printed(make(["zebra"]))[2] == ["text", "a\ufffdb\ufffdc"]


def form_page(fields: str, extra: str = "") -> bytes:
    """Make a PDF with one page with the words "zebra crossing", and with annotations."""
    content = make(["zebra crossing"])
    return content.replace(b"/MediaBox", f"/Annots [{fields}] {extra} /MediaBox".encode(), 1)


WIDGET = "<< /Subtype /Widget /T (f) "
FIELDS = [
    (WIDGET + "/FT /Tx /V (Oduya) >>", "f: Oduya"),
    (WIDGET + "/FT /Tx /V (Oduya) /TU (Family name) >>", "Family name: Oduya"),
    (WIDGET + "/FT /Tx /V <FEFF00D8> >>", "f: Ø"),
    ("<< /Subtype /Widget /T (b) /Parent << /T (a) /FT /Tx /V (x) >> >>", "a.b: x"),
    (WIDGET + "/FT /Ch /V [(a) (b)] >>", "f: a, b"),
    (WIDGET + "/FT /Ch /V (NO) /Opt [[(NO) (Norway)]] >>", "f: Norway"),
    (WIDGET + "/FT /Btn /V /Yes >>", "f: Yes"),
    (WIDGET + "/FT /Btn /V /Yes /AS /Yes >>", "f: Yes"),
    (WIDGET + "/FT /Btn /V /Off /AS /Off >>", ""),
    ("<< /Subtype /Widget /AS /Off /Parent << /T (r) /FT /Btn /V /b >> >>", ""),
    ("<< /Subtype /Widget /AS /b /Parent << /T (r) /FT /Btn /V /b >> >>", "r: b"),
    (WIDGET + "/FT /Btn /Ff 65536 /V /Push >>", ""),
    (WIDGET + "/FT /Tx /Ff 8192 /V (password) >>", ""),
    (WIDGET + "/FT /Tx /F 2 /V (hidden) >>", ""),
    ("<< /Subtype /Text /Contents (check this) /T (Ada) >>", "[note of Ada] check this"),
    ("<< /Subtype /FreeText /Contents (typed) >>", "[note] typed"),
    ("<< /Subtype /Highlight /Contents (why) >>", "[note] why"),
    ("<< /Subtype /Popup /Contents (again) >>", ""),
    ("<< /Subtype /Text /F 2 /Contents (hidden) >>", ""),
]


def test_values_of_fields_and_notes_are_read(printed: Callable[[bytes], list[list[object]]]) -> None:
    wrong = []
    for field, line in FIELDS:
        text = "".join(str(row[1]) for row in printed(form_page(field)) if row[0] == "text")
        if text != f"zebra crossing\n\n{line}".strip():
            wrong.append((field, line, text))
    assert wrong == []


IDENTITY = "/Type0 /BaseFont /A /Encoding /Identity-H /DescendantFonts [<< /Subtype /CIDFontType2 /BaseFont /A >>]"
FONTS = [
    (f"/Subtype {IDENTITY}", False),
    (f"/Subtype {IDENTITY.replace('Identity-H', 'Identity-V')}", False),
    (f"/Subtype {IDENTITY.replace('Identity-H', 'UniGB-UTF16-H')}", True),
    ("/Subtype /Type3 /Encoding << /Differences [72 /g12 /g13 /g14] >>", False),
    *(
        (f"/Subtype /Type1 /BaseFont /A /Encoding << /Differences [72 {names}] >>", is_text)
        for names, is_text in (
            ("/H /I /J", True),
            ("/uni0048 /uni0049 /u004A", True),
            ("/afii10025 /afii10026 /Abreve", True),
            ("/H /I /G0A /G0B", True),
            ("/G0A /G1F /GA3", False),
            ("/C0_1 /C0_2 /C0_A", False),
            ("/n7F /n80 /n81", False),
            ("/H11001 /H11002 /H11003", False),
            ("/cid_00A3 /cid_00A4 /cid_00A5", False),
        )
    ),
    ("/Subtype /TrueType /BaseFont /A /Encoding /WinAnsiEncoding", True),
]


def test_glyph_numbers_are_a_gap_and_other_text_is_kept(printed: Callable[[bytes], list[list[object]]]) -> None:
    wrong = []
    for font, is_text in FONTS:
        page = make([b"BT /F1 12 Tf 10 700 Td (zebra) Tj /F2 12 Tf 0 -20 Td (HIHI) Tj ET"])
        rows = printed(page.replace(b"/F1 3 0 R", f"/F1 3 0 R /F2 << /Type /Font {font} >>".encode()))
        text = "".join(str(row[1]) for row in rows if row[0] == "text")
        gaps = [row for row in rows if row[0] == "gap"]
        if (text != "zebra", not gaps) != (is_text, is_text) or "zebra" not in text:
            wrong.append((font, rows))
    assert wrong == []


SYMBOLIC = "/Subtype /TrueType /BaseFont /A /FontDescriptor << /Flags 4 /FontFile2 3 0 R >>"
CID = IDENTITY.replace("/Identity-H", "/{}")


def to_unicode(target: str) -> str:
    """Make a font with a character map from the codes A to Z to consecutive characters."""
    return f"/Subtype /TrueType /BaseFont /A /ToUnicode {target}"


GAP = "text in a font without a character map (copying from a viewer gives wrong letters); convert it with OCR"
CODES: list[tuple[str, bytes, str | None]] = [
    # The font, the codes, and the text; None if a gap is reported.
    (SYMBOLIC, b"(Steep it)", "Steep it"),
    (SYMBOLIC, b"(*4051*)", "*4051*"),
    (SYMBOLIC, b"<0102030401>", None),
    (SYMBOLIC, b'(\\(!""#$%)', None),
    (SYMBOLIC, b"(;LEX\013W\004ER\004M)", None),
    (SYMBOLIC.replace("Flags 4", "Flags 32"), b"(!?#&%)", "!?#&%"),
    ("/Subtype /Type3", b"<0506070805>", None),
    ("/Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding", b"<004400450046>", None),
    ("/Subtype /Type1 /BaseFont /Helvetica", b"(Tea \003)", "Tea \3"),
    (to_unicode("MAP E048"), b"(HIHI)", None),
    (to_unicode("MAP F054"), b"(HIHI)", None),
    (to_unicode("MAP FFFD"), b"(HIHI)", None),
    (to_unicode("MAP 0000"), b"(HIHI)", None),
    (to_unicode("MAP F0B7"), b"(A)", "\N{BULLET}"),
    (to_unicode("MAP F761"), b"(ABBA)", "abba"),
    (f"/Subtype {CID.format('KSCms-UHC-H')}", b"<B0A1B0A2>", None),
    (f"/Subtype {CID.format('EUC-H')}", b"<B0A1B0A2>", None),
    (f"/Subtype {CID.format('GBK-EUC-H')}", b"<B0A1>", "\N{CJK UNIFIED IDEOGRAPH-554A}"),
    (f"/Subtype {CID.format('90ms-RKSJ-H')}", b"<82A0>", "\N{HIRAGANA LETTER A}"),
    (f"/Subtype {CID.format('UniKS-UTF16-H')}", b"<AC00>", "\N{HANGUL SYLLABLE GA}"),
    (f"/Subtype {IDENTITY} /ToUnicode /Identity-H", b"<00540048>", "TH"),
]


def code_page(font: str, codes: bytes) -> bytes:
    """Make a PDF with the word "zebra" in a normal font and codes in another font."""
    content = b"BT /F1 12 Tf 10 700 Td (zebra) Tj /F2 12 Tf 0 -20 Td " + codes + b" Tj ET"
    before, _, target = font.partition("MAP ")
    first = int(target or "0", 16)
    step = first not in (0, 0xFFFD)
    pairs = b"".join(b"<%02X> <%04X>\n" % (65 + at, first + at * step) for at in range(26))
    # The content of the second page, object 7, is the character map.
    cmap = b"1 begincodespacerange\n<00> <FF>\nendcodespacerange\n26 beginbfchar\n" + pairs + b"endbfchar"
    page = make([content, cmap])
    return page.replace(b"/F1 3 0 R", f"/F1 3 0 R /F2 << /Type /Font {before}{target and '7 0 R'} >>".encode(), 1)


def test_codes_of_fonts_are_a_gap_and_not_text(printed: Callable[[bytes], list[list[object]]]) -> None:
    wrong = []
    for font, codes, expected in CODES:
        rows = printed(code_page(font, codes))[:4]
        text = "".join(str(row[1]) for row in rows if row[0] == "text")
        has_gap = ["gap", "page", 1, GAP] in rows
        if text != f"zebra\n{expected or ''}".strip() or has_gap != (expected is None):
            wrong.append((font, codes, rows))
    assert wrong == []


def test_tables_keep_their_columns_and_prose_is_unchanged(printed: Callable[[bytes], list[list[object]]]) -> None:
    def table(*rows: tuple[str, ...]) -> bytes:
        cells = [
            f"1 0 0 1 {72 + 150 * column} {700 - 14 * line} Tm ({cell}) Tj"
            for line, row in enumerate(rows)
            for column, cell in enumerate(row)
            if cell
        ]
        return f"BT /F1 12 Tf {' '.join(cells)} ET".encode()

    def text(content: bytes) -> str:
        return "".join(str(row[1]) for row in printed(make([content])) if row[0] == "text")

    numbers = table(("City", "2020", "2024"), ("Oslo", "17", "19"), ("Bergen", "28", "29"), ("Tromso", "34", "35"))
    assert text(numbers).split("\n")[1] == "Oslo | 17 | 19"
    words = table(("City", "Name"), ("Oslo", "Ada"), ("Bergen", "Bo"), ("Tromso", "Cy"))
    assert text(words + b" 1 1 m" + b" 9 9 l S" * 8).split("\n")[1] == "Oslo | Ada"
    assert " | " not in text(words)
