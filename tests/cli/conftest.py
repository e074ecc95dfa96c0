"""A working folder, the command in this process and in a separate process, and an endpoint on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from agentkit.cli.app import app
from tests.servers import ChatServer, serve

MAIN = "from agentkit.cli import main; main()"
OWLS = "# Owls\n\nThe barn owl hunts at night and swallows its prey whole.\n\n# Herons\n\nHerons fish at dawn.\n"

Run = Callable[..., Result]
Start = Callable[..., "subprocess.CompletedProcess[str]"]


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command of a group with the words that call it, in the form in which it is called."""
    for name in group.commands:
        _, command, _ = group.resolve_command(typer.Context(group), [name])
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh working folder with two documents in it."""
    monkeypatch.delenv("AGENTKIT_HOME", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "owls.md").write_text(OWLS, "utf-8")
    (docs / "tides.txt").write_text("Spring tides follow the full moon.\n", "utf-8")
    return tmp_path


@pytest.fixture
def run() -> Run:
    """Run the command in this process."""

    def command(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, arguments, input=stdin)

    return command


@pytest.fixture
def start() -> Start:
    """Run the command in a separate process."""

    def command(*arguments: str | bytes, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", MAIN, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env={**os.environ, **environment},
            timeout=60,
            check=False,
        )

    return command


@pytest.fixture
def ingested(run: Run) -> None:
    assert run("ingest", "docs").exit_code == 0


@pytest.fixture(scope="session")
def server() -> Iterator[ChatServer]:
    with serve() as running:
        yield running
