"""Measures everything and writes `docs/benchmarks.md`: `./scripts/bench write_page`.

Each script runs in a process of its own. A figure that misses its goal, or that another library does better, stands in
the page like any other.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
SCRIPTS = {
    "compose": "Composing a prompt",
    "chat_templates": "Chat templates",
    "agent": "Runs and sessions",
    "tools": "Tools",
    "memory": "Memory",
    "icl": "Evaluation prompts",
}
PEERS = ("pydantic-ai-slim", "openai-agents", "langchain", "jinja2", "qdrant-client")
HEAD = """# Benchmarks

`./scripts/bench write_page` measures this page anew; `./scripts/bench NAME` measures one part and prints it.

Every figure is CPU time of the process. The first row of a table is its limit: the same work written by hand. Limit,
agentkit and other libraries take turns in one process, in an order that is swapped each round, and the medians are
shown. Ratios hold from machine to machine, times do not.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = str(parser.parse_args().rounds)
    parts = [HEAD, f"Measured with {_versions()}.\n"]
    for script, title in SCRIPTS.items():
        print(f"measuring {script}", file=sys.stderr)
        command = [sys.executable, str(HERE / f"{script}.py"), "--json", "--rounds", rounds]
        measured = json.loads(subprocess.check_output(command, text=True))
        parts += [f"## {title}\n", *_tables(measured)]
    PAGE.write_text("\n".join(parts), "utf-8")


def _versions() -> str:
    installed = ", ".join(f"{name} {version(name)}" for name in PEERS)
    return f"Python {platform.python_version()} on {platform.machine()}; {installed}"


def _tables(measured: list[dict[str, Any]]) -> Iterator[str]:
    for workload, rows in groupby(measured, key=lambda row: row["workload"]):
        yield f"| {workload} | | times the limit | goal |\n|---|---|---|---|"
        for row in rows:
            ratio = "" if row["ratio"] is None else f"x{row['ratio']:.2f}"
            goal = f"{row['goal']}: {'met' if row['met'] else '**missed**'}" if row["goal"] else ""
            yield f"| {row['who']} | {row['value']:,.4g} {row['unit']} | {ratio} | {goal} |"
        yield ""


if __name__ == "__main__":
    main()
