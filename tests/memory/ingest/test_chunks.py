"""Chunks follow the structure of a text and have their exact place in it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentkit_memory.ingest.chunks import CHUNK_BYTES, Chunk, chunk_blocks
from agentkit_memory.ingest.readers.section_start import SectionStart
from agentkit_memory.ingest.readers.text_and_markdown import text_blocks, with_newlines
from agentkit_prompts.pages.page_blocks import MAX_PART, MAX_TITLE, Block
from tests.cases import for_cases

LINES = st.sampled_from(
    [
        "# One",
        "## Two ##",
        "###### ",
        "#hashtag",
        "Under",
        "=====",
        "---",
        "```python",
        "```",
        "~~~~",
        "~~~",
        "x = 1",
        "",
        "   ",
        "A sentence. Another one! " * 20,
        "中文句子。" * 150,
        "w" * 3000,
        "\ud7ff\u2028\x0b",
        "- item",
        "windows\r",
    ]
)
TEXTS = st.lists(LINES, max_size=30).map("\n".join) | st.text(max_size=3000)


def cut(text: str, *, markdown: bool = True) -> list[Chunk]:
    return list(chunk_blocks(text_blocks([text], markdown=markdown)))


@given(TEXTS, st.booleans())
def test_chunks_cover_the_text_except_blank_space(text: str, markdown: bool) -> None:
    text = "".join(with_newlines([text]))
    end = 0
    for number, chunk in enumerate(cut(text, markdown=markdown)):
        assert chunk.position == number
        assert text[end : chunk.start].strip() == ""
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip() != ""
        assert chunk.line == 1 + text.count("\n", 0, chunk.start)
        end = chunk.end
    assert text[end:].strip() == ""


@given(TEXTS)
def test_no_chunk_is_much_longer_than_the_limit(text: str) -> None:
    for chunk in cut(text):
        headings = sum(len(line) + 1 for line in chunk.text.split("\n") if line.startswith(("#", "Under", "=", "-")))
        assert len(chunk.text.encode()) <= 3 * CHUNK_BYTES + headings


def test_each_chunk_has_the_headings_above_it() -> None:
    text = "intro\n\n# Guide\nfirst\n## Install ##\nrun it\n\nTitle\n===\nother\n\nSub\n---\nmore\n"
    assert [(chunk.title, chunk.line) for chunk in cut(text)] == [
        ("", 1),
        ("Guide", 3),
        ("Guide > Install", 5),
        ("Title", 8),
        ("Title > Sub", 12),
    ]


def test_a_heading_stays_with_its_text() -> None:
    assert [chunk.text for chunk in cut("# A\n\n## B\n\nbody\n\n# C\n")] == ["# A\n\n## B\n\nbody", "# C"]


def test_code_front_matter_and_plain_text_contain_no_headings() -> None:
    code = "```sh\n# not a heading\n```\n\nafter\n"
    assert [chunk.title for chunk in cut(code)] == [""]
    assert [chunk.title for chunk in cut("---\ntitle: x\n# no heading\n---\n# Real\nbody\n")] == ["x > Real"]
    assert [chunk.title for chunk in cut("# a comment\n\nText\n====\n", markdown=False)] == [""]
    assert [chunk.title for chunk in cut("#hashtag\n")] == [""]


@for_cases(
    ("opening", "size", "is_front_matter"),
    [(4, 10_000, True), (4, 10_001, False), (999, 10_000, True), (1_000, 10_000, False)],
)
def test_front_matter_is_a_text_of_limited_length_after_a_rule(opening: int, size: int, is_front_matter: bool) -> None:
    rule = f"{'---':{opening - 1}}\n"
    lines = "# comment\n" + f"{'x' * 99}\n" * ((size - opening) // 100 - 1)
    lines += "y" * (size - opening - len(lines) - 1) + "\n"
    text = f"{rule}{lines}---\n# Real\n"
    titles = [block.title for block in text_blocks([text], markdown=True) if block.kind == "heading"]
    assert len(rule + lines) == size
    assert titles == ([] if is_front_matter else ["comment"]) + ["Real"]


def test_front_matter_with_an_invalid_value_is_text() -> None:
    for value in ("!!timestamp x", "!!bool x", "!!int ''", "!!binary x", '"\\UFFFFFFFF"', "[", "*a"):
        [chunk] = cut(f"---\ntitle: {value}\n---\nbody\n")
        assert chunk.text.endswith("body"), value


def test_a_rule_after_a_paragraph_of_several_lines_is_not_a_heading() -> None:
    assert [chunk.title for chunk in cut("one\ntwo\n---\nthree\n")] == [""]


def test_small_paragraphs_share_a_chunk_and_large_ones_do_not() -> None:
    paragraph = "word " * 50  # 250 bytes
    chunks = cut("\n\n".join([paragraph] * 10))
    assert [chunk.text.count("word") for chunk in chunks] == [200, 200, 100]


def test_a_code_block_that_fits_is_one_chunk() -> None:
    code = "```\n" + "line = 1\n" * 250 + "```"
    assert code in [chunk.text for chunk in cut(f"before\n\n{code}\n\nafter\n")]
    assert len(cut("```\n" + "line = 1\n" * 1000 + "```")) > 3


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    sentence = "This sentence has exactly eight words in it. "
    for chunk in cut(sentence * 60):
        assert chunk.text.startswith("This") and chunk.text.endswith("it.")


@for_cases("text", ["x" * 5000, "中" * 5000, "\N{CAT FACE}" * 2000])
def test_a_text_without_spaces_is_cut_at_the_limit(text: str) -> None:
    chunks = cut(text)
    assert "".join(chunk.text for chunk in chunks) == text
    assert max(len(chunk.text.encode()) for chunk in chunks) <= CHUNK_BYTES


def test_an_unclosed_fence_does_not_lose_the_rest() -> None:
    assert cut("a\n\n```\nb\n\nc")[-1].text.endswith("c")


@for_cases("text", ["# " + " " * 100_000 + "x", "#" * 100_000, "`" * 100_000, "- " * 50_000, "\n" * 100_000])
def test_hostile_lines_are_not_slow(text: str) -> None:
    assert "".join("".join(chunk.text for chunk in cut(text)).split()) == "".join(text.split())


def test_very_long_headings_are_cut() -> None:
    assert max(len(chunk.text) for chunk in cut("# heading\n" * 5000)) <= 2 * CHUNK_BYTES


@given(TEXTS, st.booleans(), st.lists(st.integers(0, 3000), max_size=8))
def test_chunks_do_not_depend_on_the_pieces_of_the_read(text: str, markdown: bool, cuts: list[int]) -> None:
    places = [0, *sorted(min(place, len(text)) for place in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    blocks = list(text_blocks(pieces, markdown=markdown))
    assert "".join(block.text for block in blocks) == re.sub("\r(?!\n)", "\n", text)
    assert list(chunk_blocks(blocks)) == cut(text, markdown=markdown)


@for_cases("text", ["word " * 50_000, "x" * 300_000, "\n" * 300_000, "# h\n" * 50_000, "```\n" + "a\n" * 99_999])
def test_no_block_and_no_chunk_is_larger_than_the_limit(text: str) -> None:
    blocks = list(text_blocks([text], markdown=True))
    assert max(len(block.text) for block in blocks) <= 2 * MAX_PART
    chunks = list(chunk_blocks(blocks))
    assert max((len(chunk.text) for chunk in chunks), default=0) <= 2 * CHUNK_BYTES
    assert sum(len("".join(chunk.text.split())) for chunk in chunks) == len("".join(text.split()))


def test_a_long_list_is_cut_between_its_items() -> None:
    items = "".join(f"- item {number}: {'word ' * 12}\n  and more of it\n" for number in range(100))
    chunks = cut(items)
    assert len(chunks) > 3
    assert all(chunk.text.startswith("- item") and chunk.text.endswith("of it") for chunk in chunks)


def test_a_table_is_one_chunk_or_cut_between_rows() -> None:
    row = "| " + " | ".join(["some cell"] * 4) + " |\n"
    assert row.strip() * 1 in cut(row * 60)[0].text and len(cut(row * 60)) == 1
    for chunk in cut(row * 500):
        assert chunk.text.startswith("| some") and chunk.text.endswith("cell |")


def test_long_code_is_cut_at_its_blank_lines() -> None:
    code = "```\n" + "".join(f"def f{number}():\n    return {'x' * 300}\n\n" for number in range(30)) + "```\n"
    for chunk in cut(code)[1:-1]:
        assert chunk.text.startswith("def f")


def test_a_page_restarts_the_offsets_and_separate_sections_are_not_neighbours() -> None:
    parts = [SectionStart('{"page": 1}', "T"), Block("one\n"), SectionStart('{"page": 2}', "T"), Block("two\n")]
    assert [(c.position, c.start, c.title, c.meta) for c in chunk_blocks(parts)] == [
        (0, 0, "T", '{"page": 1}'),
        (1, 0, "T", '{"page": 2}'),
    ]
    apart = [
        SectionStart(line=3, is_separate=True),
        Block("one\n\ntwo"),
        SectionStart(line=9, is_separate=True),
        Block("three"),
    ]
    assert [(c.position, c.line) for c in chunk_blocks(apart)] == [(0, 3), (2, 9)]


def test_a_very_long_heading_is_cut_in_titles() -> None:
    (chunk,) = cut("# " + "w" * 900 + "\nbody")
    assert len(chunk.title) == MAX_TITLE


@for_cases(
    ("names", "title"),
    [
        (["Guide", (1, "Guide"), (2, "Install")], "Guide > Install"),
        (["GUIDE", (1, "Guide")], "Guide"),
        (["Tea", (1, "Shop"), (2, "Tea")], "Shop > Tea"),
        (["Book", (0, "Tea"), (1, "Shop"), (2, "Tea")], "Book > Shop > Tea"),
        (["", (1, "Install"), (2, "Linux"), (3, "Install")], "Install > Linux > Install"),
    ],
)
def test_a_title_does_not_repeat_the_title_of_the_document(names: list[Any], title: str) -> None:
    section, *headings = names
    blocks = [Block(name, "heading", level, name) for level, name in headings]
    parts: list[Block | SectionStart] = [SectionStart(title=section), *blocks]
    (chunk,) = chunk_blocks(parts)
    assert chunk.title == title
