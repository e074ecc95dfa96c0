"""Measures all parts of `docs/benchmarks.md` and writes the page: `./scripts/bench write_page`.

`./scripts/bench write_page agent tools` measures only these two parts and does not change the other parts. Each script
runs in a separate process. The start of the page repeats the figures that miss a goal or are worse than the figures of
another library.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
SCRIPTS = {
    "agent": "Runs and sessions",
    "compose": "Composing a prompt",
    "chat_templates": "Chat templates",
    "tools": "Tools",
    "memory": "Memory",
    "recall_time": "Recall",
    "memory_growth": "Growth of a memory",
    "adapters": "Adapters of models",
    "server": "Server",
    "icl": "Evaluation prompts",
    "import_time": "Importing and installing",
}
PEERS = ("pydantic-ai-slim", "langgraph", "openai-agents", "haystack-ai", "langchain", "jinja2", "qdrant-client")
OURS = re.compile("agentkit|Memory|Session")
HEAD = """# Benchmarks

`./scripts/bench write_page` measures all parts of this page again, on any machine, in about half an hour;
`./scripts/bench NAME` measures one part and prints its figures.

Every figure is CPU time of the process. The first row of a table is its limit: the same work written by hand. Limit,
agentkit and other libraries alternate in one process, in an order that is swapped each round, and the tables contain
medians. Ratios are similar on all machines, times are not.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=[[], *SCRIPTS], help=f"parts: {', '.join(SCRIPTS)}; by default, all")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    parts = _current_parts()
    for script in options.part or SCRIPTS:
        print(f"measuring {script}", file=sys.stderr)
        command = [sys.executable, str(HERE / f"{script}.py"), "--json", "--rounds", str(options.rounds)]
        parts[SCRIPTS[script]] = "\n".join(_tables(json.loads(subprocess.check_output(command, text=True))))
        PAGE.write_text(_page(parts), "utf-8")


def _current_parts() -> dict[str, str]:
    """Return the parts of the current page, by title."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    _, *fields = re.split(r"^## (.*)\n\n", text, flags=re.MULTILINE)
    parts = dict(zip(fields[::2], fields[1::2], strict=True))
    return {title: parts[title] for title in SCRIPTS.values() if title in parts}


def _page(parts: Mapping[str, str]) -> str:
    sections = [(title, parts[title].rstrip()) for title in SCRIPTS.values() if title in parts]
    losing_lines = ["## Where we lose\n"]
    for title, text in sections:
        losses = [line for line in text.splitlines() if line.startswith("- ")]
        losing_lines += [f"{title}:\n", *losses, ""] if losses else []
    return "\n".join(
        [
            HEAD,
            f"Measured with {_versions()}.\n",
            *losing_lines,
            *(f"## {title}\n\n{text}\n" for title, text in sections),
        ]
    )


def _versions() -> str:
    installed = []
    for name in PEERS:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Python {platform.python_version()} on {platform.machine()}; {', '.join(installed)}"


def _tables(figures: list[dict[str, Any]]) -> Iterator[str]:
    for name, group in groupby(figures, key=lambda row: row["workload"]):
        workload = re.sub(r"^W\d+ ", "", name)
        rows = [{**row, "who": re.sub(r"\bours\b", "agentkit", row["who"])} for row in group]
        yield f"| {workload} | | times the limit | goal |\n|---|---|---|---|"
        for row in rows:
            ratio = "" if row["ratio"] is None else f"x{row['ratio']:.2f}"
            goal = f"{row['goal']}: {'met' if row['met'] else '**missed**'}" if row["goal"] else ""
            yield f"| {row['who']} | {row['value']:,.4g} {row['unit']} | {ratio} | {goal} |"
        losses = list(_losses(workload, rows))
        yield from ["", *losses, ""] if losses else [""]


def _losses(workload: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each missed goal, and for each library that is faster than agentkit."""
    ours = [row for row in rows if OURS.search(row["who"]) and row["ratio"] is not None]
    for row in rows:
        if row["met"] is False:
            is_ratio = row["ratio"] is not None and " x" in row["goal"]
            value = f"x{row['ratio']:.2f}" if is_ratio else f"{row['value']:,.4g} {row['unit']}"
            yield f"- {workload}: {row['who']} is at {value}, and its goal is {row['goal']}."
        if ours and row not in ours and row["ratio"] is not None:
            slower = [other["who"] for other in ours if other["unit"] == row["unit"] and other["ratio"] > row["ratio"]]
            if slower:
                yield f"- {workload}: {row['who']} (x{row['ratio']:.2f}) is faster than {', '.join(slower)}."


if __name__ == "__main__":
    main()
