"""Office files, books and e-mails: the rows of the separate process, and the report of missing parts."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agentkit.memory import IngestError, IngestOptions, Memory
from agentkit.prompts import MemoPrompt, PromptContext
from agentkit_memory.ingest.isolated import one_file, zip_parts

pytest.importorskip("lxml", reason="needs the extra `ingest`")

Rows = Callable[[str, bytes], list[list[object]]]
TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def relations(*rows: tuple[str, str]) -> str:
    lines = [f'<r Id="r{at}" Type="{TYPE}/{kind}" Target="{target}"/>' for at, (kind, target) in enumerate(rows, 1)]
    return f"<rs>{''.join(lines)}</rs>"


def word(body: str, styles: str = "", numbering: str = "", **parts: str) -> bytes:
    kinds = [("styles", "styles.xml"), ("numbering", "numbering.xml"), *((name, f"{name}.xml") for name in parts)]
    return packed(
        {
            "_rels/.rels": relations(("officeDocument", "word/document.xml")),
            "word/_rels/document.xml.rels": relations(*kinds),
            "word/document.xml": f'<d xmlns:w="w" xmlns:m="m"><w:body>{body}</w:body></d>',
            "word/styles.xml": f'<s xmlns:w="w">{styles}</s>',
            "word/numbering.xml": f'<n xmlns:w="w">{numbering}</n>',
            **{f"word/{name}.xml": f'<x xmlns:w="w">{text}</x>' for name, text in parts.items()},
        }
    )


def book(*sheets: str, texts: str = "", styles: str = "", states: tuple[str, ...] = ()) -> bytes:
    named = "".join(
        f'<sheet name="S{at}" r:id="r{at}" state="{(*states, *sheets)[at - 1] if at <= len(states) else "visible"}"/>'
        for at in range(1, len(sheets) + 1)
    )
    kinds = [("worksheet", f"s{at}.xml") for at in range(1, len(sheets) + 1)]
    return packed(
        {
            "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
            "xl/_rels/workbook.xml.rels": relations(*kinds, ("sharedStrings", "t.xml"), ("styles", "y.xml")),
            "xl/workbook.xml": f'<w xmlns:r="r">{named}</w>',
            "xl/t.xml": f"<t>{texts}</t>",
            "xl/y.xml": f"<y>{styles}</y>",
            **{f"xl/s{at}.xml": f"<s><d>{sheet}</d></s>" for at, sheet in enumerate(sheets, 1)},
        }
    )


def slides(*contents: str, **parts: str) -> bytes:
    ids = "".join(f'<p:sldId id="{at}" r:id="r{at}"/>' for at in range(1, len(contents) + 1))
    each = {
        f"ppt/s{at}.xml": f'<s xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree>{text}</p:spTree></p:cSld></s>'
        for at, text in enumerate(contents, 1)
    }
    return packed(
        {
            "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
            "ppt/_rels/presentation.xml.rels": relations(*(("slide", f"s{at}.xml") for at in range(1, len(each) + 1))),
            "ppt/presentation.xml": f'<x xmlns:p="p" xmlns:r="http://r/id">{ids}</x>',
            **each,
            **parts,
        }
    )


def epub(*pages: str, kind: str = "application/xhtml+xml", **parts: str) -> bytes:
    items = "".join(f'<item id="i{at}" href="p%20{at}.xhtml" media-type="{kind}"/>' for at in range(len(pages)))
    order = "".join(f'<itemref idref="i{at}"/>' for at in range(len(pages)))
    return packed(
        {
            "META-INF/container.xml": '<c><rootfile full-path="OPS/b.opf"/></c>',
            "OPS/b.opf": f"<p><title>Nature</title>{items}{order}</p>",
            **{f"OPS/p {at}.xhtml": page for at, page in enumerate(pages)},
            **parts,
        }
    )


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def shape(text: str, placeholder: str = "") -> str:
    mark = placeholder and f'<p:ph type="{placeholder}"/>'
    body = f"<p:txBody><a:p><a:r>{text}</a:r></a:p></p:txBody>"
    return f"<p:sp><p:nvSpPr><p:cNvPr/>{mark}</p:nvSpPr>{body}</p:sp>"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rows:
    """Return a function that reads a file in this process, without limits, and returns the rows."""
    monkeypatch.setitem(sys.modules, "resource", None)

    def rows(content_format: str, content: bytes) -> list[list[object]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        one_file.main(content_format)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return rows


LIST = '<w:numPr><w:ilvl w:val="{}"/><w:numId w:val="5"/></w:numPr>'
NUMBERS = (
    '<w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:start w:val="3"/><w:numFmt w:val="decimal"/>'
    '<w:lvlText w:val="%1."/></w:lvl><w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/>'
    '<w:lvlText w:val="%1%2)"/></w:lvl></w:abstractNum><w:num w:numId="5"><w:abstractNumId w:val="1"/></w:num>'
)
SPANS = (
    "<w:tbl><w:tr>"
    + cell("a")
    + cell("b", '<w:gridSpan w:val="2"/>')
    + "</w:tr><w:tr>"
    + cell("c", '<w:vMerge w:val="restart"/>')
    + cell("d | e")
    + cell("")
    + "</w:tr><w:tr>"
    + cell("gone", "<w:vMerge/>")
    + cell("")
    + cell("f")
    + "</w:tr></w:tbl>"
)
STYLES = (
    '<w:style w:styleId="H"><w:name w:val="heading 2"/></w:style>'
    '<w:style w:styleId="Mine"><w:basedOn w:val="H"/></w:style>'
)
WORD_CASES: list[tuple[str, str]] = [
    (paragraph("Tea"), "Tea\n\n"),
    ("<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r></w:p>", "a\tb\nc\n\n"),
    (
        "<w:p><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>",
        "new\n\n",
    ),
    ("<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>x</w:t></w:r><w:r><w:t>y</w:t></w:r></w:p>", "y\n\n"),
    (
        '<w:p><w:r><w:t>10</w:t></w:r><w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r></w:p>',
        "10^6\n\n",
    ),
    ("<w:sdt><w:sdtContent>" + paragraph("control") + "</w:sdtContent></w:sdt>", "control\n\n"),
    ("<w:p><w:r><w:txbxContent>" + paragraph("box") + "</w:txbxContent></w:r></w:p>", "box\n\n"),
    ("<w:p><m:f><m:num><m:t>a+b</m:t></m:num><m:den><m:t>2</m:t></m:den></m:f></w:p>", "(a+b)/2\n\n"),
    ("<w:AlternateContent/>" + paragraph("after"), "after\n\n"),
    ("<w:p><w:AlternateContent/><w:r><w:t>run</w:t></w:r></w:p>", "run\n\n"),
    (
        "<w:p><w:r><w:AlternateContent><w:Choice><w:t>new</w:t></w:Choice><w:Fallback><w:t>old</w:t></w:Fallback>"
        "</w:AlternateContent></w:r></w:p>",
        "new\n\n",
    ),
    ("<w:p><w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink></w:p>", "link\n\n"),
    (SPANS, "a | b\nc | d \\| e\n |  | f\n\n"),
    (
        '<w:tbl><w:tr><w:trPr><w:gridBefore w:val="99999"/></w:trPr>' + cell("a") + "</w:tr></w:tbl>",
        " | " * 64 + "a\n\n",
    ),
    (
        "".join(paragraph(text, LIST.format(depth)) for text, depth in (("x", 0), ("y", 1), ("z", 0))),
        "3. x\n  3a) y\n4. z\n\n",
    ),
]


def test_word_documents(read: Rows) -> None:
    wrong = []
    for body, text in WORD_CASES:
        rows = read("docx", word(body, STYLES, NUMBERS))
        read_text = "".join(str(row[2]) for row in rows if row[0] == "block")
        if read_text != text or rows[-1] != ["end"]:
            wrong.append((body, text, rows))
    assert wrong == []


def test_headings_notes_and_margins_of_word_documents(read: Rows) -> None:
    box = f"<w:txbxContent>{paragraph('Draft')}</w:txbxContent>"
    choice = f"<w:Choice>{box}</w:Choice><w:Fallback>{box}</w:Fallback>"
    margin = f"<w:p><w:r><w:AlternateContent>{choice}</w:AlternateContent></w:r></w:p>" + SPANS
    assert ["block", "text", "Draft\na, b\nc, d | e\nf\n\n", 0, "", False] in read("docx", word("", header=margin))
    note = '<w:footnote w:id="2"><w:p><w:r><w:t>see page 9</w:t></w:r></w:p></w:footnote>'
    heading = paragraph("Terms", '<w:pStyle w:val="Mine"/>')
    rows = read("docx", word(heading, STYLES, footnotes=note, header=paragraph("Secret"), footer=paragraph("Secret")))
    assert rows == [
        ["title", ""],
        ["block", "text", "Secret\n\n", 0, "", False],
        ["block", "heading", "Terms\n\n", 2, "", False],
        ["block", "text", "[footnote 2] see page 9\n\n", 0, "", False],
        ["end"],
    ]


FORMATS = '<numFmt numFmtId="200" formatCode="0.0%"/><cellXfs><xf/><xf numFmtId="14"/><xf numFmtId="200"/>'
FORMATS += '<xf numFmtId="21"/><xf numFmtId="46"/><xf numFmtId="201"/></cellXfs>'
FORMATS = '<numFmt numFmtId="201" formatCode="[hh]:mm"/>' + FORMATS
CELL_CASES = [
    ("<c><v>0.30000000000000004</v></c>", "0.3"),
    ("<c><v>1234567</v></c>", "1234567"),
    ('<c s="1"><v>46082</v></c>', "2026-03-01"),
    ('<c s="1"><v>46082.5</v></c>', "2026-03-01 12:00:00"),
    ('<c s="2"><v>0.155</v></c>', "15.5%"),
    ('<c t="b"><v>1</v></c>', "TRUE"),
    ('<c t="s"><v>0</v></c>', "shared text"),
    ('<c t="inlineStr"><is><t>in</t><t>line</t></is></c>', "inline"),
    ('<c t="str"><f>A1</f><v>made</v></c>', "made"),
    ("<c><f>SUM(A1:A9)</f></c>", "=SUM(A1:A9)"),
    ("<c><f>SUM(A1:A9)</f><v/></c>", "=SUM(A1:A9)"),
    ('<c t="str"><f>IF(B1="","",B1)</f><v></v></c><c><v>2</v></c>', "| 2"),
    ('<c t="str"><v>a_x000D_\nb _x005F_x000D_</v></c>', "a b _x000D_"),
    ('<c t="inlineStr"><is><t>a_x000d_\nb</t></is></c>', "a b"),
    ('<c s="3"><v>0.999999</v></c><c s="3"><v>0.25</v></c><c s="3"><v>1.5</v></c>', "00:00:00 | 06:00:00 | 12:00:00"),
    ('<c s="4"><v>0.25</v></c><c s="4"><v>1.5</v></c><c s="5"><v>1.5</v></c>', "06:00:00 | 36:00:00 | 36:00:00"),
    ('<c t="e"><v>#N/A</v></c>', "#N/A"),
    ('<c r="A1"><v>1</v></c><c r="D1"><v>2</v></c>', "1 |  |  | 2"),
    ('<c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c>', "1 |" + "  |" * 64 + " 2"),
    ('<c r="A1"><v>1</v></c><c r="XFC1"><v>2</v></c><c r="XFD1"><v>3</v></c>', "1 |" + "  |" * 64 + " 2 | 3"),
]


def test_cells_of_workbooks(read: Rows) -> None:
    wrong = []
    for cells, text in CELL_CASES:
        rows = read("xlsx", book(f"<row>{cells}</row>", texts="<si><t>shared</t><t> text</t></si>", styles=FORMATS))
        blocks = [row for row in rows if row[0] == "block"]
        if [row[1] for row in blocks][:1] != ["heading"] or str(blocks[1][2]).strip() != text:
            wrong.append((cells, text, rows))
    assert wrong == []


def test_a_long_first_row_is_not_repeated_as_a_head(read: Rows) -> None:
    cells = f'<c t="str"><v>{"word " * 30_000}</v></c><c><v>1</v></c>'
    rows = read("xlsx", book(f"<row>{cells}</row><row><c><v>2</v></c><c><v>3</v></c></row>"))
    assert {row[4] for row in rows if row[:2] == ["block", "table"]} == {""}


def test_a_reference_with_backslashes_is_found(read: Rows) -> None:
    content = renamed(word(paragraph("one")), b"word/document", b"word\\document")
    assert ["block", "text", "one\n\n", 0, "", False] in read("docx", content)


def test_sheets_without_text_and_hidden_sheets_are_gaps(read: Rows) -> None:
    row = '<row><c t="str"><v>name</v></c><c t="str"><v>price</v></c></row>'
    rows = read("xlsx", book(row, "", row, states=("visible", "visible", "hidden")))
    assert rows[1:] == [
        ["section", {"sheet": "S1"}],
        ["block", "heading", "S1\n\n", 1, "", False],
        ["block", "table", "name | price\n\n", 0, "name | price\n", False],
        ["section", {"sheet": "S2"}],
        ["gap", "sheet", "S2", "no text"],
        ["gap", "sheet", "S3", "hidden, not read; show the sheet, and ingest again"],
        ["end"],
    ]


def test_a_repeated_part_is_read_once(read: Rows) -> None:
    sheets = book("<row><c><v>1</v></c></row>", "<row/>")
    for content_format, content, place in (
        ("xlsx", renamed(sheets, b"s2.xml", b"s1.xml"), ["sheet", "S2", "repeats another sheet"]),
        ("pptx", renamed(slides("", ""), b"s2.xml", b"s1.xml"), ["slide", 2, "repeats another slide"]),
        ("epub", renamed(epub("a", "b"), b'idref="i1"', b'idref="i0"'), ["chapter", 2, "repeats another chapter"]),
    ):
        assert ["gap", *place] in read(content_format, content)


def unpacked(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def renamed(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return the zip file with another reference in its parts."""
    return packed({name: part.replace(old, new) for name, part in unpacked(content).items()})


