"""Write `docs/errors.md` and `docs/errors/*.md` from the table of errors: `python docs/error_page.py`.

The table is `docs/error_messages/*.yaml`. `errors.md` lists each error with its cause and its remedy; the other pages
show code that raises the errors, and the messages. Git ignores these pages: `scripts/docs` writes them.
`tests/test_error_messages.py` runs every snippet of the table, compares its message with the text next to it, and
checks that `errors.md` is up to date.
"""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired, TypedDict

import yaml

DOCS = Path(__file__).parent
INTRODUCTION = """\
# Errors

<!-- Written by docs/error_page.py from docs/error_messages/*.yaml: edit these. -->

An error message contains the problem, its place, the expected value and what to do. It lists all problems at once.
Errors of a run have `messages`, `usage` and `journal`: `agent.resume(error.journal)` continues after the last step of
the journal. The links below a table lead to examples: code that raises an error, and the message. In a clone,
`./scripts/docs reference` writes the pages of examples to `docs/errors`.
"""
EXAMPLES = {
    "prompts": "Prompts, contexts and templates",
    "prompt_trees": "Prompt classes, schemas and prompt files",
    "chat_templates": "Chat templates",
    "row_evaluations": "Evaluations of models",
    "runs": "Agents and runs",
    "models": "Models",
    "tools": "Tools",
    "tool_servers": "Tool policies, sandboxes and MCP servers",
    "durable": "Durable runs",
    "servers": "Agent files and servers",
    "memory": "Memory",
    "memory_stores": "Stores of a memory",
    "warnings": "Warnings",
    "evaluations": "Evaluations of agents, fine-tuning rows and tests",
}
"""Titles of the pages of examples, in the order of the site. The field `page` of a section is one of these names."""


class Example(TypedDict):
    """A snippet of code, and the exact message of the error that it raises or the warning that it causes."""

    snippet: str
    text: str


ErrorRow = TypedDict(
    "ErrorRow", {"class": str, "when": NotRequired[str], "do": NotRequired[str], "messages": NotRequired[list[Example]]}
)
"""An error class: when it is raised, what to do, and examples. `when` is in one section only."""


class Section(TypedDict):
    """A section. `page` is the page of its examples, and `prelude` code that runs before each of its snippets."""

    title: str
    page: str
    prelude: NotRequired[str]
    errors: list[ErrorRow]


def sections() -> dict[str, Section]:
    """Read the table: file name -> section, in the order of the page."""
    files = sorted((DOCS / "error_messages").glob("*.yaml"))
    return {file.name: yaml.load(file.read_text("utf-8"), yaml.CSafeLoader) for file in files}


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    rows: dict[str, list[str]] = {name: [] for name in EXAMPLES}
    examples: dict[str, list[str]] = {name: [] for name in EXAMPLES}
    for section in sections().values():
        rows[section["page"]] += [_table_row(row) for row in section["errors"] if "when" in row]
        shown = [_example(row["class"], example) for row in section["errors"] for example in row.get("messages") or []]
        if shown:
            examples[section["page"]] += [f"## {section['title']}\n", *shown]
    overview = [INTRODUCTION]
    written = {}
    for name, title in EXAMPLES.items():
        if rows[name]:
            table = "".join(["| error | when | what to do |\n|---|---|---|\n", *rows[name]])
            overview += [f"## {title}\n", table]
        if examples[name]:
            file = f"errors/{name.replace('_', '-')}.md"
            overview.append(f"Examples: [{title}]({file}).\n")
            lead = "Code that raises an error, and the message. [All errors](../errors.md) lists causes and remedies.\n"
            written[DOCS / file] = "\n".join([f"# Errors: {title[0].lower()}{title[1:]}\n", lead, *examples[name]])
    written[DOCS / "errors.md"] = "\n".join(overview)
    return written


def _table_row(row: ErrorRow) -> str:
    return f"| `{row['class']}` | {row['when']} | {row.get('do', '')} |\n"


def _example(name: str, example: Example) -> str:
    return f"`{name}`:\n\n```py\n{example['snippet'].strip()}\n```\n\n```text\n{example['text'].strip()}\n```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
