"""Passages follow the structure of a text and say exactly where they stand in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit_memory.ingest.chunks import CHUNK_BYTES, Chunk, chunk_text

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
    return list(chunk_text(text, markdown=markdown))


@given(TEXTS, st.booleans())
def test_passages_tile_the_text_but_for_blank_space(text: str, markdown: bool) -> None:
    end = 0
    for number, chunk in enumerate(cut(text, markdown=markdown)):
        assert chunk.position == number
        assert text[end : chunk.start].strip() == ""
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip() != ""
        assert chunk.line == 1 + text.count("\n", 0, chunk.start)
        end = chunk.end
    assert text[end:].strip() == ""


@given(TEXTS)
def test_no_passage_is_much_too_long(text: str) -> None:
    for chunk in cut(text):
        headings = sum(len(line) + 1 for line in chunk.text.split("\n") if line.startswith(("#", "Under", "=", "-")))
        assert len(chunk.text.encode()) <= 3 * CHUNK_BYTES + headings


def test_every_passage_names_the_headings_above_it() -> None:
    text = "intro\n\n# Guide\nfirst\n## Install ##\nrun it\n\nTitle\n===\nother\n\nSub\n---\nmore\n"
    assert [(chunk.title, chunk.line) for chunk in cut(text)] == [
        ("", 1),
        ("Guide", 3),
        ("Guide > Install", 5),
        ("Title", 8),
        ("Title > Sub", 12),
    ]


def test_a_heading_stays_with_what_it_announces() -> None:
    assert [chunk.text for chunk in cut("# A\n\n## B\n\nbody\n\n# C\n")] == ["# A\n\n## B\n\nbody", "# C"]


def test_what_looks_like_a_heading_is_none_in_code_front_matter_or_plain_text() -> None:
    code = "```sh\n# not a heading\n```\n\nafter\n"
    assert [chunk.title for chunk in cut(code)] == [""]
    assert [chunk.title for chunk in cut("---\ntitle: x\n---\n# Real\nbody\n")] == ["", "Real"]
    assert [chunk.title for chunk in cut("# a comment\n\nText\n====\n", markdown=False)] == [""]
    assert [chunk.title for chunk in cut("#hashtag\n")] == [""]


def test_a_rule_after_a_paragraph_of_several_lines_is_no_heading() -> None:
    assert [chunk.title for chunk in cut("one\ntwo\n---\nthree\n")] == [""]


def test_small_paragraphs_share_a_passage_and_large_ones_do_not() -> None:
    paragraph = "word " * 50  # 250 bytes
    chunks = cut("\n\n".join([paragraph] * 10))
    assert [chunk.text.count("word") for chunk in chunks] == [200, 200, 100]


def test_a_code_block_is_kept_whole_where_it_fits() -> None:
    code = "```\n" + "line = 1\n" * 250 + "```"
    assert code in [chunk.text for chunk in cut(f"before\n\n{code}\n\nafter\n")]
    assert len(cut("```\n" + "line = 1\n" * 1000 + "```")) > 3


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    sentence = "This sentence has exactly eight words in it. "
    for chunk in cut(sentence * 60):
        assert chunk.text.startswith("This") and chunk.text.endswith("it.")


@pytest.mark.parametrize("text", ["x" * 5000, "中" * 5000, "\N{CAT FACE}" * 2000])
def test_a_text_without_spaces_is_cut_where_it_must_be(text: str) -> None:
    chunks = cut(text)
    assert "".join(chunk.text for chunk in chunks) == text
    assert max(len(chunk.text.encode()) for chunk in chunks) <= CHUNK_BYTES


def test_a_fence_that_is_never_closed_does_not_lose_the_rest() -> None:
    assert cut("a\n\n```\nb\n\nc")[-1].text.endswith("c")


@pytest.mark.parametrize(
    "text", ["# " + " " * 100_000 + "x", "#" * 100_000, "`" * 100_000, "- " * 50_000, "\n" * 100_000]
)
def test_lines_made_to_be_slow_are_not(text: str) -> None:
    assert "".join("".join(chunk.text for chunk in cut(text)).split()) == "".join(text.split())


def test_headings_without_end_are_cut_too() -> None:
    assert max(len(chunk.text) for chunk in cut("# heading\n" * 5000)) <= 2 * CHUNK_BYTES
