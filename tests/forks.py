"""Python processes without the time to import: one process imports modules once, and forks a process per program."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.waiting import LONG

AGENTS = (
    "agentkit.agent.agent",
    "agentkit.models.offline.scripted_model",
    "agentkit.prompts",
    "agentkit.run.engine.run_result",
    "agentkit.run.parts.session",
    "agentkit_prompts.templates.sandbox.prompt_environment",
    "agentkit_tools.schemas.docstring",
)
"""Modules that programs with agents load."""
MEMORIES = (
    "agentkit_memory.database.postgres",
    "agentkit_memory.facts",
    "agentkit_memory.index.indexes",
    "agentkit_memory.index.qdrant_edge",
    "agentkit_memory.ingest.pipeline",
    "agentkit_memory.memory",
)
"""Modules that programs with memories load."""


class Forked:
    """A process that runs a program. Its folder contains its output, and its exit code after its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pid = int(self._read("pid"))

    def kill(self) -> None:
        """Kill the process unless it has ended."""
        if not (self._folder / "code").exists():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit code, which is negative for a signal, after the end of the process."""
        return int(self._read("code"))

    def output(self) -> str:
        """Return the output so far."""
        return (self._folder / "stdout").read_text("utf-8")

    def errors(self) -> str:
        """Return the error output so far."""
        return (self._folder / "stderr").read_text("utf-8")

    def _read(self, name: str) -> str:
        end = time.monotonic() + LONG
        while not (self._folder / name).exists():
            assert time.monotonic() < end, f"no {name} of {self._folder}"
            time.sleep(0.005)
        return (self._folder / name).read_text("utf-8")


class Forks:
    """The process that forks."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder

    def start(self, *arguments: str | Path, cwd: Path | None = None, **environment: str) -> Forked:
        """Run a script with its arguments, or a text of Python after `-c`."""
        folder = Path(mkdtemp(dir=self._folder))
        order = {
            "arguments": [*map(str, arguments)],
            "cwd": str(cwd or Path.cwd()),
            "environment": {**os.environ, **environment},
            "folder": str(folder),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Forked(folder)


@contextmanager
def forks(folder: Path, *modules: str) -> Iterator[Forks]:
    """Start a process that imports modules and forks. `folder` gets the outputs."""
    if not hasattr(os, "fork"):
        pytest.skip("os.fork is missing")
    command = [sys.executable, "-m", "tests.forks", *modules]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, text=True)
    try:
        yield Forks(process, folder)
    finally:
        process.communicate(timeout=LONG)


def _serve(modules: list[str]) -> None:
    """Fork a process for each order of the standard input, and a process that notes its end."""
    for module in modules:
        importlib.import_module(module)
    watching: set[int] = set()
    for line in sys.stdin:
        watching = {pid for pid in watching if os.waitpid(pid, os.WNOHANG) == (0, 0)}
        if watcher := os.fork():
            watching.add(watcher)
            continue
        order = json.loads(line)
        folder = Path(order["folder"])
        _redirect(folder)
        if child := os.fork():
            _write(folder / "pid", child)
            # The process stays until its exit code is written: no other process gets its number before.
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            assert ended is not None
            _write(folder / "code", ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
            os.waitpid(child, 0)
            os._exit(0)
        _run(**order)
        return
    for pid in watching:
        os.waitpid(pid, 0)


def _write(path: Path, number: int) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(str(number))
    partial.rename(path)


def _redirect(folder: Path) -> None:
    """Replace the input of this process with an empty input, and write its outputs to files."""
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = (Path(os.devnull), os.O_RDONLY), (folder / "stdout", appending), (folder / "stderr", appending)
    for number, (path, flags) in enumerate(files):
        file = os.open(path, flags, 0o600)
        os.dup2(file, number)
        os.close(file)


def _run(arguments: list[str], cwd: str, environment: dict[str, str], folder: str) -> None:
    """Run a program as Python runs its main module."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    if (failpoints := sys.modules.get("agentkit_memory.process.failpoints")) is not None:
        importlib.reload(failpoints)  # it reads the environment when it is imported
    sys.argv = arguments
    if arguments[0] == "-c":
        sys.path[0] = ""
        exec(compile(arguments.pop(1), "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1:])