CELL = "<a:tc><a:txBody><a:p><a:t>{}</a:t></a:p></a:txBody></a:tc>"


def test_slides(read: Rows) -> None:
    table = f"<a:tbl><a:tr>{CELL.format('k')}{CELL.format('v')}</a:tr></a:tbl>"
    frame = f"<p:graphicFrame><a:graphic>{table}</a:graphic></p:graphicFrame>"
    hidden = f'<p:grpSp><p:nvGrpSpPr><p:cNvPr hidden="1"/></p:nvGrpSpPr>{shape("<a:t>secret</a:t>")}</p:grpSp>'
    group = hidden + "<p:grpSp>" + shape('<a:rPr baseline="30000"/><a:t>6</a:t>') + "</p:grpSp>"
    first = (
        shape("<a:t>body</a:t>") + shape("<a:t>7</a:t>", "sldNum") + shape("<a:t>Title</a:t>", "title") + frame + group
    )
    notes = f'<n xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree>{shape("<a:t>say it</a:t>", "body")}</p:spTree></p:cSld></n>'
    parts = {"ppt/_rels/s1.xml.rels": relations(("notesSlide", "n.xml")), "ppt/n.xml": notes}
    assert read("pptx", slides(first, "", **parts))[1:] == [
        ["section", {"slide": 1}],
        ["block", "heading", "Title\n\n", 1, "", False],
        ["block", "text", "body\n\n", 0, "", False],
        ["block", "table", "k | v\n\n", 0, "k | v\n", False],
        ["block", "text", "^6\n\n", 0, "", False],
        ["block", "text", "Notes: say it\n\n", 0, "", False],
        ["section", {"slide": 2}],
        ["gap", "slide", 2, "no text, perhaps only images"],
        ["end"],
    ]


