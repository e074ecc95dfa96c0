"""Measures all parts of `docs/benchmarks.md` and writes the page: `./scripts/bench write_page`.

`./scripts/bench write_page agent tools` measures only these two parts; `--no-measurement` only writes the page again.
Each script runs in a separate process, and its figures are stored in `figures.json`. A part that fails is reported in
the page and does not stop the other parts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from goals import unused_goals
from page_plots import plot_turns, plot_workloads
from page_text import loss_table, losses, matters, rows_of, tables

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = HERE / "figures.json"
PARTS = {
    "agent": "Runs",
    "sessions": "Sessions",
    "compose": "Composing a prompt",
    "chat_templates": "Chat templates",
    "tools": "Tools",
    "code_mode": "Tool calls of code",
    "memory": "Memory",
    "memory_growth": "Growth of a memory",
    "recall_time": "Many clients of a memory",
    "peer_memory": "Memory and mem0",
    "durable": "Durable runs",
    "durable_queue": "Durable workers",
    "server": "Server",
    "adapters": "Adapters of models",
    "evaluations": "Evaluations",
    "icl": "Evaluation prompts",
    "import_time": "Importing and installing",
    "inspector": "Inspector",
    "inspector_size": "Inspector of many runs",
}
"""Titles by script, in the order of the page."""
PLOTS = {
    "benchmarks-workloads.svg": "Cost of workloads, in multiples of the same work written by hand",
    "benchmarks-turns.svg": "Cost of a turn against the number of turns before it, on logarithmic axes",
}
"""Descriptions by file."""
PEERS = (
    "pydantic-ai-slim",
    "openai-agents",
    "langchain",
    "langgraph",
    "haystack-ai",
    "agno",
    "llama-index-core",
    "minijinja",
    "mem0ai",
    "jinja2",
    "qdrant-client",
    "openai",
    "anthropic",
)
PART_SECONDS, ALL_SECONDS = 420, 1750
"""Seconds after which a part, or the rest of the parts, is not measured."""
MAXIMUM_WORDS = 2_500
"""Maximum of a page, by `tests/house/test_pages.py`."""
LEAST = (
    "icl",
    "inspector",
    "chat_templates",
    "code_mode",
    "durable_queue",
    "memory",
    "evaluations",
    "tools",
    "inspector_size",
    "import_time",
    "server",
)
"""Parts whose tables are left out first if the page is too long; their losses remain."""
HOW = """
A figure is the median CPU time of the process. "x2" is twice the limit: the same work written by hand, or another
library. Limit, agentkit and others alternate in one process, in an order that is swapped each round, with a different
input on each call. "custom" rows do what users write: custom templates, tools, settings, listeners. A percentage is the
largest share of the rows in a model call of one second. Ratios are similar on all machines, times are not. The goals
are in `benchmarks/goals.toml`. `./scripts/bench write_page` measures this page in at most 30 minutes, and
`./scripts/bench NAME` measures one part.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", choices=[[], *PARTS], help=f"parts: {', '.join(PARTS)}; by default, all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-measurement", action="store_true", help="write the page from the stored figures")
    options = parser.parse_args()
    parts: dict[str, Any] = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    deadline = time.monotonic() + ALL_SECONDS
    for script in [] if options.no_measurement else options.part or PARTS:
        print(f"measuring {script}", file=sys.stderr)
        parts[script] = measured(script, options.rounds, min(PART_SECONDS, deadline - time.monotonic()))
        FIGURES.write_text(stored(parts), "utf-8")
    write(parts)


def stored(parts: Mapping[str, Any]) -> str:
    """Return the parts as JSON, with a line per figure."""
    texts = []
    for script, part in parts.items():
        figures = ",\n".join([json.dumps(figure, ensure_ascii=False) for figure in part["figures"]])
        rest = json.dumps({"about": part["about"], "error": part["error"]}, ensure_ascii=False)
        texts.append(f'"{script}": {rest[:-1]}, "figures": [\n{figures}\n]}}')
    return "{\n" + ",\n".join(texts) + "\n}\n"


