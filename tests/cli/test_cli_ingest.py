"""`agentkit ingest`: what is stored, what is printed, and its exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agentkit.memory import Memory
from tests.cli.conftest import MAIN, Run, Start


def sources(home: Path, query: str) -> list[str]:
    with Memory(home) as memory:
        return [document.source for document in memory.recall(query)]


def test_files_and_folders_are_stored_in_the_default_home(run: Run, folder: Path) -> None:
    done = run("ingest", "docs")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "2 new; 3 chunks written to .agentkit\n"
    assert sources(folder / ".agentkit", "what does a barn owl hunt") == ["docs/owls.md"]


def test_a_second_run_reports_what_changed_and_what_was_removed(run: Run, ingested: None, folder: Path) -> None:
    assert run("ingest", "docs").stdout == "2 unchanged; 0 chunks written to .agentkit\n"
    (folder / "docs/owls.md").write_text("Owls turn their heads.", "utf-8")
    (folder / "docs/tides.txt").unlink()
    (folder / "docs/new.md").write_text("A newt.", "utf-8")
    assert run("ingest", "docs").stdout == "1 new, 1 changed, 1 removed; 2 chunks written to .agentkit\n"


def test_the_home_is_an_option_or_a_variable(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("ingest", "docs/owls.md", "--home", "one").exit_code == 0
    monkeypatch.setenv("AGENTKIT_HOME", "two")
    assert run("ingest", "docs/owls.md").exit_code == 0
    assert (folder / "one/memory.db").exists()
    assert (folder / "two/memory.db").exists()
    assert not (folder / ".agentkit").exists()


def test_files_that_cannot_be_read_are_listed_and_the_others_stored(run: Run, folder: Path) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\0\1\2")
    (folder / "latin.txt").write_bytes("café".encode("latin-1"))
    done = run("ingest", "docs", "image.png", "latin.txt", "nowhere")
    assert done.exit_code == 1
    assert done.stdout == "2 new; 3 chunks written to .agentkit\n"
    lines = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["image.png", "latin.txt", "nowhere"]
    assert [
        "is an image, which is recalled by its alt text" in lines[0],
        "is not UTF-8 text" in lines[1],
        "No such file" in lines[2],
    ] == [True] * 3


@pytest.mark.parametrize("paths", [["nowhere"], ["image.png"], ["/proc/self/mem"]])
def test_nothing_readable_is_a_failure_without_a_traceback(run: Run, folder: Path, paths: list[str]) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\0\1\2")
    done = run("ingest", *paths)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(r"agentkit: \S+: (is|cannot|has)[^\n]+\n", done.stderr)


def test_the_fields_of_records_can_be_named_and_damaged_files_be_taken(run: Run, folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"q": "Do owls swim?", "name": "Owls", "n": 7}\nno\n')
    assert run("ingest", "a.jsonl").exit_code == 1
    arguments = ("--text", "q", "--title", "name", "--metadata", "n", "--lenient")
    done = run("ingest", "a.jsonl", *arguments)
    assert (done.exit_code, done.stdout) == (0, "1 new; 1 chunks written to .agentkit\n")
    assert done.stderr.startswith("agentkit: a.jsonl: line 2 is not JSON")
    with Memory(folder / ".agentkit") as memory:
        assert [found.title for found in memory.recall("swim")] == ["Owls"]


def test_a_folder_without_text_is_a_failure_that_says_so(run: Run, folder: Path) -> None:
    (folder / "empty").mkdir()
    done = run("ingest", "empty")
    told = "agentkit: no text, Markdown, HTML, PDF, Office or other readable file was found\n"
    assert (done.exit_code, done.stderr) == (1, told)


def test_a_name_that_would_steer_a_terminal_is_shown_without_it(run: Run, folder: Path) -> None:
    (folder / "a\x1b[31m\x07.md").write_bytes(b"\0")
    done = run("ingest", "a\x1b[31m\x07.md")
    assert done.exit_code == 1
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


def test_a_home_that_is_a_file_is_a_failure_that_names_it(run: Run, folder: Path) -> None:
    done = run("ingest", "docs", "--home", "docs/owls.md")
    assert done.exit_code == 1
    assert done.stderr.startswith("agentkit: docs/owls.md")
    assert "choose another folder" in done.stderr


def test_what_is_stored_while_another_process_owns_the_index_waits_for_it(run: Run, start: Start, folder: Path) -> None:
    with Memory(folder / ".agentkit") as memory:
        assert memory.recall("owl") == ()  # from now on this process owns the index
        done = start("ingest", "docs")
        assert (done.returncode, done.stdout) == (0, "2 new; 3 chunks written to .agentkit\n")
        assert done.stderr == ("3 chunks and messages wait to be indexed, and are found by their words until then\n")
        assert [document.source for document in memory.recall("barn owl")] == ["docs/owls.md"]


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX's")
def test_a_terminal_sees_a_bar(folder: Path) -> None:
    import pty

    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-c", MAIN, "ingest", "docs"]
    read = bytearray()  # while it runs: a terminal holds 4 kB, and a slow machine draws the bar often
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, env=environment) as process:
        os.close(slave)
        with suppress(OSError):  # Linux raises it when the other side is closed
            while piece := os.read(master, 1 << 16):
                read += piece
        printed, _ = process.communicate(timeout=60)
    os.close(master)
    shown = read.decode()
    assert (process.returncode, printed) == (0, b"2 new; 3 chunks written to .agentkit\n")
    assert "reading" in shown
    assert "2/2" in shown
