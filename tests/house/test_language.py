"""The check of the language reports each habit, with its place, and reports nothing in plain English."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

CHECK = ROOT / "docs/language.py"


def check(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the check on one file of an empty repository."""
    script = folder / "docs/language.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(CHECK.read_text("utf-8"), "utf-8")
    (folder / "docs/language_allowed.txt").write_text("", "utf-8")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return subprocess.run([sys.executable, script, path], capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"""What evaluates a template."""\n', 1),
        ('"""Whether the index is closed."""\n', 1),
        ("x = 1\n# The run goes on after a pause.\n", 2),
        ("def f() -> None:\n    raise ValueError(f'there is no file {1}')\n", 2),
        ("def f() -> None:\n    '''Return what was sent.'''\n", 2),
        ("'''Store rows.'''\n\nLIMIT = 1\n'''Rows that somebody reads.'''\n", 4),
    ],
)
def test_a_habit_in_code_is_reported_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    result = check(tmp_path, "agentkit/example.py", text)
    assert result.returncode == 1
    assert result.stdout.startswith(f"agentkit/example.py:{line}: ")


@pytest.mark.parametrize(
    "sentence", ["The server tells the client.", "It stands behind the input.", "A tool of its own."]
)
def test_a_habit_in_a_page_is_reported(tmp_path: Path, sentence: str) -> None:
    result = check(tmp_path, "docs/page.md", f"# What is sent\n\n{sentence}\n")
    assert result.returncode == 1
    assert result.stdout.startswith("docs/page.md:3: ")


def test_names_and_texts_of_tests_are_checked_and_no_string_constants(tmp_path: Path) -> None:
    lines = (
        "# The run goes on.",
        "def test_what_is_wrong_is_named():",
        "    'True if it is away.'",
        "    f('what is wrong here')",
    )
    result = check(tmp_path, "tests/test_example.py", "\n".join(lines))
    assert [line.split(": ")[0] for line in result.stdout.splitlines()] == [
        "tests/test_example.py:2",
        "tests/test_example.py:1",
    ]


def test_a_local_name_without_a_role_is_reported(tmp_path: Path) -> None:
    result = check(tmp_path, "agentkit/example.py", "found = 1\nmatch = 2\n")
    assert result.stdout.splitlines() == ["agentkit/example.py:1: local name 'found': name the type or the role"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "docs/page.md",
            '# How to write\n\nHow do you run it? Run it behind a proxy. `what is` and "what is" are quoted.\n',
        ),
        ("docs/page.md", "```python\nprint('there is no page')\n```\n\nPrint a text.\n"),
        ("agentkit/example.py", '"""Readers of results."""\n\nNAME = "what"\n'),
    ],
)
def test_plain_english_headings_code_and_quotations_are_not_reported(tmp_path: Path, name: str, text: str) -> None:
    result = check(tmp_path, name, text)
    assert (result.returncode, result.stdout) == (0, "")
