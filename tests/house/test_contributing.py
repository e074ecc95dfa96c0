"""The paths and rows of the guide for contributors exist."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
ROWS = re.findall(r"^\| (a[^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", GUIDE, re.MULTILINE)


def test_each_thing_that_is_added_in_one_file_has_a_row() -> None:
    assert {"a model", "a tool", "a target", "a vector store", "a prompt class"} <= {row[0] for row in ROWS}


@pytest.mark.parametrize(("what", "file", "must_be", "copied"), ROWS)
def test_its_folder_and_the_test_to_copy_exist(what: str, file: str, must_be: str, copied: str) -> None:
    (path,) = re.findall(r"`([\w/.]+?)(?:/NAME\.py)?`", file)
    assert (ROOT / path).exists(), (what, must_be)
    (first, *more) = re.findall(r"`([\w/]+\.py)`", copied)
    folder = (ROOT / first).parent
    assert all(one.exists() for one in (ROOT / first, *(folder / name for name in more)))


def test_the_paths_of_the_page_on_changes_exist() -> None:
    page = (ROOT / "docs/how-to/change-agentkit.md").read_text("utf-8")
    paths = re.findall(r"`((?:agentkit|docs|memory|prompts|tests|tools)/[\w/.]+)`", page)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
