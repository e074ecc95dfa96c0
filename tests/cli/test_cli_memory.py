"""`agentkit recall` and `agentkit memory ...`: what they tell, what they change, and how they end."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from agentkit.memory import Memory, Scope
from agentkit.prompts import Message
from agentkit_memory.index.base import Point
from agentkit_memory.index.bm25 import document_vector
from tests.cli.conftest import Run, Start


def table(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.split()}


def test_recall_shows_what_was_found_with_its_place_and_score(run: Run, ingested: None) -> None:
    done = run("recall", "what does a barn owl hunt")
    assert (done.exit_code, done.stderr) == (0, "")
    head, *text = done.stdout.splitlines()
    score, place, title = head.split(" ", 2)
    assert float(score) > 0
    assert (place, title) == ("docs/owls.md:1", "Owls")
    assert "  The barn owl hunts at night and swallows its prey whole." in text


def test_recall_as_json_holds_the_same(run: Run, ingested: None) -> None:
    (found,) = json.loads(run("recall", "barn owl", "--json").stdout)
    assert found["source"] == "docs/owls.md"
    assert found["score"] > 0
    assert found["metadata"]["line"] == 1
    assert "swallows its prey whole" in found["text"]


def test_recall_shows_as_many_passages_as_asked_for(run: Run, ingested: None) -> None:
    question = "owl herons tides"
    assert run("recall", question).stdout.count("docs/") == 3
    assert run("recall", question, "--limit", "2").stdout.count("docs/") == 2
    assert run("recall", question, "-n", "0").exit_code == 2


def test_nothing_found_is_an_exit_code(run: Run, ingested: None) -> None:
    done = run("recall", "zebra")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "nothing was found\n")
    done = run("recall", "zebra", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (1, [])


def test_recall_sees_what_a_user_may_see(run: Run, ingested: None, folder: Path) -> None:
    (folder / "mine.txt").write_text("Ada keeps an axolotl.", "utf-8")
    with Memory.open(folder / ".agentkit", scope=Scope("local", user="ada")) as memory:
        memory.ingest("mine.txt")
    assert run("recall", "axolotl").exit_code == 1
    assert run("recall", "axolotl", "--user", "bob").exit_code == 1
    assert run("recall", "axolotl", "--user", "ada").stdout.splitlines()[-1] == "  Ada keeps an axolotl."
    assert run("recall", "axolotl", "--user", "a\0").exit_code == 1


def test_a_passage_that_would_steer_a_terminal_is_shown_without_it(run: Run, folder: Path) -> None:
    (folder / "docs/trap.md").write_text("# Trap \x1b]0;title\x07\n\nA walrus \x1b[31mred [bold]x[/bold].\n", "utf-8")
    run("ingest", "docs")
    done = run("recall", "walrus")
    assert "\x1b" not in done.stdout
    assert "[bold]x[/bold]" in done.stdout


@pytest.mark.parametrize("command", [("recall", "x"), ("memory", "verify"), ("memory", "repair"), ("memory", "expire")])
def test_a_folder_without_a_memory_is_told_and_left_alone(run: Run, folder: Path, command: tuple[str, ...]) -> None:
    done = run(*command, "--home", "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("agentkit: nowhere: there is no memory; ")
    assert not (folder / "nowhere").exists()


def test_a_sound_memory_verifies(run: Run, ingested: None) -> None:
    done = run("memory", "verify")
    assert (done.exit_code, done.stderr) == (0, "")
    found = table(done.stdout)
    assert (found["items"], found["points"]) == (["3"], ["3"])
    assert found["missing"] == found["stale"] == found["orphans"] == ["0"]
    assert json.loads(run("memory", "verify", "--json").stdout)["points"] == 3


def lose_a_point(home: Path) -> str:
    with Memory.open(home) as memory:
        index = memory._store.index()
        (lost, _), *_ = index.versions()
        index.delete([lost])
        # As many points as before, so that opening it does not mend it by itself.
        index.upsert([Point("00000000-0000-5000-8000-000000000000", 1, 1, document_vector("a stranger"))])
        index.flush()
    return lost


def test_what_is_missing_and_left_over_is_found_named_and_mended(run: Run, ingested: None, folder: Path) -> None:
    lost = lose_a_point(folder / ".agentkit")
    done = run("memory", "verify")
    assert done.exit_code == 1
    found = table(done.stdout)
    assert (found["missing"], found["orphans"]) == (["1"], ["1"])
    assert f"missing: {lost}\n" in done.stderr
    assert "`agentkit memory repair` mends it\n" in done.stderr

    done = run("memory", "repair")
    assert done.exit_code == 0
    assert table(done.stdout)["missing"] == ["1", "0"]
    assert table(done.stdout)["orphans"] == ["1", "0"]
    assert run("memory", "verify").exit_code == 0
    assert json.loads(run("memory", "repair", "--json").stdout)["after"]["missing"] == 0


def test_a_lost_index_is_built_again(run: Run, ingested: None, folder: Path) -> None:
    shutil.rmtree(folder / ".agentkit/index")
    assert run("recall", "barn owl").exit_code == 0
    assert run("memory", "verify").exit_code == 0


def test_an_index_that_another_process_owns_is_told(run: Run, start: Start, ingested: None, folder: Path) -> None:
    with Memory.open(folder / ".agentkit") as memory:
        memory.verify()
        done = start("memory", "verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert "in use by process" in done.stderr
    assert "Traceback" not in done.stderr


def test_expired_conversations_go(run: Run, ingested: None, folder: Path) -> None:
    with Memory.open(folder / ".agentkit") as memory:
        memory.session("old", expires_at=time.time() - 1).append(Message("user", "Wombats dig."))
        memory.session("new").append(Message("user", "Quokkas smile."))
    done = run("memory", "expire")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("removed 1 messages")
    done = run("memory", "expire")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "nothing has expired\n")
    assert json.loads(run("memory", "expire", "--json").stdout) == {}
    with Memory.open(folder / ".agentkit") as memory:
        assert len(memory.session("new").conversation) == 1
