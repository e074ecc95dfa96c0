"""What the documentation promises a newcomer about the house: every page, every extra, every folder."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.paths import ROOT

INDEX = (ROOT / "docs/index.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def test_the_index_leads_to_every_page() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r"\]\(([\w/-]+\.md)\)", INDEX)) == pages - {"index.md"}


def test_the_index_has_a_row_for_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `([\w-]+)` \|", INDEX, re.MULTILINE)) == set(extras)


def test_a_row_of_an_extra_names_what_it_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, brings in re.findall(r"^\| `([\w-]+)` \| ([^|]*) \|", INDEX, re.MULTILINE):
        if extra not in {"all", "bench", "dev"}:
            names = {re.split(r"[^\w.-]", requirement)[0] for requirement in extras[extra]}
            assert set(brings.split(", ")) == names, extra


def test_the_folder_map_names_every_folder_of_the_repository() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    folders = {name.split("/")[0] for name in done.stdout.splitlines() if "/" in name and not name.startswith(".")}
    if not folders:
        pytest.skip("not a git checkout: which folders belong to the repository is not known")
    assert set(re.findall(r"^(\w+)/", README.split("## Where things are")[1], re.MULTILINE)) == folders


def test_the_tests_that_the_page_on_security_names_are_there() -> None:
    paths = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py|tests/[\w/]+)`", (ROOT / "SECURITY.md").read_text("utf-8"))
    folder = Path("tests")
    missing = []
    for name in paths:
        path = Path(name)
        if path.parent == Path():  # a name without a folder is in the folder of the path before
            path = folder / name
        folder = path.parent
        if not (ROOT / path).exists():
            missing.append(path.as_posix())
    assert len(paths) > 40
    assert missing == []
