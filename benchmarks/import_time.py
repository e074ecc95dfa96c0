"""What it costs to import agentkit, against the least that any agent library of this kind must import.

Whole-process CPU (user and system) of fresh interpreters: ours, the limit and a bare one, interleaved, order swapped
each round, median of all rounds. `--install` also makes a base install in a new venv and weighs it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = "from agentkit import Agent, Chain, PromptContext, tool"
LIMIT = """
import asyncio
import jinja2
from pydantic import BaseModel, TypeAdapter
class Point(BaseModel):
    x: int
    y: int = 0
"""
SCRIPTS = {"ours": OURS, "limit": LIMIT, "bare": "pass"}
RATIO_GOAL, DISTRIBUTIONS_GOAL, MEGABYTES_GOAL = 1.25, 14, 35


def cpu_ms(script: str, cache: str) -> float:
    """CPU milliseconds of one interpreter that runs the script and keeps its bytecode in the folder `cache`."""
    # An installed package has its bytecode; a clone may be forbidden to write it. Here everybody has it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = cache
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", script], environment)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"import_time: this script failed, see above: {script!r}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def measure(rounds: int) -> dict[str, float]:
    """Return median CPU milliseconds per script, and the ratio of ours to the limit."""
    times: dict[str, list[float]] = {name: [] for name in SCRIPTS}
    with tempfile.TemporaryDirectory() as cache:
        for script in SCRIPTS.values():  # writes the bytecode, warms the disk cache
            cpu_ms(script, cache)
        for number in range(rounds):
            for name in list(SCRIPTS)[:: 1 if number % 2 else -1]:
                times[name].append(cpu_ms(SCRIPTS[name], cache))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    ratio = medians["ours"] / medians["limit"]
    return {**{f"{name}_ms": round(value, 1) for name, value in medians.items()}, "ratio": round(ratio, 3)}


def weigh() -> dict[str, float]:
    """Install agentkit without extras in a new venv; count its distributions and megabytes (10^6 bytes).

    Megabytes are what is downloaded and unpacked; the bytecode that pip compiles from it is counted apart.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
        (site,) = Path(folder).glob("lib/python3*/site-packages")
        found = [found for found in distributions(path=[str(site)]) if found.name not in ("pip", "setuptools")]
        files = {Path(str(file.locate())) for dist in found for file in dist.files or []}
        sizes = [(file.suffix == ".pyc", file.stat().st_size) for file in files if file.is_file()]
        return {
            "distributions": len(found),
            "megabytes": round(sum(size for compiled, size in sizes if not compiled) / 1e6, 1),
            "megabytes_of_bytecode": round(sum(size for compiled, size in sizes if compiled) / 1e6, 1),
        }


def main() -> None:
    """Print the figures beside their goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--install", action="store_true", help="also weigh a base install in a new venv")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = measure(options.rounds)
    goals = {"ratio": RATIO_GOAL, "distributions": DISTRIBUTIONS_GOAL, "megabytes": MEGABYTES_GOAL}
    if options.install:
        found |= weigh()
    if options.json:
        print(json.dumps({"workload": "W3", **found, "goals": goals}))
        return
    for name, value in found.items():
        print(f"{name:<28}{value:>9}" + (f"   goal: at most {goals[name]}" if name in goals else ""))


if __name__ == "__main__":
    main()
