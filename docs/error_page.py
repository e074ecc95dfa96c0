"""Write `docs/errors.md` from the table of errors, `docs/error_messages/*.yaml`: `python docs/error_page.py`.

Each file of the table is a section of the page. `tests/test_error_messages.py` runs every snippet of the table,
compares its message with the text next to it, and checks that the page is up to date.
"""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict

import yaml

DOCS = Path(__file__).parent
PAGE = DOCS / "errors.md"
INTRODUCTION = """\
# Troubleshooting, by error

<!-- Written by docs/error_page.py from docs/error_messages/*.yaml: edit these. -->

An error message contains the problem, its place, the expected value and what to do. It lists all problems at once.
Errors of a run have `messages`, `usage` and `journal`: `agent.resume(error.journal)` continues after the last step of
the journal.

Each section has a table of its errors, then examples: code that raises the error, and the message.
"""


class Example(TypedDict):
    """A snippet of code, and the exact message of the error that it raises or the warning that it causes."""

    snippet: str
    text: str


ErrorRow = TypedDict(
    "ErrorRow", {"class": str, "when": NotRequired[str], "do": NotRequired[str], "messages": NotRequired[list[Example]]}
)
"""An error class: when it is raised, what to do, and examples. `when` is in one section only."""


class Section(TypedDict):
    """A section of the page. `prelude` is code that runs before each of its snippets."""

    title: str
    prelude: NotRequired[str]
    errors: list[ErrorRow]


def sections() -> dict[str, Section]:
    """Read the table: file name -> section, in the order of the page."""
    files = sorted((DOCS / "error_messages").glob("*.yaml"))
    return {file.name: yaml.safe_load(file.read_text("utf-8")) for file in files}


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    for section in sections().values():
        parts.append(f"## {section['title']}\n")
        rows = [_table_row(row) for row in section["errors"] if "when" in row]
        if rows:
            parts.append("".join(["| error | when | what to do |\n|---|---|---|\n", *rows]))
        for row in section["errors"]:
            for example in row.get("messages") or []:
                parts.append(_example(row["class"], example))
    return "\n".join(parts)


def _table_row(row: ErrorRow) -> str:
    return f"| `{row['class']}` | {row['when']} | {row.get('do', '')} |\n"


def _example(name: str, example: Example) -> str:
    return f"`{name}`:\n\n```py\n{example['snippet'].strip()}\n```\n\n```text\n{example['text'].strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