def test_books(read: Rows) -> None:
    assert read("epub", epub("<p>Zebra</p>")) == [
        ["title", "Nature"],
        ["section", {"chapter": 1}],
        ["html", "<p>Zebra</p>"],
        ["html", ""],
        ["end"],
    ]
    pages = {"OPS/p 0.xhtml": '<?xml version="1.0" encoding="iso-8859-1"?><p>caf\xe9</p>'.encode("latin-1")}
    latin = packed({**unpacked(epub("")), **pages})
    assert str(read("epub", latin)[2][1]).endswith("caf\xe9</p>")
    broken = packed({**unpacked(epub("")), "OPS/p 0.xhtml": b"<p>caf\xe9</p>"})
    assert ["problem", "chapter 1 is not UTF-8 text"] in read("epub", broken)
    assert ["html", "x"] in read("epub", renamed(epub("x"), b'href="p', b'href="/OPS/p'))
    locked = '<e><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></e>'
    for content, problem in (
        (epub("x", kind="image/svg+xml"), ["gap", "chapter", 1, "no text (image/svg+xml)"]),
        (
            epub("x", **{"META-INF/encryption.xml": locked}),
            ["no", "is encrypted (DRM); only an EPUB without DRM can be read"],
        ),
    ):
        assert problem in read("epub", content)


