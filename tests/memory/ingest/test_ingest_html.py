"""HTML as headings, paragraphs, lists, tables and code, without scripts and styles."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import IngestError, IngestOptions, Memory
from agentkit_memory.ingest.chunks import CHUNK_BYTES, Chunk, chunk_blocks
from agentkit_memory.ingest.readers.file_stream import FileStream
from agentkit_memory.ingest.readers.html import html_blocks
from agentkit_memory.ingest.source_file import SourceFile
from agentkit_prompts.extras import install
from agentkit_prompts.pages import page_reader
from agentkit_prompts.pages.page_blocks import MAX_PART, Block
from tests.effort import spread
from tests.raising import raises

pytest.importorskip("lxml", reason="needs the extra `ingest`")

PAGE = """<!doctype html><html><head><meta charset="utf-8"><title>Tea &amp; more</title>
<style>p { color: red }</style><script>alert("no <p>paragraph</p>")</script></head>
<body><nav><ul><li>Home</li><li>About</li></ul></nav>
<p>Before any
   heading.</p>
<h1>Tea</h1><p>Tea is <b>hot</b><br>and wet.</p>
<h2>Kinds</h2>
<ul><li>green<ul><li>sencha</li></ul></li><li>black</li></ul>
<table><tr><th>kind</th><th>degrees</th></tr><tr><td>green</td><td>80</td></tr></table>
<pre>def steep():
    return "wait"

