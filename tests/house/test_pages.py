"""Rules of the documentation for newcomers: every page, every extra, every folder."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.paths import GENERATED, ROOT

DOCS = ROOT / "docs"
PAGES = [path for path in DOCS.rglob("*.md") if path.parent not in GENERATED]
INSTALL = (DOCS / "install.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


LINK = re.compile(r"\]\(([^):#]+\.md)[^)]*\)")
MAXIMUM_WORDS = 2_500


def test_the_navigation_contains_each_page_once() -> None:
    listed = re.findall(r"^ +- (?:\w+: )?([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = [path.relative_to(DOCS).as_posix() for path in PAGES]
    assert sorted(page for page in listed if (DOCS / page).parent not in GENERATED) == sorted(pages)


def test_the_how_to_index_leads_to_each_of_its_pages() -> None:
    index = DOCS / "how-to/index.md"
    assert sorted(LINK.findall(index.read_text("utf-8"))) == sorted(
        path.name for path in index.parent.glob("*.md") if path != index
    )


def test_a_door_is_a_page_of_at_most_seven_links() -> None:
    doors = list((DOCS / "doors").glob("*.md"))
    home = LINK.findall((DOCS / "index.md").read_text("utf-8"))
    assert {link for link in home if link.startswith("doors/")} == {f"doors/{door.name}" for door in doors}
    for door in doors:
        assert 1 <= len(LINK.findall(door.read_text("utf-8"))) <= 7, door.name


def test_a_page_is_short_enough_to_answer_one_question() -> None:
    words = {path.name: len(re.findall(r"\S*\w\S*", path.read_text("utf-8"))) for path in PAGES}
    assert {name: number for name, number in words.items() if number > MAXIMUM_WORDS} == {}


def test_code_in_a_table_contains_no_pipe() -> None:
    """The site would show the backslash that other readers of Markdown need."""
    assert [path.name for path in PAGES if re.search(r"`[^`\n]*\\\|[^`\n]*`", path.read_text("utf-8"))] == []


def test_the_page_about_installation_has_a_row_for_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `([\w-]+)` \|", INSTALL, re.MULTILINE)) == set(extras)


def test_a_row_of_an_extra_names_its_distributions() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, brings in re.findall(r"^\| `([\w-]+)` \| ([^|]*) \|", INSTALL, re.MULTILINE):
        if extra not in {"all", "bench", "dev"}:
            names = {re.split(r"[^\w.-]", requirement)[0] for requirement in extras[extra]}
            assert set(brings.split(", ")) == names, extra


def test_the_folder_map_names_every_folder_of_the_repository() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    folders = {name.split("/")[0] for name in done.stdout.splitlines() if "/" in name and not name.startswith(".")}
    if not folders:
        pytest.skip("not a git checkout: which folders belong to the repository is not known")
    assert set(re.findall(r"^(\w+)/", README.split("## Where things are")[1], re.MULTILINE)) == folders


def test_the_tests_that_the_page_on_security_names_exist() -> None:
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


def test_each_cell_of_agentkit_in_the_tables_of_libraries_leads_to_code_that_runs() -> None:
    tables = README.split("## Comparison with other libraries")[1].split("## ")[0]
    rows = [line.split(" | ") for line in tables.splitlines() if line.startswith("| ") and "| agentkit |" not in line]
    assert len(rows) > 20
    failures = []
    for row in rows:
        name, cell = row[0], row[1]
        if cell in {"no", "new, alpha"}:
            continue
        (path,) = re.findall(r"\]\(([\w/.-]+\.md)", cell)
        page = (ROOT / path).read_text("utf-8")
        # The page of benchmarks contains figures, which its tests measure.
        if "```python" not in page and path != "docs/benchmarks.md":
            failures.append((name, cell))
    assert failures == []


def test_the_sequence_diagrams_are_written_by_their_script() -> None:
    for name, text in runpy.run_path(str(ROOT / "docs/sequence_diagrams.py"))["diagrams"]().items():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, f"{name}: run docs/sequence_diagrams.py"


def test_the_pages_of_the_root_lead_to_pages_of_the_site() -> None:
    pages = runpy.run_path(str(DOCS / "project_pages.py"))["pages"]()
    listed = re.findall(r"^ +- (project/.+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert listed == [path.relative_to(DOCS).as_posix() for path in pages]
    # `docs/project` is written by scripts/docs: without it, the system cannot read a path through it.
    links = [(path.parent / link).resolve() for path, text in pages.items() for link in LINK.findall(text)]
    assert len(links) > 5
    assert [link for link in links if not (link.exists() or link in pages)] == []


def test_the_readme_above_its_first_table_is_read_in_a_minute() -> None:
    """A reader reads 250 words in a minute."""
    assert len(re.findall(r"\S*\w\S*", README.split("\n| ")[0])) <= 250