UNREAD = "not read; save the attachment as a file, and ingest it"
INNER = "Subject: a\nContent-Type: message/rfc822\n\nSubject: inner\n\nZebra"
BOTH = (
    "Subject: a\nContent-Type: multipart/alternative; boundary=b\n\n--b\n\nplain\n--b\nContent-Type: text/html\n\n"
    "<p>rich</p>\n--b--\n"
)
MAILS: list[tuple[str, list[object]]] = [
    ("Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n\nZebra", ["block", "heading", "Grüße\n\n", 1, "", False]),
    ("From: Ada <a@x>\n\nZebra", ["block", "text", "From: Ada <a@x>\n\n", 0, "", False]),
    ("Subject: a\n\nZebra", ["text", "Zebra\n\n"]),
    ("Subject: a\nContent-Type: text/plain; charset=iso-2022-jp\n\n\x1b$B<d\x1b(B", ["text", "寂\n\n"]),
    ("Subject: a\nContent-Type: text/html\n\n<p>x</p>", ["html", "<p>x</p>"]),
    (
        "Subject: a\nContent-Type: application/pdf; name=x.pdf\n\nx",
        ["gap", "attachment", "x.pdf", UNREAD],
    ),
    (
        INNER,
        ["block", "heading", "inner\n\n", 1, "", False],
    ),
    ("no headers", ["no", "is not an e-mail: it has no headers"]),
    *(
        (f"Subject: a\nContent-Type: text/plain; {parameter}\n\nZebra", ["text", "Zebra\n\n"])
        for parameter in (
            "charset=a\0b",
            "charset=undefined",
            "charset*=a\0b'en'x",
            "name*=utf\0'en'x",
            "name*=idna''%ff",
        )
    ),
    (
        "Subject: a\nContent-Disposition: attachment; filename*=a\0'en'x\nContent-Type: image/png\n\nx",
        ["gap", "attachment", "image/png", UNREAD],
    ),
    ("Subject: a\nContent-Type: text/plain; charset=iso-8859-8-i\n\n\xe0", ["text", "א\n\n"]),
    ("Subject: a\nContent-Type: text/plain; charset=ascii\n\n\xc3\xa9", ["text", "é\n\n"]),
    (
        "Subject: a\nContent-Type: multipart/mixed; x*=a\0''y; boundary=b\n\n--b\n\nZebra\n--b--",
        ["text", "Zebra\n\n"],
    ),
    (f"To: {'a@b.c, ' * 9000}\n\nZebra", ["gap", "header", "To", "longer than 10,000 characters, cut"]),
    (f"From: {'(' * 9000}\n\nZebra", ["text", "Zebra\n\n"]),
]


