"""`scripts/setup` installs the project once, in any folder, and reports the cause and the remedy of a failure."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

PYTHON = f"""#!/bin/bash
case "$*" in
  *version_info*) exit "${{TOO_OLD:-0}}" ;;
  *getencoding* | *LOCK_EX*) exec {shlex.quote(sys.executable)} "$@" ;;
  --version) echo Python 3.10.1 ;;
  "-m venv .venv")
    if [ -n "$VENV_OUTPUT" ]; then echo "$VENV_OUTPUT"; exit 1; fi
    echo venv >>"$CALLS"
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python ;;
  "-m pip install -q uv"*) exit 1 ;;
  "-m pip install"*)
    echo pip >>"$CALLS"
    if [ -n "$PIP_OUTPUT" ]; then echo "$PIP_OUTPUT"; exit 1; fi
    if [ -n "$PIP_WAITS" ]; then echo waiting >"$PIP_WAITS"; sleep 60; fi ;;
esac
"""
"""A Python that creates environments and installs packages without a network: variables choose its failures."""
PROGRAMS = ["bash", "cat", "cksum", "cp", "dirname", "grep", "head", "mkdir", "printf", "rm", "sed", "sleep", "tail"]


class Checkout:
    """A folder with `scripts/setup`, and a PATH with one Python."""

    def __init__(self, parent: Path) -> None:
        self.folder = parent / "a folder é"
        self.programs = parent / "programs"
        self.calls = parent / "calls"
        (self.folder / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "pyproject.toml", self.folder)
        shutil.copy(ROOT / "scripts/setup", self.folder / "scripts")
        self.programs.mkdir()
        for name in PROGRAMS:
            (self.programs / name).symlink_to(str(shutil.which(name)))
        (self.programs / "python3").write_text(PYTHON)
        (self.programs / "python3").chmod(0o755)

    def start(self, **variables: str) -> subprocess.Popen[str]:
        environment = {"PATH": str(self.programs), "LC_ALL": "C.UTF-8", "CALLS": str(self.calls)} | variables
        return subprocess.Popen(
            [self.folder / "scripts/setup", "cli,vector"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def run(self, **variables: str) -> tuple[int, str]:
        process = self.start(**variables)
        output, _ = process.communicate()
        return process.returncode, output

    def called(self) -> list[str]:
        """Return the steps since the last call: `venv` for an environment, `pip` for an installation."""
        calls = self.calls.read_text().split() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return calls


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_it_installs_once_and_again_when_the_project_or_its_folder_changes(checkout: Checkout) -> None:
    assert checkout.run()[0] == 0
    assert checkout.called() == ["venv", "pip"]
    assert checkout.run() == (0, "")
    assert checkout.called() == []
    with (checkout.folder / "pyproject.toml").open("a") as project:
        project.write("\n")
    assert checkout.run()[0] == 0
    assert checkout.called() == ["pip"]
    checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    assert checkout.run()[0] == 0
    assert checkout.called() == ["venv", "pip"]


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        ({"TOO_OLD": "1"}, ["Python 3.11 or newer", "python3 is 3.10.1", "PYTHON="]),
        ({"PYTHON": "/no/python"}, ["PYTHON=/no/python is not Python 3.11"]),
        ({"VENV_OUTPUT": "ensurepip is not available"}, ["cannot create .venv", "python3-venv"]),
        ({"VENV_OUTPUT": "[Errno 28] No space left on device"}, ["disk is full"]),
        ({"LC_ALL": "C"}, ["LC_ALL=C.UTF-8"]),
        ({"PIP_OUTPUT": "NewConnectionError: Temporary failure in name resolution"}, ["check the network"]),
        ({"PIP_OUTPUT": "ProxyError('Cannot connect to proxy.')"}, ["HTTPS_PROXY"]),
        ({"PIP_OUTPUT": "OSError: [Errno 28] No space left on device"}, ["disk is full"]),
        ({"PIP_OUTPUT": "[Errno 13] Permission denied: 'lib'"}, ["permissions"]),
        ({"PIP_OUTPUT": "WARNING: a note\nERROR: a package does not compile"}, ["ERROR: a package", "lines above"]),
    ],
)
def test_a_failure_has_its_cause_and_a_remedy_and_the_next_run_succeeds(
    checkout: Checkout, variables: dict[str, str], parts: list[str]
) -> None:
    code, output = checkout.run(**variables)
    assert code == 1
    assert [part for part in parts if part not in output] == [], output
    assert "WARNING" not in output
    assert checkout.run()[0] == 0
    assert checkout.run() == (0, "")


def test_a_path_without_python_is_reported(checkout: Checkout) -> None:
    (checkout.programs / "python3").unlink()
    code, output = checkout.run()
    assert code == 1
    assert "Python 3.11 or newer is not on the PATH" in output


def test_an_environment_stays_without_a_network_and_is_created_again_after_a_full_disk(checkout: Checkout) -> None:
    steps = {"ConnectionError": ["pip"], "No space left on device": ["venv", "pip"]}
    for output, expected in steps.items():
        assert checkout.run(PIP_OUTPUT=output)[0] == 1
        checkout.called()
        assert checkout.run()[0] == 0
        assert checkout.called() == expected, output
        with (checkout.folder / "pyproject.toml").open("a") as project:
            project.write("\n")


def test_an_interrupted_installation_starts_again_with_a_new_environment(checkout: Checkout, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waits")
    process = checkout.start(PIP_WAITS=str(tmp_path / "waits"))
    assert (tmp_path / "waits").read_text() == "waiting\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert "run the command again" in process.communicate()[0]
    assert process.returncode == 130
    checkout.called()
    assert checkout.run()[0] == 0
    assert checkout.called() == ["venv", "pip"]


def test_an_installation_waits_for_another_installation_in_the_same_folder(checkout: Checkout) -> None:
    with (checkout.folder / "pyproject.toml").open() as project:
        fcntl.flock(project, fcntl.LOCK_EX)
        process = checkout.start()
        assert process.stdout is not None
        assert "another installation" in process.stdout.readline()
        assert checkout.called() == []
    process.communicate()
    assert process.returncode == 0
    assert checkout.called() == ["venv", "pip"]
