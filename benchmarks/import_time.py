"""W3: cost of importing agentkit, compared with the minimal imports of an agent library; the help of commands, compared
with the help of a minimal typer program; size of an installation.

CPU time (user and system) of new interpreter processes, interleaved, order swapped each round, median of all rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
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
HELP_LIMIT = """
import sys
import typer

sys.stdout = open("/dev/null", "w")
app = typer.Typer(rich_markup_mode="markdown")

@app.command()
def chat(name: str = typer.Option("x", help="A name.")) -> None:
    "Chat."

@app.command()
def run(name: str = typer.Option("x", help="A name.")) -> None:
    "Run."

app(["run", "--help"])
"""
HELP = """
import sys
from agentkit.cli import main

sys.stdout = open("/dev/null", "w")
sys.argv = ["agentkit", *{arguments!r}]
main()
"""
HELP_OF = ((), ("chat",), ("compose",), ("eval",), ("runs",), ("serve",))
GOAL, HELP_GOAL = 1.25, 1.5
LARGEST = 4
"""Number of distributions with a row of their size."""


def cpu_ms(script: str, cache: str) -> float:
    """Return the CPU milliseconds of an interpreter that runs the script and stores bytecode in the folder `cache`."""
    # Installed packages have bytecode, and a clone may be read-only; with a cache, all scripts have bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = cache
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", script], environment)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"import_time: this script failed, see above: {script!r}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def median_ms(scripts: Mapping[str, str], rounds: int) -> list[float]:
    """Return the median CPU milliseconds of each script."""
    times: dict[str, list[float]] = {name: [] for name in scripts}
    with tempfile.TemporaryDirectory() as cache:
        for script in scripts.values():  # writes bytecode and fills the disk cache
            cpu_ms(script, cache)
        for number in range(2 * rounds):
            for name in list(scripts)[:: 1 if number % 2 else -1]:
                times[name].append(cpu_ms(scripts[name], cache))
    return [statistics.median(samples) for samples in times.values()]


def help_pages(rounds: int) -> Iterator[Figure]:
    """Yield the CPU time of the help of commands, and of a minimal typer program."""
    scripts = {"typer program": HELP_LIMIT}
    for command in HELP_OF:
        scripts[" ".join(("agentkit", *command))] = HELP.format(arguments=[*command, "--help"])
    limit, *ours = median_ms(scripts, rounds)
    yield Figure("W3 help", "typer program", limit, "ms")
    for name, value in zip(list(scripts)[1:], ours, strict=True):
        yield Figure("W3 help", name, value, "ms", value / limit, f"at most x{HELP_GOAL}", value <= HELP_GOAL * limit)


def importing(rounds: int) -> Iterator[Figure]:
    """Yield the CPU time of an interpreter that imports agentkit, the limit, or no package."""
    limit, ours, first, bare = median_ms(SCRIPTS, rounds)
    ratio = ours / limit
    yield Figure("W3 import", "limit", limit, "ms")
    yield Figure("W3 import", "ours", ours, "ms", ratio, f"at most x{GOAL}", ratio <= GOAL)
    yield Figure("W3 import", "ours, and a first prompt", first, "ms", first / limit)
    yield Figure("W3 import", "bare python", bare, "ms")


def installed(_: int) -> Iterator[Figure]:
    """Yield the size of an installation without extras in a new environment, in megabytes of 10^6 bytes.

    The bytecode that pip compiles is a separate row and is not included in the size of the unpacked files. The largest
    distributions have rows too, because most of the size is in the compiled files of dependencies.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
        (site,) = Path(folder).glob("lib/python3*/site-packages")
        packages = [package for package in distributions(path=[str(site)]) if package.name not in ("pip", "setuptools")]
        unpacked_by_name: dict[str, float] = {}
        bytecode = 0.0
        for package in packages:
            paths = {Path(str(file.locate())) for file in package.files or []}
            sizes = [(path.suffix == ".pyc", path.stat().st_size / 1e6) for path in paths if path.is_file()]
            unpacked_by_name[package.name] = sum(size for is_bytecode, size in sizes if not is_bytecode)
            bytecode += sum(size for is_bytecode, size in sizes if is_bytecode)
    unpacked = sum(unpacked_by_name.values())
    count = len(packages)
    yield Figure("W3 installed", "distributions", count, "with agentkit", goal="at most 14", met=count <= 14)
    yield Figure("W3 installed", "unpacked", unpacked, "MB", goal="at most 35 MB", met=unpacked <= 35)
    for name in sorted(unpacked_by_name, key=unpacked_by_name.__getitem__, reverse=True)[:LARGEST]:
        yield Figure("W3 installed", f"unpacked, {name}", unpacked_by_name[name], "MB")
    yield Figure("W3 installed", "bytecode", bytecode, "MB")


if __name__ == "__main__":
    main(__doc__, {"import": importing, "help": help_pages, "installed": installed})
