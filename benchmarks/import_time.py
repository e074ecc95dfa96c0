"""W3: what it costs to import agentkit, against the least that any agent library of this kind must import; its weight.

Whole-process CPU (user and system) of fresh interpreters, interleaved, order swapped each round, median of all rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from harness import Figure, main

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
FIRST = f"""
{OURS}
Agent("openai:none", "Be brief.").compose("Hello").messages
"""
SCRIPTS = {"limit": LIMIT, "ours": OURS, "ours, and a first prompt": FIRST, "bare python": "pass"}
GOAL = 1.25


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


def importing(rounds: int) -> Iterator[Figure]:
    """Yield what an interpreter takes that imports agentkit, the limit, or nothing."""
    times: dict[str, list[float]] = {name: [] for name in SCRIPTS}
    with tempfile.TemporaryDirectory() as cache:
        for script in SCRIPTS.values():  # writes the bytecode, warms the disk cache
            cpu_ms(script, cache)
        for number in range(2 * rounds):
            for name in list(SCRIPTS)[:: 1 if number % 2 else -1]:
                times[name].append(cpu_ms(SCRIPTS[name], cache))
    limit, ours, first, bare = (statistics.median(taken) for taken in times.values())
    ratio = ours / limit
    yield Figure("W3 import", "limit", limit, "ms")
    yield Figure("W3 import", "ours", ours, "ms", ratio, f"at most x{GOAL}", ratio <= GOAL)
    yield Figure("W3 import", "ours, and a first prompt", first, "ms", first / limit)
    yield Figure("W3 import", "bare python", bare, "ms")


def installed(_: int) -> Iterator[Figure]:
    """Yield the weight of an install without extras in a new environment, in megabytes of 10^6 bytes.

    They are what is downloaded and unpacked; the bytecode that pip compiles from it is counted apart.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
        (site,) = Path(folder).glob("lib/python3*/site-packages")
        found = [found for found in distributions(path=[str(site)]) if found.name not in ("pip", "setuptools")]
        files = {Path(str(file.locate())) for dist in found for file in dist.files or []}
        sizes = [(file.suffix == ".pyc", file.stat().st_size) for file in files if file.is_file()]
    whole, bytecode = (sum(size for compiled, size in sizes if compiled is which) / 1e6 for which in (False, True))
    count = len(found)
    yield Figure("W3 installed", "distributions", count, "with ours", goal="at most 14", met=count <= 14)
    yield Figure("W3 installed", "unpacked", whole, "MB", goal="at most 35 MB", met=whole <= 35)
    yield Figure("W3 installed", "bytecode", bytecode, "MB")


if __name__ == "__main__":
    main(__doc__, {"import": importing, "installed": installed})
