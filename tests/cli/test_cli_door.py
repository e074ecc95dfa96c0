"""The command as a whole: help, version, missing parts, and errors of no single command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

import agentkit
from agentkit.cli import main
from agentkit.cli.app import app
from tests.cli.conftest import Run, Start, commands
from tests.raising import raises


def test_the_command_prints_its_help_and_needs_no_store(start: Start, folder: Path) -> None:
    done = start("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().startswith("Usage: agentkit")
    assert not (folder / ".agentkit").exists()


def test_a_ctrl_c_before_the_command_starts_ends_it_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")  # while modules are imported
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-m", "agentkit", "--help"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_list_describes_each_command_with_the_opening_of_its_help() -> None:
    group: Any = get_command(app)
    for name, listed in group.commands.items():
        _, command, _ = group.resolve_command(Context(group), [name])
        assert listed.help == " ".join(command.help.partition("\n\n")[0].split()), name


def test_the_list_of_commands_imports_no_command() -> None:
    code = "import sys; from agentkit.cli.app import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"agentkit.cli.app", "typer"} <= loaded
    others = {"agentkit.agent.agent", "agentkit.cli.commands.chat_command", "asyncio", "pydantic", "sqlalchemy", "yaml"}
    assert not loaded & others


@pytest.mark.long
def test_every_command_has_a_valid_example_and_json_and_shows_it_without_a_store(run: Run, folder: Path) -> None:
    for path, command in commands(get_command(app)):
        shown = run(*path, "--help")
        assert (shown.exit_code, shown.stderr) == (0, ""), path
        assert f" {' '.join(path)} [OPTIONS]" in shown.stdout
        example = shlex.split((command.help or "").rpartition("Example: agentkit ")[2])
        assert tuple(example[: len(path)]) == path, f"{path}: no example"
        own = takewhile(lambda one: one not in ("&&", "|", ">"), example[len(path) :])
        command.make_context(path[-1], [*own])  # raises for an unknown option
        takes_json = any("--json" in one.opts for one in command.params)
        assert takes_json == (path != ("mcp",)), path  # whose output is the protocol
        assert run(*path, "--no-such-option").exit_code == 2
    assert not (folder / ".agentkit").exists()


def test_the_help_names_the_variables_that_choose_a_model(run: Run) -> None:
    shown = run("--help").stdout
    assert all(name in shown for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"))
    assert "AGENTKIT_HOME" in run("chat", "--help").stdout


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout == f"agentkit {agentkit.__version__}\n"


def test_a_command_that_does_not_exist_is_a_usage_error(run: Run) -> None:
    done = run("nonsense")
    assert done.exit_code == 2
    assert "nonsense" in done.stderr


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_names_the_command_to_install_it(missing: str) -> None:
    code = f"import sys; sys.modules['{missing}'] = None; from agentkit.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "chat"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "agentkit: the command line needs the extra `cli`: pip install 'agentkit-prompt-tree[cli]', "
        "in a clone pip install -e '.[cli]'\n"
    )


def test_another_module_that_is_missing_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("agentkit.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agentkit.agent.agent", None)
    monkeypatch.setattr(sys, "argv", ["agentkit", "chat"])
    with raises(ModuleNotFoundError, name="agentkit.agent.agent"):
        main()


@pytest.mark.parametrize(
    ("extra", "module", "model", "exit_code"),
    [
        ("vector", "qdrant_edge", "offline", 0),
        ("vector", "snowballstemmer", "offline", 0),
        ("openai", "openai", "m", 1),
    ],
)
def test_without_another_extra_a_line_names_it(
    folder: Path, extra: str, module: str, model: str, exit_code: int
) -> None:
    code = f"import sys; sys.modules['{module}'] = None; from agentkit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "chat", "-m", model, "--once", "hello"],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENAI_API_KEY": "sk-0123456789"},
        timeout=60,
        check=False,
    )
    assert done.returncode == exit_code
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if extra in line]) == 1
    # A chat without recall answers, and stores the conversation.
    assert bool(done.stdout.strip()) == (exit_code == 0)


def test_the_entry_point_runs_the_command_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentkit", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out == f"agentkit {agentkit.__version__}\n"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody without rights")
def test_folders_that_may_not_be_entered_or_written_are_reported_in_a_line(run: Run, folder: Path) -> None:
    run("ingest", "docs", "--home", "closed")
    for parent in folder.parents:
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o555)
    folder.chmod(0o755)
    os.seteuid(65534)
    try:
        read_only = [run("ingest", "docs", "--home", "closed"), run("chat", "--once", "owl", "--home", "closed")]
        os.seteuid(0)
        (folder / "closed").chmod(0o700)
        os.seteuid(65534)
        closed = [run("compose", "owl", "--home", "closed"), run("recall", "owl", "--home", "closed")]
        deeper = run("ingest", "docs", "--home", "closed/deeper")
    finally:
        os.seteuid(0)
    assert [done.stderr for done in closed] == ["agentkit: closed: permission denied\n"] * 2
    for done in [*read_only, *closed, deeper]:
        assert done.exit_code == 1
        assert done.stderr.startswith("agentkit: ")
        assert "closed" in done.stderr
