"""The page of benchmarks, and the row of the README that is written from it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
LIBRARIES = {"pydantic-ai": "pydantic-ai", "LangGraph": "langchain (LangGraph)", "openai-agents": "openai-agents"}
LIBRARIES["haystack"] = "haystack"
"""Names of the page by name of the README."""
MULTIPLE = re.compile(r"x([\d.,]+)")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_readme_has_the_figures_of_the_page() -> None:
    lines = README.splitlines()
    (row,) = [line for line in lines if line.startswith("| CPU time of a run")]
    names = next(cells(line) for line in reversed(lines[: lines.index(row)]) if line.startswith("| runtime |"))
    readme = dict(zip(names[1:], cells(row)[1:], strict=True))
    (measured,) = [cells(line) for line in PAGE.splitlines() if line.startswith("| run |")]
    others = dict(re.findall(r"([\w-]+(?: \(\w+\))?) (x[\d.,]*\d)", measured[-1]))
    page = {"agentkit": measured[3], **{name: others[theirs] for name, theirs in LIBRARIES.items()}}
    problems = []
    for name, text in page.items():
        stated, measurement = MULTIPLE.search(readme[name]), MULTIPLE.search(text)
        assert stated is not None
        assert measurement is not None
        decimals = len(stated[1].partition(".")[2])
        if round(float(measurement[1].replace(",", "")), decimals) != float(stated[1]):
            problems.append(f"{name}: README {stated[0]}, docs/benchmarks.md {measurement[0]}")
    assert not problems


def test_the_page_is_short_and_starts_with_the_losses() -> None:
    words = re.findall(r"\S*\w\S*", PAGE)
    assert len(words) <= 2_500
    losses, plots, machine = (PAGE.index(text) for text in ("## Where agentkit loses", "## Plots", "## Measurement"))
    assert losses < plots < machine
