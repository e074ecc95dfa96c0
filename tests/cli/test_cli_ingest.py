"""`agentkit ingest`: stored documents, output, and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentkit.cli.memory_notes import memory_notes
from agentkit.memory import Memory
from agentkit.server import Access, add_token
from tests.cli.conftest import MAIN, Run, Start


def sources(home: Path, query: str) -> list[str]:
    with Memory(home) as memory:
        return [document.source for document in memory.recall(query)]


def test_files_and_folders_are_stored_in_the_default_home(run: Run, folder: Path) -> None:
    done = run("ingest", "docs")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "2 new; 3 chunks written to .agentkit\n"
    assert sources(folder / ".agentkit", "what does a barn owl hunt") == ["docs/owls.md"]


def test_a_second_run_reports_changed_and_removed_files(run: Run, ingested: None, folder: Path) -> None:
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


def test_unreadable_files_are_listed_and_the_other_files_are_stored(run: Run, folder: Path) -> None:
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
def test_paths_without_readable_files_are_a_failure_without_a_traceback(
    run: Run, folder: Path, paths: list[str]
) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\0\1\2")
    done = run("ingest", *paths)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.fullmatch(r"agentkit: \S+: (is|cannot|has)[^\n]+\n", done.stderr)


def test_the_fields_of_records_can_be_named_and_damaged_files_can_be_accepted(run: Run, folder: Path) -> None:
    (folder / "a.jsonl").write_text('{"q": "Do owls swim?", "name": "Owls", "n": 7}\nno\n')
    assert run("ingest", "a.jsonl").exit_code == 1
    arguments = ("--text", "q", "--title", "name", "--metadata", "n", "--lenient")
    done = run("ingest", "a.jsonl", *arguments)
    assert (done.exit_code, done.stdout) == (0, "1 new; 1 chunks written to .agentkit\n")
    assert done.stderr.startswith("agentkit: a.jsonl: line 2 is not JSON")
    with Memory(folder / ".agentkit") as memory:
        assert [found.title for found in memory.recall("swim")] == ["Owls"]


def test_a_folder_without_text_is_reported_as_a_failure(run: Run, folder: Path) -> None:
    (folder / "empty").mkdir()
    done = run("ingest", "empty")
    told = "agentkit: no text, Markdown, HTML, PDF, Office or other readable file was found\n"
    assert (done.exit_code, done.stderr) == (1, told)


def test_control_characters_in_a_name_are_not_printed(run: Run, folder: Path) -> None:
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


def test_documents_stored_while_another_process_owns_the_index_are_indexed_later(
    run: Run, start: Start, folder: Path
) -> None:
    with Memory(folder / ".agentkit") as memory:
        assert memory.recall("owl") == ()  # this process now owns the index
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
    read = bytearray()  # read while it runs: a terminal buffers 4 kB, and a slow machine draws the bar often
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


def test_documents_belong_to_the_named_tenant_user_or_are_shared(run: Run, folder: Path) -> None:
    assert run("ingest", "docs/owls.md", "--tenant", "acme").exit_code == 0
    assert run("ingest", "docs/tides.txt", "--tenant", "acme", "--user", "ada").exit_code == 0
    shared = run("ingest", "docs", "--shared", "manuals")
    assert (shared.exit_code, "`memory: {shared: [manuals]}`" in shared.stderr) == (0, True)
    (folder / "reader.yaml").write_text("model: offline\nmemory: {home: .agentkit, shared: [manuals]}\n")
    # The file names the documents already.
    assert "memory:" not in run("ingest", "docs", "--shared", "manuals", "--agent", "reader.yaml").stderr
    owls, tides = ("when does the barn owl hunt", "docs/owls.md"), ("tides moon", "docs/tides.txt")
    cases = (
        (owls, ("--tenant", "acme"), True),
        (tides, ("--tenant", "acme"), False),
        (tides, ("--tenant", "acme", "--user", "ada"), True),
        (tides, ("--tenant", "acme", "--user", "bob"), False),
        (owls, (), False),
        (owls, ("--tenant", "bolt"), False),
        (owls, ("--shared", "manuals"), True),
        (tides, ("--tenant", "bolt", "--user", "bob", "--shared", "manuals"), True),
        (tides, ("--tenant", "acme", "--shared", "manual"), False),
        (tides, ("--tenant", "acme", "--shared", "manual", "--shared", "manuals"), True),
    )
    wrong = []
    for (question, source), options, is_recalled in cases:
        if (source in run("recall", question, *options).stdout) != is_recalled:
            wrong.append((question, options))
    assert wrong == []
    for options in (("--tenant", "acme"), ("--user", "ada")):
        assert run("ingest", "docs", "--shared", "manuals", *options).exit_code == 2
    assert run("ingest", "docs", "--tenant", "shared:manuals").exit_code == 1


def test_an_empty_name_of_a_user_or_a_tenant_is_refused(run: Run, ingested: None, folder: Path) -> None:
    """An unset variable of a shell must not name all users, or the default tenant."""
    cases = (
        ("ingest", "docs", "--user", ""),
        ("ingest", "docs", "--tenant", ""),
        ("run", "Hi", "--model", "offline", "--user", ""),
        ("chat", "--once", "Hi", "--model", "offline", "--user", ""),
        ("recall", "owls", "--user", ""),
        ("sessions", "list", "--user", ""),
        ("memory", "erase", "--yes", "--user", ""),
        ("memory", "erase", "--yes", "--user", "", "--session", "s"),
        ("memory", "erase", "--yes", "--user", "ada", "--session", ""),
        ("memory", "erase", "--yes", "--everything", "--tenant", ""),
    )
    assert {words: code for words in cases if (code := run(*words).exit_code) != 2} == {}
    assert run("recall", "when does the barn owl hunt").exit_code == 0


def test_agents_of_commands_read_shared_documents_by_name(run: Run, folder: Path) -> None:
    run("ingest", "docs", "--shared", "manuals")
    Path("plain.yaml").write_text("model: offline\n")
    question = "when does the barn owl hunt"
    wrong: list[Any] = []
    for words in (("run", question), ("chat", "--session", "s", "--once", question), ("compose", question, "--text")):
        for names, is_recalled in (((), False), (("manuals",), True), (("manual",), False), (("x", "manuals"), True)):
            options = [option for name in names for option in ("--shared", name)]
            printed = run(*words, "--model", "offline", *options)
            if printed.exit_code or ("docs/owls.md" in printed.stdout) is not is_recalled:
                wrong.append((words, names, printed.output))
        if run(*words, "--agent", "plain.yaml", "--shared", "manuals").exit_code != 2:
            wrong.append((words, "an agent without memory"))
    assert wrong == []


def test_the_locale_of_commands_selects_the_texts_of_templates(run: Run, folder: Path) -> None:
    Path("desk.py").write_text(
        "from agentkit import Agent, ScriptedModel\nfrom agentkit.prompts import TextPrompt\n"
        "model = ScriptedModel.repeat(lambda sent: sent.messages[0].text)\n"
        "agent = Agent(model, TextPrompt({'en': 'Be brief.', 'de': 'Antworte kurz.'}))\n"
    )
    wrong: list[Any] = []
    for locale, text in ((None, "Be brief."), ("de-AT", "Antworte kurz."), ("it", "Be brief.")):
        for words in (
            ("run", "Hi", "--journal", f"{locale}.journal"),
            ("chat", "--once", "Hi"),
            ("compose", "Hi", "--text"),
        ):
            options = [] if locale is None else ["--locale", locale]
            printed = run(*words, "--agent", "./desk.py:agent", *options)
            if printed.exit_code or text not in printed.stdout:
                wrong.append((locale, words, printed.output))
    assert wrong == []
    resumed = run("run", "--resume", "it.journal", "--agent", "./desk.py:agent", "--locale", "de")
    assert resumed.exit_code == 2


def test_a_token_of_a_tenant_without_documents_is_created_with_a_note(run: Run, ingested: None, folder: Path) -> None:
    notes = {tenant: run("token", tenant, "--tenant", tenant).stderr for tenant in ("acme", "local")}
    assert {tenant: "has no documents" in note for tenant, note in notes.items()} == {"acme": True, "local": False}
    (folder / ".agentkit" / "memory.db").write_bytes(b"corrupt")
    assert run("token", "cell", "--tenant", "cell").exit_code == 0


def test_a_server_names_tenants_without_documents_and_how_to_name_users(folder: Path) -> None:
    def kinds(access: Access, *sources: object) -> list[str]:
        texts, known = memory_notes(sources, access), ("without a user", "no documents", "without documents")
        return [kind for text in texts for kind in known if kind in text]

    add_token("access.yaml", "web", "acme")
    with Memory("home") as memory:
        shared = memory.within("local", shared=["manuals"])
        assert kinds(Access()) == kinds(Access(), None, object()) == []
        assert kinds(Access("access.yaml"), memory) == ["without a user"]
        memory.documents.add("Owls", source="owls")
        assert kinds(Access(), memory) == ["without a user"]
        assert kinds(Access("access.yaml"), memory, None) == ["without a user", "no documents"]
        memory.shared_documents("manuals").add("Owls", source="owls")
        assert kinds(Access("access.yaml"), shared) == ["without a user"]
        assert kinds(Access("access.yaml"), shared, memory) == ["without a user", "no documents"]
        add_token("access.yaml", "ada", "acme", user="ada")
        assert kinds(Access("access.yaml"), memory) == ["no documents"]
        for number in range(5):
            add_token("access.yaml", f"t{number}", f"t{number}")
        assert kinds(Access("access.yaml"), memory) == [*["no documents"] * 3, "without documents"]
