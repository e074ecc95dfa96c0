"""W3: cost of importing agentkit, compared with the minimal imports of an agent library; the help of commands and a
chat without a question, compared with minimal typer programs; size of an installation.

`custom` imports the names of a program with a memory, layers and a hosted model; its limit also imports SQLAlchemy.
Other libraries import the names of an agent with a tool.

CPU time (user and system) of new interpreter processes, interleaved, order swapped each round, median of all rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from harness import Figure, Samples, figures, main

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
CUSTOM = f"""
{OURS}
from agentkit import Limits, OpenAIModel, Session
from agentkit.memory import Memory
from agentkit.prompts import KnowledgePrompt, Layers, MemoPrompt, TextPrompt
"""
CUSTOM_LIMIT = f"""{LIMIT}
from sqlalchemy import create_engine, select
"""
SCRIPTS = {"limit": LIMIT, "ours": OURS, "ours, and a first prompt": FIRST}
PEERS = {
    "pydantic-ai": ("pydantic_ai", "from pydantic_ai import Agent, Tool"),
    "openai-agents": ("agents", "from agents import Agent, Runner, function_tool"),
    "langchain": ("langchain", "from langchain.agents import create_agent; from langchain_core.tools import tool"),
    "haystack": ("haystack", "from haystack.components.agents import Agent; from haystack.tools import tool"),
    "agno": ("agno", "from agno.agent import Agent; from agno.tools import tool"),
    "llama-index": (
        "llama_index",
        "from llama_index.core.agent.workflow import FunctionAgent; from llama_index.core.tools import FunctionTool",
    ),
}
"""Module and imports by library."""
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
CHAT_LIMIT = """
import sys
import typer
from rich.console import Console

app = typer.Typer(rich_markup_mode="markdown")

@app.command()
def chat(name: str = typer.Option("x", help="A name.")) -> None:
    "Chat."
    console = Console(stderr=True)
    console.print("Ready.")
    for line in sys.stdin:
        console.print(line)

sys.stdin = sys.stderr = open("/dev/null", "r+")
app(["--name", "y"])
"""
CHAT = """
import sys
from agentkit.cli import main

sys.stdin = sys.stderr = open("/dev/null", "r+")
sys.argv = ["agentkit", "chat", "--model", "offline"]
main()
"""
HELP = """
import sys
from agentkit.cli import main

sys.stdout = open("/dev/null", "w")
sys.argv = ["agentkit", *{arguments!r}]
main()
"""
HELP_OF = ((), ("chat",), ("compose",), ("eval",), ("runs",), ("serve",))
LARGEST = 4
"""Number of distributions with a row of their size."""


def cpu_ms(script: str, folder: str) -> float:
    """Return the CPU milliseconds of an interpreter that runs the script and stores bytecode and data in a folder."""
    # Installed packages have bytecode, and a clone may be read-only; with a cache, all scripts have bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": folder, "HOME": folder, "HAYSTACK_TELEMETRY_ENABLED": "False"}
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", script], environment)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"import_time: this script failed, see above: {script!r}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def measured(workload: str, scripts: Mapping[str, str], rounds: int) -> Iterator[Figure]:
    """Yield the CPU milliseconds of each script; the first is the limit."""
    times: dict[str, list[float]] = {name: [] for name in scripts}
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts.values():  # writes bytecode and fills the disk cache
            cpu_ms(script, folder)
        for number in range(2 * rounds):
            for name in list(scripts)[:: 1 if number % 2 else -1]:
                times[name].append(cpu_ms(scripts[name], folder) / 1000)
    yield from figures(workload, {name: Samples(samples) for name, samples in times.items()}, unit="ms")


def importing(rounds: int) -> Iterator[Figure]:
    """Measure an interpreter that imports agentkit, another library, or the limit."""
    peers = {name: line for name, (module, line) in PEERS.items() if find_spec(module) is not None}
    yield from measured("W3 import", SCRIPTS | peers, rounds)
    yield from measured("W3 import, custom", {"limit": CUSTOM_LIMIT, "ours": CUSTOM}, rounds)


def help_pages(rounds: int) -> Iterator[Figure]:
    """Measure the help of commands, and of a minimal typer program."""
    scripts = {"typer program": HELP_LIMIT}
    for command in HELP_OF:
        scripts[" ".join(("agentkit", *command))] = HELP.format(arguments=[*command, "--help"])
    return measured("W3 help", scripts, rounds)


def chat(rounds: int) -> Iterator[Figure]:
    """Measure a chat that is ready and gets no question, and a typer program that does the same."""
    return measured("W3 chat ready", {"typer program": CHAT_LIMIT, "agentkit": CHAT}, rounds)


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
    yield Figure("W3 installed", "distributions", count, "")
    yield Figure("W3 installed", "unpacked", unpacked, "MB")
    for name in sorted(unpacked_by_name, key=unpacked_by_name.__getitem__, reverse=True)[:LARGEST]:
        yield Figure("W3 installed", f"unpacked, {name}", unpacked_by_name[name], "MB")
    yield Figure("W3 installed", "bytecode", bytecode, "MB")


if __name__ == "__main__":
    main(__doc__, {"import": importing, "help": help_pages, "chat": chat, "installed": installed})