</pre>
<div hidden>secret</div><span aria-hidden="true">x</span><div role="navigation">go there</div>
<img src="cup.png" alt="a cup"></body></html>
"""


def read(folder: Path, content: bytes | str, *, lenient: bool = False) -> list[Block]:
    file = folder / "page.html"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with FileStream(SourceFile(file, "page.html", "html"), IngestOptions(lenient=lenient)) as reading:
        blocks = list(html_blocks(reading))
        reading.finish()
    return blocks


def cut(blocks: list[Block]) -> list[Chunk]:
    return list(chunk_blocks(blocks))


def test_a_page_is_split_into_its_parts(tmp_path: Path) -> None:
    assert [(block.kind, block.text.strip("\n")) for block in read(tmp_path, PAGE)] == [
        ("heading", ""),
        ("text", "Before any heading."),
        ("heading", "Tea"),
        ("text", "Tea is hot\nand wet."),
        ("heading", "Kinds"),
        ("list", "- green\n  - sencha\n- black"),
        ("table", "kind | degrees\ngreen | 80"),
        ("code", 'def steep():\n    return "wait"'),
        ("text", "a cup"),
    ]


def test_headings_are_the_titles_of_the_text_below(tmp_path: Path) -> None:
    assert [(chunk.title, chunk.text.split("\n")[-1]) for chunk in cut(read(tmp_path, PAGE))] == [
        ("Tea & more", "Before any heading."),
        ("Tea & more > Tea", "and wet."),
        ("Tea & more > Tea > Kinds", "a cup"),
    ]


def test_a_page_is_found_by_its_text(memory: Memory, docs: Path) -> None:
    (docs / "tea.html").write_text(PAGE)
    assert memory.ingest(docs).errors == ()
    (found,) = memory.recall("sencha")
    assert (found.title, found.source) == ("Tea & more > Tea > Kinds", str(docs / "tea.html"))
    assert memory.recall("alert secret about") == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("<p>café".encode(), "café"),
        (b'<meta charset="windows-1252"><p>caf\xe9 \x80', "café €"),
        (b'<meta http-equiv=content-type content="text/html; charset=ISO-8859-1"><p>caf\xe9', "café"),
        (b'<meta charset="koi8-r"><p>\xde\xc1\xca', "чай"),
        ('<meta charset="koi8-r"><p>чай'.encode("utf-8-sig"), "чай"),
        ("<p>чай".encode("utf-16"), "чай"),
        ('<meta charset="zlib"><p>чай'.encode(), "чай"),  # no encoding of text
        (b'<?xml version="1.0" encoding="ISO-8859-1"?><p>caf\xe9', "café"),
        (b'<!-- <meta charset="koi8-r"> --><p>caf\xc3\xa9', "café"),
        ("<meta charset=utf-8><p>чай".encode("utf-16-le"), "чай"),
        ("<p>чай".encode("utf-16-be"), "чай"),
        ("\r\n <p>чай".encode("utf-16-le"), "чай"),
        (b"<meta charset=utf-16><p>caf\xc3\xa9", "café"),
        ("<meta charset=gb2312><p>朱镕基".encode("gbk"), "朱镕基"),
        ("<meta charset=ks_c_5601-1987><p>똠방".encode("cp949"), "똠방"),
        ("<meta charset=iso-8859-9><p>€ş".encode("cp1254"), "€ş"),
        ("<meta charset=x-sjis><p>第①章 髙橋".encode("cp932"), "第①章 髙橋"),
        ("<meta charset=big5><p>中文".encode("big5"), "中文"),
        ("<meta charset=windows-31j><p>東京".encode("cp932"), "東京"),
        ("<meta charset=x-euc-jp><p>東京".encode("euc-jp"), "東京"),
        ("<meta charset=tis-620><p>ไทย".encode("cp874"), "ไทย"),
        ("<meta charset=iso-2022-jp><p>東京の天気".encode("iso2022-jp"), "東京の天気"),
        ("<p>東京の天気".encode("iso2022-jp"), "東京の天気"),
        ("<meta charset=hz-gb-2312><p>中文".encode("hz"), "中文"),
        ("<p>中文，<b>天气</b>".encode("hz"), "中文，天气"),
        (b"<p>(format t ~{~a~}) ~{ab~}", "(format t ~{~a~}) ~{ab~}"),
    ],
)
def test_a_page_declares_its_encoding(tmp_path: Path, content: bytes, said: str) -> None:
    assert [block.text.strip() for block in read(tmp_path, content)] == [said]


def test_undecodable_bytes_are_reported_with_their_place_or_replaced(tmp_path: Path) -> None:
    with raises(IngestError, source="page.html", name="utf-8", value=6):
        read(tmp_path, b"<p>caf\xe9</p>")
    with raises(IngestError, source="page.html", name="binary", value=3):
        read(tmp_path, b"<p>\0</p>")
    file = tmp_path / "page.html"
    file.write_bytes(b"<p>caf\xe9</p>")
    with FileStream(SourceFile(file, "page.html", "html"), IngestOptions(lenient=True)) as reading:
        assert [block.text for block in html_blocks(reading)] == ["caf\ufffd\n\n"]
        assert "the first at 6, became U+FFFD" in str(reading.finish())


def test_a_page_with_missing_or_extra_end_tags_is_read(tmp_path: Path) -> None:
    assert [b.text.strip() for b in read(tmp_path, "</p></ul></table></pre><li>one<li>two<p>three<h2>four")] == [
        "- one\n- two",
        "three",
        "four",
    ]
    assert read(tmp_path, "") == read(tmp_path, "<p> </p>\n") == []


def test_code_in_a_list_keeps_its_lines(tmp_path: Path) -> None:
    blocks = read(tmp_path, "<ol><li>run<pre>a\n  b</pre>then</li><li>stop</li></ol>")
    assert [(b.kind, b.text.strip("\n")) for b in blocks] == [
        ("list", "1. run"),
        ("code", "a\n  b"),
        ("list", "then\n2. stop"),
    ]


def test_a_long_paragraph_is_split_without_a_loss(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(5000)]
    blocks = read(tmp_path, f"<p>{' '.join(words)}</p><p>end</p>")
    assert max(len(block.text) for block in blocks) <= 2 * MAX_PART
    assert [block.continues for block in blocks][:2] == [False, True]
    chunks = cut(blocks)
    assert " ".join(chunk.text for chunk in chunks).split() == [*words, "end"]
    assert max(len(chunk.text) for chunk in chunks) <= CHUNK_BYTES


def test_a_very_long_heading_is_text(tmp_path: Path) -> None:
    blocks = read(tmp_path, f"<h1>{'long ' * 5000}</h1>")
    assert {block.kind for block in blocks} == {"text"}


def test_a_long_table_is_cut_between_its_rows(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td>row {number}</td><td>{'cell ' * 8}</td></tr>" for number in range(500))
    for chunk in cut(read(tmp_path, f"<table>{rows}</table>")):
        assert chunk.text.startswith("row ") and chunk.text.endswith("cell")


@pytest.mark.parametrize(
    "content",
    spread(
        [
            b"<div>" * 300_000,
            b"<ul><li>" * 100_000,
            b"<table><tr><td>" * 50_000,
            b"<font><b>" * 100_000 + b"x",
            b"<" * 500_000,
            b"&amp;" * 200_000,
            b"<a " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">x</a>",
            b"<script>" + b"x < y;" * 200_000,
        ],
        2,
    ),
    ids=["deep", "lists", "tables", "formatting", "brackets", "entities", "attributes", "script"],
)
def test_the_reading_of_slow_or_deep_pages_ends(tmp_path: Path, content: bytes) -> None:
    for chunk in cut(read(tmp_path, content)):
        assert len(chunk.text) <= 4 * CHUNK_BYTES


@pytest.mark.parametrize("start", [b"<!--", b'<a href="', b"<"])
def test_an_unclosed_tag_or_comment_is_refused(tmp_path: Path, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_reader, "_MAX_TAG", 1024 * 1024)
    with raises(IngestError, source="page.html", name="tag"):
        read(tmp_path, b"<p>fine</p>" + start + b"x" * 2_000_000)


def test_without_the_extra_a_page_is_reported_and_texts_are_ingested(
    memory: Memory, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("lxml"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    (docs / "a.html").write_text("<p>zebra")
    (docs / "b.md").write_text("violin")
    report = memory.ingest(docs)
    assert [str(error) for error in report.errors] == [f"{docs}/a.html: HTML needs lxml: {install('ingest')}"]
    assert len(report.added) == 1