def measured(script: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the figures of a part, or the reason why some of them are missing."""
    part: dict[str, Any] = {"about": about(rounds), "figures": [], "error": None}
    if seconds < 10:
        part["error"] = "not measured: no time is left"
        return part
    command = [sys.executable, str(HERE / f"{script}.py"), "--json", "--rounds", str(rounds)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a part that takes too long ends with its processes
        env=environment,
        cwd=ROOT,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
        if process.returncode != 0:
            part["error"] = next(reversed(errors.strip().splitlines()), f"exit status {process.returncode}")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        part["error"] = f"ended after {seconds:.0f} seconds"
    part["figures"] = [json.loads(line) for line in output.splitlines() if line.startswith('{"workload"')]
    if part["error"] is not None:
        print(f"{script}: {part['error']}", file=sys.stderr)
    return part


def about(rounds: int) -> dict[str, Any]:
    """Return the machine, the commit and the time of a measurement."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "rounds": rounds,
        "python": platform.python_version(),
        "versions": dict(installed_versions()),
    }


def cpu_model() -> str:
    """Return the name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Return the short hash of the commit, without the changes of the working tree."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def installed_versions() -> Iterator[tuple[str, str]]:
    for name in PEERS:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def write(parts: Mapping[str, Any]) -> None:
    """Write the page and its plots."""
    figures = [figure for part in parts.values() for figure in part["figures"]]
    for goal in unused_goals((figure["workload"], figure["who"]) for figure in figures):
        print(f"a goal without a figure: {goal}", file=sys.stderr)
    workloads, turns = (PAGE.with_name(name) for name in PLOTS)
    plot_workloads(rows_of(figures), workloads)
    plot_turns(figures, turns)
    text = ""
    for number in range(len(LEAST) + 1):
        text = "\n".join(page_lines(parts, LEAST[:number])) + "\n"
        if len(re.findall(r"\S*\w\S*", text)) <= MAXIMUM_WORDS:
            break
    PAGE.write_text(text, "utf-8")


def page_lines(parts: Mapping[str, Any], without_table: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the page."""
    losses_of = {script: list(losses(rows_of(part["figures"]))) for script, part in parts.items()}
    lost = [loss for part in losses_of.values() for loss in part]
    number = len([loss for loss in lost if matters(loss)])
    yield "# Benchmarks\n"
    yield f"{len(lost)} rows miss a goal, or another library is faster: the first table lists them. {_verdict(number)}"
    yield HOW
    yield "## Where agentkit loses\n"
    yield "| work | rows that lose | of a model call |"
    yield "|---|---|---|"
    for script, title in PARTS.items():
        yield from loss_table(title, losses_of.get(script, []))
    yield ""
    for script, title in PARTS.items():
        if script in parts and parts[script]["error"] is not None:
            yield f"{title}: this part failed: `{parts[script]['error'][:200]}`.\n"
    missing = [title for script, title in PARTS.items() if script not in parts]
    if missing:
        yield f"Not measured: {', '.join(missing)}.\n"
    plots = [f"![{text}]({name})\n" for name, text in PLOTS.items() if PAGE.with_name(name).exists()]
    if plots:
        yield "\n".join(["## Plots\n", *plots])
    for script, title in PARTS.items():
        if script not in parts or script in without_table:
            continue
        lines = list(tables(rows_of(parts[script]["figures"])))
        if lines:
            yield f"## {title}\n"
            yield "\n".join(lines)
    names = [f"`{script}`" for script in without_table if script in parts]
    if names:
        yield f"`./scripts/bench NAME` prints the figures of parts without a table here: {', '.join(names)}.\n"
    yield "## Measurement\n"
    yield from measurement_lines(parts)


def _verdict(number: int) -> str:
    """Return a sentence about the number of losses that take a hundredth of a model call or more."""
    if number == 0:
        return "Each takes less than 1% of a model call of one second, happens once per process, or is a size."
    return f"Rows that take 1% of a model call of one second, or more: {number}."


def measurement_lines(parts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each measurement: usually one, and more if parts were measured later."""
    titles: dict[str, list[str]] = {}
    for script, part in parts.items():
        titles.setdefault(json.dumps(part["about"]), []).append(PARTS.get(script, script))
    written = ""
    for text, names in titles.items():
        where = json.loads(text)
        versions = ", ".join([f"{name} {number}" for name, number in where["versions"].items()])
        machine = f"{where['cpu']}, {where['cores']} cores, {where['date']}"
        state = f"commit {where['commit']}, {where['rounds']} rounds, Python {where['python']}"
        yield f"- {', '.join(names)}: {machine}, {state}{'' if versions == written else f', {versions}'}."
        written = versions
    yield ""


if __name__ == "__main__":
    main()
