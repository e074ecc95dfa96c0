"""Measures everything and writes `docs/benchmarks.md`: `./scripts/bench write_page`.

`./scripts/bench write_page agent tools` measures two parts anew and leaves the others as they are. Each script runs in
a process of its own. A figure that misses its goal, or that another library does better, stands in the page like any
other, and once more at its top.
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
    "adapters": "Adapters of models",
    "server": "Server",
    "icl": "Evaluation prompts",
    "import_time": "Importing and installing",
}
PEERS = ("pydantic-ai-slim", "langgraph", "openai-agents", "haystack-ai", "langchain", "jinja2", "qdrant-client")
OURS = re.compile("agentkit|Memory|Session")
HEAD = """# Benchmarks

`./scripts/bench write_page` measures this page anew, on any machine, in about half an hour; `./scripts/bench NAME`
measures one part and prints it.

Every figure is CPU time of the process. The first row of a table is its limit: the same work written by hand. Limit,
agentkit and other libraries take turns in one process, in an order that is swapped each round, and the medians are
shown. Ratios hold from machine to machine, times do not.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=[[], *SCRIPTS], help=f"of {', '.join(SCRIPTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    parts = _written()
    for script in options.part or SCRIPTS:
        print(f"measuring {script}", file=sys.stderr)
        command = [sys.executable, str(HERE / f"{script}.py"), "--json", "--rounds", str(options.rounds)]
        parts[SCRIPTS[script]] = "\n".join(_tables(json.loads(subprocess.check_output(command, text=True))))
        PAGE.write_text(_page(parts), "utf-8")


def _written() -> dict[str, str]:
    """Return the parts of the page as it is, by title."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    _, *found = re.split(r"^## (.*)\n\n", text, flags=re.MULTILINE)
    parts = dict(zip(found[::2], found[1::2], strict=True))
    return {title: parts[title] for title in SCRIPTS.values() if title in parts}


def _page(parts: Mapping[str, str]) -> str:
    there = [(title, parts[title].rstrip()) for title in SCRIPTS.values() if title in parts]
    lost = ["## Where we lose\n"]
    for title, text in there:
        losses = [line for line in text.splitlines() if line.startswith("- ")]
        lost += [f"{title}:\n", *losses, ""] if losses else []
    return "\n".join(
        [HEAD, f"Measured with {_versions()}.\n", *lost, *(f"## {title}\n\n{text}\n" for title, text in there)]
    )


def _versions() -> str:
    installed = []
    for name in PEERS:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Python {platform.python_version()} on {platform.machine()}; {', '.join(installed)}"


def _tables(measured: list[dict[str, Any]]) -> Iterator[str]:
    for name, group in groupby(measured, key=lambda row: row["workload"]):
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
    """Yield a line for each goal that is missed, and for each library that is faster than we are."""
    ours = [row for row in rows if OURS.search(row["who"]) and row["ratio"] is not None]
    for row in rows:
        if row["met"] is False:
            is_ratio = row["ratio"] is not None and " x" in row["goal"]
            value = f"x{row['ratio']:.2f}" if is_ratio else f"{row['value']:,.4g} {row['unit']}"
            yield f"- {workload}: {row['who']} is at {value}, and its goal is {row['goal']}."
        if ours and row not in ours and row["ratio"] is not None:
            behind = [one["who"] for one in ours if one["unit"] == row["unit"] and one["ratio"] > row["ratio"]]
            if behind:
                yield f"- {workload}: {row['who']} (x{row['ratio']:.2f}) is faster than {', '.join(behind)}."


if __name__ == "__main__":
    main()