def test_e_mails(read: Rows) -> None:
    wrong = []
    for mail, row in MAILS:
        rows = read("eml", mail.encode("latin-1"))
        if row not in rows or any(each[0] == "problem" for each in rows):
            wrong.append((mail, row, rows))
    assert wrong == []
    bodies = [row for row in read("eml", BOTH.encode()) if row[0] in ("text", "html")]
    assert bodies == [["html", "<p>rich</p>"], ["html", ""]]


ENTITIES = '<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/hostname">]>'
DEEP = "<w:p>" + "<w:i>" * 401 + "</w:i>" * 401 + "</w:p>"
PARTS = b"Subject: a\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * 3000 + b"--b--"
HOSTILE = [
    # The method of compression, and the flags, of the part and of its row in the directory.
    *(
        ("docx", word(paragraph("x")).replace(b"\0\0\x08\0", fields), problem)
        for fields, problem in (
            (b"\0\0\x61\0", "has a corrupt part '_rels/.rels' (That compression method is not supported)"),
            (b"\x01\0\x08\0", "is encrypted; decrypt it first"),
            (b"\x20\0\x08\0", "has a corrupt part '_rels/.rels' (compressed patched data (flag bit 5))"),
        )
    ),
    ("docx", b"PK\x03\x04 broken", "is corrupt, or not a zip file"),
    ("docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "is encrypted, or in the format of Office before 2007"),
    ("docx", packed({"a": "b"}), "is not an Office file"),
    ("docx", word(DEEP), "has a part 'word/document.xml' with more than 400 nested elements"),
    ("docx", word(paragraph("x" * 9000)), "has a part 'word/document.xml' of more than 0 MiB: it may be a zip bomb"),
    ("docx", packed({"_rels/.rels": ENTITIES + "<d>&b;</d>"}), "has a part '_rels/.rels' that defines entities"),
    ("epub", packed({"META-INF/container.xml": "<c/>"}), "is not an EPUB: its container names no package"),
    ("eml", PARTS, "has more than 2,000 parts"),
    ("eml", b"To: a@b\n" * 10_001 + b"\nZebra", "has more than 10,000 headers"),
    (
        "eml",
        b"Subject: a\n" + b"Content-Type: message/rfc822\n\n" * 1500,
        "has parts that are nested too deeply to read",
    ),
]


@pytest.mark.parametrize(("content_format", "content", "problem"), HOSTILE)
def test_hostile_files(
    read: Rows, monkeypatch: pytest.MonkeyPatch, content_format: str, content: bytes, problem: str
) -> None:
    monkeypatch.setattr(zip_parts, "_MAX_PART", 9000)
    *_, last = read(content_format, content)
    assert last[0] == "no" and str(last[1]).startswith(problem)


def test_a_corrupt_part_does_not_block_the_other_parts(read: Rows, memory: Memory, docs: Path) -> None:
    sheet = "<row><c><v>1</v></c></row>"
    files: list[tuple[str, bytes, str]] = [
        ("xlsx", book(sheet, "<row>", sheet), "sheet 'S2' has a part 'xl/s2.xml' that is not XML"),
        ("pptx", slides(shape("<a:t>one</a:t>"), "<p:sp>"), "slide 2 has a part 'ppt/s2.xml' that is not XML"),
        ("docx", word(paragraph("one"), header="<w:p>"), "a header or footer has a part 'word/header.xml'"),
        ("docx", word(paragraph("one"), chart="<w:p>"), "a diagram or chart has a part 'word/chart.xml'"),
        ("docx", word(paragraph("one"), comments="<w:p>"), "the part of comments has a part 'word/comments.xml'"),
    ]
    for number, (content_format, content, problem) in enumerate(files):
        rows = read(content_format, content)
        problems = [str(row[1]) for row in rows if row[0] == "problem"]
        assert len(problems) == 1 and problems[0].startswith(problem) and rows[-1] == ["end"]
        assert any(row[0] == "block" for row in rows)
        (docs / f"{number}.{content_format}").write_bytes(content)
    only, lenient = [docs / "0.xlsx"], IngestOptions(lenient=True)
    assert len(memory.ingest(only).errors) == 1
    report = memory.ingest(only, options=lenient)
    assert len(report.added) == len(report.repaired) == 1
    sheets = [chunk.metadata["sheet"] for chunk in memory.documents.chunks(str(docs / "0.xlsx"))]
    assert sheets == ["S1", "S3"]


def test_a_title_contains_only_characters_that_a_database_stores(read: Rows) -> None:
    assert read("eml", b"Subject: =?utf-8?q?a=00b?=\n\nx")[0] == ["title", "a\ufffdb"]


def test_each_visible_file_of_a_folder_is_ingested_or_reported(memory: Memory, docs: Path) -> None:
    (docs / "a.docx").write_bytes(word(paragraph("zebra")))
    (docs / "b.xlsx").write_bytes(book('<row><c t="str"><v>violin</v></c></row>', ""))
    (docs / "c.eml").write_text("Subject: harbor\n\nlantern")
    (docs / "d.epub").write_bytes(epub("<h1>Chapter</h1><p>meadow</p>"))
    (docs / "e.pptx").write_bytes(slides(""))
    (docs / "f.md").write_text(" \n")
    for name in ("g.zip", "h.ZIP", "i.png", "Makefile", ".hidden"):
        (docs / name).write_text("x")
    report = memory.ingest(docs)
    assert [Path(name).name for name in report.added] == ["a.docx", "b.xlsx", "c.eml", "d.epub"]
    assert [Path(error.source).name for error in report.errors] == ["e.pptx", "f.md"]
    assert [Path(error.source).name for error in report.gaps] == ["b.xlsx"]
    assert report.skipped == {".png": 1, ".zip": 2, "Makefile": 1}
    found = {word: memory.recall(word)[0].metadata for word in ("zebra", "violin", "lantern", "meadow")}
    assert [found["violin"]["sheet"], found["lantern"]["message"], found["meadow"]["chapter"]] == ["S1", 1, 1]


def test_bytes_are_read_in_a_declared_format(memory: Memory) -> None:
    memory.documents.add(word(paragraph("zebra")), source="letter", format="docx")
    memory.documents.add("a,b\n1,2\n", source="rows", format="csv")
    assert memory.recall("zebra")[0].source == "letter"
    for content, options in (
        (b"x", {"format": "dock"}),
        ("x", {"format": "pdf"}),
        (b" ", {}),
        (b"not a zip", {"format": "docx"}),
    ):
        with pytest.raises(IngestError):
            memory.documents.add(content, source="letter", **options)  # type: ignore[arg-type]
    assert memory.recall("zebra")[0].source == "letter"


def test_a_csv_file_can_have_any_line_ends(memory: Memory, docs: Path) -> None:
    rows = ["name,animal"] + [f"{number},{'zebra ' * 50}" for number in range(20)]
    for name, end in {"a": "\n", "b": "\r\n", "c": "\r", "d": "\r\r\n"}.items():
        (docs / f"{name}.csv").write_text(end.join(["", *rows, ""]), newline="")
    report = memory.ingest(docs)
    assert not report.errors and len(report.added) == 4
    for name in "abcd":
        *_, last = memory.documents.chunks(str(docs / f"{name}.csv"))
        assert last.position > 0 and last.text.startswith("name,animal"), name


@pytest.mark.parametrize(
    "head",
    ['Screen 15",animal', '"Screen 15""",animal', '"Screen, 15""", "two\nlines"', "Screen\t'animal", 'a;"b;c"'],
)
def test_every_chunk_of_a_csv_file_starts_with_the_names_of_its_columns(memory: Memory, head: str) -> None:
    rows = [f"word{number},{'zebra ' * 50}" for number in range(20)]
    memory.documents.add("\n".join([head, *rows]), source="animals.csv")
    *_, last = memory.documents.chunks("animals.csv")
    assert last.position > 0 and last.text.startswith(f"{head}\nword")


def test_a_prompt_shows_the_title_of_a_document_once(memory: Memory, docs: Path) -> None:
    page = "<title>Nature</title><h1>Nature</h1><p>zebra {}</p>"
    heading = paragraph("Nature", '<w:pStyle w:val="H"/>') + paragraph("zebra three")
    (docs / "a.html").write_text(page.format("one"))
    (docs / "b.md").write_text("# Nature\n\nzebra two\n")
    (docs / "c.docx").write_bytes(word(heading, STYLES))
    (docs / "d.epub").write_bytes(epub(page.format("four")))
    memory.ingest(docs)
    documents = memory.recall("zebra nature").documents
    assert [document.title for document in documents] == ["Nature"] * 4
    for document in documents:
        shown = MemoPrompt().format_2_str(PromptContext(user_input="x", documents=[document]))
        assert shown.count("Nature") == 1 and document.text in shown
