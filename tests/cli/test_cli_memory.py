"""`agentkit recall` and `agentkit memory ...`: their output, their changes and their exit codes."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkit.memory import Memory, Scope
from agentkit.memory.recall import Point
from agentkit.prompts import File, Message, Text
from agentkit.testing import StoreProbe
from agentkit_memory.terms.bm25_vectors import document_vector
from tests.cli.conftest import Run, Start


def table(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.split()}


def test_recall_prints_each_match_with_its_place_and_score(run: Run, ingested: None) -> None:
    done = run("recall", "what does a barn owl hunt")
    assert (done.exit_code, done.stderr) == (0, "")
    head, *text = done.stdout.splitlines()
    score, place, title = head.split(" ", 2)
    assert float(score) > 0
    assert (place, title) == ("docs/owls.md:1", "Owls")
    assert "  The barn owl hunts at night and swallows its prey whole." in text


def test_recall_as_json_contains_the_same(run: Run, ingested: None) -> None:
    told = json.loads(run("recall", "barn owl", "--json").stdout)
    (found,) = told["documents"]
    assert (told["knowledge"], told["degraded"]) == ([], [])
    assert found["source"] == "docs/owls.md"
    assert found["score"] > 0
    assert found["metadata"]["line"] == 1
    assert "swallows its prey whole" in found["text"]


def test_the_limit_of_recall_is_the_number_of_chunks(run: Run, ingested: None) -> None:
    question = "owl herons tides"
    assert run("recall", question).stdout.count("docs/") == 3
    assert run("recall", question, "--limit", "2").stdout.count("docs/") == 2
    assert run("recall", question, "-n", "0").exit_code == 2


def test_no_match_sets_an_exit_code(run: Run, ingested: None) -> None:
    done = run("recall", "zebra")
    assert (done.exit_code, done.stdout, done.stderr) == (
        1,
        "",
        "no item was found; --user NAME also searches the data of a user\n",
    )
    done = run("recall", "zebra", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {"documents": [], "recalled": [], "knowledge": [], "degraded": []}


def test_recall_explains_its_candidates(run: Run, ingested: None) -> None:
    assert "words" not in run("recall", "barn owl").stdout
    shown = run("recall", "barn owl", "--why").stdout.splitlines()
    assert any(line.split()[:3] == ["1", "used", "chunk"] for line in shown)
    (best, *_) = json.loads(run("recall", "barn owl", "--why", "--json").stdout)["candidates"]
    assert (best["rank"], best["used"], best["kind"]) == (1, True, "chunk")


def test_recall_by_another_policy(run: Run, ingested: None) -> None:
    assert run("recall", "barn owl", "--policy", "bm25").stdout.split()[1] == "docs/owls.md:1"
    done = run("recall", "barn owl", "--policy", "bm26")
    assert done.exit_code == 1
    assert "bm25" in done.stderr


def test_facts_and_turns_are_shown_with_their_kind(run: Run, ingested: None, folder: Path) -> None:
    with Memory(folder / ".agentkit") as memory:
        memory.facts.add("Ada breeds axolotls.")
        memory.session("chat").append(Message("user", "My axolotls are called Tim and Tom", name="ada"))
    lines = run("recall", "axolotls").stdout.splitlines()
    assert lines[0].split()[1] == "fact"
    assert lines[1] == "  Ada breeds axolotls."
    assert " conversation chat:1 ada, " in lines[2]
    told = json.loads(run("recall", "axolotls", "--json").stdout)
    assert [fact["text"] for fact in told["knowledge"]] == ["Ada breeds axolotls."]


def test_recall_while_another_process_owns_the_index_reports_its_fallback(
    start: Start, ingested: None, folder: Path
) -> None:
    with Memory(folder / ".agentkit") as memory:
        memory.admin.verify()
        done = start("recall", "barn owl")
    assert done.returncode == 0
    assert done.stdout.split()[1] == "docs/owls.md:1"
    assert re.search(r"^recall is simpler while process \d+ has this folder open", done.stderr), done.stderr


def test_recall_finds_the_documents_that_a_user_may_read(run: Run, ingested: None, folder: Path) -> None:
    (folder / "mine.txt").write_text("Ada keeps an axolotl.", "utf-8")
    with Memory(folder / ".agentkit", scope=Scope("local", user="ada")) as memory:
        memory.ingest("mine.txt")
    assert run("recall", "axolotl").exit_code == 1
    assert run("recall", "axolotl", "--user", "bob").exit_code == 1
    assert run("recall", "axolotl", "--user", "ada").stdout.splitlines()[-1] == "  Ada keeps an axolotl."
    assert run("recall", "axolotl", "--user", "a\0").exit_code == 1


def test_commands_without_a_user_share_a_memory_and_open_sessions_of_a_server(run: Run, folder: Path) -> None:
    """Conversations of commands belong to the user `local`; a server without a user stores separate conversations."""
    assert run("chat", "--once", "I live in Bern.", "--session", "b").exit_code == 0
    asked = "Where do I live?"
    for command in (
        ("chat", "--once", asked, "--session", "x"),
        ("run", asked),
        ("recall", asked),
        ("compose", asked, "--json"),
    ):
        assert "Bern" in run(*command).stdout, command
        if command[0] != "chat":
            assert "Bern" not in run(*command, "--user", "bob").stdout, command
    with Memory(folder / ".agentkit") as memory:
        for name in ("a", "b"):
            separate = memory.within(Scope("local", session=name))
            separate.session(name).append(Message("user", f"Separate {name}."), Message("assistant", "Yes."))
    listed = json.loads(run("sessions", "list", "--json").stdout)
    assert [(info["name"], info["messages"]) for info in listed] == [("a", 2), ("b", 2), ("x", 2)]
    assert json.loads(run("sessions", "list", "--json", "--user", "local").stdout) == listed[1:]
    shown = {name: run("sessions", "show", name).stdout.splitlines()[0] for name in ("a", "b")}
    assert shown == {"a": "user: Separate a.", "b": "user: I live in Bern."}
    assert len(run("sessions", "export").stdout.splitlines()) == len(run("export").stdout.splitlines()) == 3
    assert run("chat", "--once", "Go on.", "--session", "a").exit_code == 0
    assert json.loads(run("sessions", "list", "--json").stdout)[0]["messages"] == 4
    forks = run("chat", "--session", "x", stdin="/fork a\n")
    assert "the conversation 'a' already exists" in forks.stderr
    for name in "abb":
        assert run("memory", "erase", "--conversation", name, "--yes").exit_code == 0, name
    assert [info["name"] for info in json.loads(run("sessions", "list", "--json").stdout)] == ["x"]
    assert "Separate" not in run("recall", "Separate").stdout


def test_control_characters_of_a_chunk_are_not_printed(run: Run, folder: Path) -> None:
    (folder / "docs/trap.md").write_text("# Trap \x1b]0;title\x07\n\nA walrus \x1b[31mred [bold]x[/bold].\n", "utf-8")
    run("ingest", "docs")
    done = run("recall", "walrus")
    assert "\x1b" not in done.stdout
    assert "[bold]x[/bold]" in done.stdout


@pytest.mark.parametrize("command", [("recall", "x"), ("memory", "verify"), ("memory", "repair"), ("memory", "expire")])
def test_a_folder_without_a_memory_is_reported_and_not_changed(
    run: Run, folder: Path, command: tuple[str, ...]
) -> None:
    done = run(*command, "--home", "nowhere")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("agentkit: nowhere: the folder has no memory; ")
    assert not (folder / "nowhere").exists()


def test_a_consistent_memory_verifies(run: Run, ingested: None) -> None:
    done = run("memory", "verify")
    assert (done.exit_code, done.stderr) == (0, "")
    found = table(done.stdout)
    assert (found["items"], found["points"]) == (["3"], ["3"])
    assert found["missing"] == found["stale"] == found["orphans"] == ["0"]
    assert json.loads(run("memory", "verify", "--json").stdout)["points"] == 3


def lose_a_point(home: Path) -> str:
    with Memory(home) as memory:
        index = StoreProbe(memory).index
        (lost, _), *_ = index.versions()
        index.delete([lost])
        # As many points as before, so that opening it does not repair it by itself.
        index.upsert([Point("00000000-0000-5000-8000-000000000000", 1, 1, document_vector("a stranger"))])
        index.flush()
    return lost


def test_missing_and_orphaned_points_are_reported_and_repaired(run: Run, ingested: None, folder: Path) -> None:
    lost = lose_a_point(folder / ".agentkit")
    done = run("memory", "verify")
    assert done.exit_code == 1
    found = table(done.stdout)
    assert (found["missing"], found["orphans"]) == (["1"], ["1"])
    assert f"missing: {lost}\n" in done.stderr
    assert "`agentkit memory repair` repairs it\n" in done.stderr

    done = run("memory", "repair")
    assert done.exit_code == 0
    assert table(done.stdout)["missing"] == ["1", "0"]
    assert table(done.stdout)["orphans"] == ["1", "0"]
    assert run("memory", "verify").exit_code == 0
    assert json.loads(run("memory", "repair", "--json").stdout)["after"]["missing"] == 0


def test_a_lost_index_is_rebuilt(run: Run, ingested: None, folder: Path) -> None:
    shutil.rmtree(folder / ".agentkit/index")
    assert run("recall", "barn owl").exit_code == 0
    assert run("memory", "verify").exit_code == 0


def test_an_index_that_another_process_owns_is_reported(run: Run, start: Start, ingested: None, folder: Path) -> None:
    with Memory(folder / ".agentkit") as memory:
        memory.admin.verify()
        done = start("memory", "verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert "in use by process" in done.stderr
    assert "Traceback" not in done.stderr


def test_expired_conversations_are_removed(run: Run, ingested: None, folder: Path) -> None:
    with Memory(folder / ".agentkit") as memory:
        memory.session("old").append(Message("user", "Wombats dig."))
        memory.session("old", expires_at=time.time() - 1)
        memory.session("new").append(Message("user", "Quokkas smile."))
    done = run("memory", "expire")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("removed 1 messages")
    done = run("memory", "expire")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "nothing has expired\n")
    assert json.loads(run("memory", "expire", "--json").stdout) == {}
    with Memory(folder / ".agentkit") as memory:
        assert len(memory.session("new").conversation) == 1


def remember(folder: Path, user: str, text: str) -> None:
    with Memory(folder / ".agentkit", scope=Scope("local", user=user)) as memory:
        memory.session("talk").append(Message("user", text))
        memory.facts.add(text)
        assert memory.recall(text).knowledge


def stored(folder: Path, user: str, text: str) -> bool:
    with Memory(folder / ".agentkit", scope=Scope("local", user=user)) as memory:
        return bool(memory.recall(text).knowledge) and len(memory.session("talk").conversation) == 1


def test_the_memory_of_another_tenant_is_read_and_erased_when_it_is_named(
    run: Run, ingested: None, folder: Path
) -> None:
    (folder / "theirs.txt").write_text("The kitchen keeps a pangolin.", "utf-8")
    with Memory(folder / ".agentkit", scope="kitchen") as memory:
        memory.ingest("theirs.txt")
    assert run("recall", "pangolin").exit_code == 1
    assert "pangolin" in run("recall", "pangolin", "--tenant", "kitchen").stdout
    assert run("recall", "pangolin", "--tenant", "").exit_code == 2
    assert run("memory", "erase", "--everything", "--tenant", "kitchen", "--yes").exit_code == 0
    assert run("recall", "pangolin", "--tenant", "kitchen").exit_code == 1
    with Memory(folder / ".agentkit", scope="local") as memory:
        assert memory.admin.verify().points > 0


def test_one_user_is_erased_with_proof_and_other_users_stay(run: Run, ingested: None, folder: Path) -> None:
    for user in ("ada", "bob"):
        remember(folder, user, f"{user} plays the marimbaphone")
    done = run("memory", "erase", "--user", "ada", "--yes")
    assert done.exit_code == 0
    assert done.stdout.startswith("removed ")
    assert "a new scan finds 0 rows, 0 points in the index\nno deleted bytes remain in the files\n" in done.stdout
    assert b"ada plays" not in b"".join(path.read_bytes() for path in folder.rglob(".agentkit/**/*") if path.is_file())
    assert stored(folder, "bob", "marimbaphone")
    again = run("memory", "erase", "--user", "ada", "--yes", "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["complete"] is True


def test_erasing_requires_a_confirmation(run: Run, folder: Path, ingested: None) -> None:
    remember(folder, "ada", "ada plays the marimbaphone")
    for answer in ("n\n", ""):
        done = run("memory", "erase", "--user", "ada", stdin=answer)
        assert done.exit_code == 1
        assert "Erase user ada from .agentkit?" in done.stderr
        assert stored(folder, "ada", "marimbaphone")
    assert run("memory", "erase", "--user", "ada", stdin="y\n").exit_code == 0
    assert not stored(folder, "ada", "marimbaphone")


def test_everything_is_erased_by_an_explicit_option(run: Run, folder: Path, ingested: None) -> None:
    assert run("memory", "erase", "--everything", "-y").exit_code == 0
    assert run("recall", "barn owl").exit_code == 1


@pytest.mark.parametrize("whom", [(), ("--user", "a", "--everything"), ("--conversation", "a", "--user", "b")])
def test_erasing_needs_exactly_one_subject(run: Run, ingested: None, whom: tuple[str, ...]) -> None:
    done = run("memory", "erase", "--yes", *whom)
    assert done.exit_code == 2
    assert "name a subject" in done.stderr


def test_one_conversation_is_erased(run: Run, folder: Path, ingested: None) -> None:
    with Memory(folder / ".agentkit") as memory:
        memory.session("one").append(Message("user", "Wombats dig."))
        memory.session("two").append(Message("user", "Quokkas smile."))
    assert run("memory", "erase", "--conversation", "one", "--yes").stdout == "removed 1 conversations\n"
    assert run("recall", "wombats").exit_code == 1
    assert run("recall", "quokkas").exit_code == 0
    done = run("memory", "erase", "--conversation", "one", "--yes")
    assert (done.exit_code, done.stderr) == (1, "unknown conversation one\n")


@pytest.mark.long
def test_an_erasure_without_access_to_the_index_is_reported_and_continues_later(
    run: Run, start: Start, folder: Path, ingested: None
) -> None:
    remember(folder, "ada", "ada plays the marimbaphone")
    with Memory(folder / ".agentkit") as owner:
        owner.admin.verify()
        done = start("memory", "erase", "--user", "ada", "--yes")
        assert done.returncode == 1
        assert "the index could not be read" in done.stdout
        assert "in use by process" in done.stderr
    assert run("memory", "verify").exit_code == 0
    assert run("memory", "erase", "--user", "ada", "--yes").exit_code == 0


class Letters:
    """An embedder without a model: the number of occurrences of each letter in a text."""

    def __init__(self, model: str) -> None:
        self.model = model

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0 + text.count(letter) for letter in "abcdefgh"] for text in texts]


def test_a_store_whose_model_is_unknown_here_is_searched_by_words(run: Run, folder: Path) -> None:
    with Memory(folder / ".agentkit", embedder=Letters("letters")) as memory:
        memory.ingest("docs")
    done = run("recall", "barn owl")
    assert done.exit_code == 0
    assert "dense retrieval is off: " in done.stderr
    assert "letters" in done.stderr


@pytest.fixture
def packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of models that write a file when they are imported."""
    (folder / "packages").mkdir()
    for name in ("fastembed", "sentence_transformers"):
        (folder / f"packages/{name}.py").write_text(f"open({str(folder / 'loaded')!r}, 'a').write('{name}')\n")
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]  # all modules that are imported after this line are removed with the test
    monkeypatch.syspath_prepend(folder / "packages")


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (["recall", "barn owl"], "sentence-transformers:weights"),
        (["ingest", "docs"], "sentence-transformers:./weights"),
        (["compose", "owls"], "fastembed:own"),
        (["memory", "repair"], "sentence-transformers:weights"),
    ],
)
def test_the_model_that_a_store_names_is_not_loaded(
    run: Run, folder: Path, packages: None, command: list[str], model: str
) -> None:
    with Memory(folder / ".agentkit", embedder=Letters(model)) as memory:
        memory.ingest("docs")
    done = run(*command)
    assert done.exit_code == 0
    assert not (folder / "loaded").exists()
    assert f"embedded by the model '{model}', which is loaded only when you name it" in done.stderr


def test_the_model_that_the_user_names_is_loaded(run: Run, folder: Path, packages: None) -> None:
    with Memory(folder / ".agentkit", embedder=Letters("sentence-transformers:letters")) as memory:
        memory.ingest("docs")
    assert run("recall", "barn owl", "--embedder", "sentence-transformers:letters").exit_code == 0
    assert (folder / "loaded").exists()


@pytest.mark.parametrize("name", ["./weights", "/srv/weights", "../weights", "a/b/c", "~/weights", ".hidden", "C:\\w"])
def test_a_path_is_not_a_name_of_a_model(run: Run, ingested: None, name: str) -> None:
    done = run("recall", "barn owl", "--embedder", f"sentence-transformers:{name}")
    assert done.exit_code == 1
    assert "expected its name on the hub" in done.stderr


def test_reembedding_to_words_activates_the_index_and_reports_its_checks(run: Run, folder: Path) -> None:
    with Memory(folder / ".agentkit", embedder=Letters("letters")) as memory:
        memory.ingest("docs")
    done = run("memory", "reembed", "--words", "--no-gate")
    assert done.exit_code == 0
    assert done.stdout == "3 items are found with BM25 alone\n"
    done = run("recall", "barn owl")
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(run("memory", "reembed", "--words", "--json").stdout)
    assert (told["flipped"], told["model"]) == (True, "")


def test_an_unavailable_model_is_reported_without_changes(run: Run, ingested: None) -> None:
    done = run("memory", "reembed", "nowhere:model")
    assert done.exit_code == 1
    assert "expected KIND:MODEL" in done.stderr
    assert run("recall", "barn owl").exit_code == 0
    assert run("memory", "reembed", "--abandon").stdout == "no change was started\n"
    assert run("memory", "reembed").exit_code == 2
    assert run("memory", "reembed", "openai:m", "--words").exit_code == 2


def test_an_index_with_low_self_retrieval_stays_inactive_and_is_reported(run: Run, folder: Path) -> None:
    for number in range(3):
        (folder / f"docs/{number}.txt").write_text("to be or not to be and that is it\n", "utf-8")
    with Memory(folder / ".agentkit", embedder=Letters("letters")) as memory:
        memory.ingest([folder / f"docs/{number}.txt" for number in range(3)])
    done = run("memory", "reembed", "--words")
    assert done.exit_code == 1
    assert "self-retrieval: 0 of 3 found, 90% needed\n" in done.stdout
    assert "the index with BM25 alone is built, but not active: " in done.stdout
    assert "--abandon" in done.stderr
    assert json.loads(run("memory", "reembed", "--words", "--json").stdout)["flipped"] is False
    assert run("memory", "reembed", "--abandon").stdout == "dropped\n"
    assert run("memory", "reembed", "--words", "--no-gate").exit_code == 0


@pytest.mark.parametrize("command", [("chat", "--once", "hi"), ("compose", "hi")])
def test_a_file_that_a_stored_message_names_is_not_opened(run: Run, folder: Path, command: tuple[str, ...]) -> None:
    (folder / "secret.txt").write_text("hush")
    with Memory(folder / ".agentkit") as memory:
        memory.session("s").append(Message("user", (Text("see"), File(folder / "secret.txt"))))
    done = run(*command, "--session", "s")
    assert done.exit_code == 1
    assert (
        "conversation 's', message 1: the command line does not open files that a store names, such as " in done.stderr
    )
    assert "hush" not in done.stdout + done.stderr


def test_a_store_is_backed_up_exported_restored_imported_and_measured(run: Run, ingested: None, folder: Path) -> None:
    with Memory(folder / ".agentkit") as memory:
        memory.session("chat").append(Message("user", "My axolotls are called Tim and Tom"))
    done = run("memory", "backup", "copy")
    assert (done.exit_code, done.stdout) == (0, f"{(folder / 'copy').stat().st_size:,} bytes\n")
    assert run("memory", "export", "lines").stdout.endswith(" rows\n")
    for command, file, home in (("restore", "copy", "second"), ("import", "lines", "third")):
        done = run("memory", command, file, "--home", home)
        assert (done.exit_code, done.stderr) == (0, "")
        assert "2 documents" in done.stdout and "1 messages" in done.stdout
        assert run("recall", "barn owl", "--home", home).stdout.split()[1] == "docs/owls.md:1"
        assert run("memory", "verify", "--home", home).exit_code == 0
        assert "this store is not empty" in run("memory", command, file, "--home", home).stderr
    (usage,) = json.loads(run("memory", "usage", "--json", "--home", "second").stdout)
    assert (usage["tenant"], usage["documents"], usage["messages"]) == ("local", 2, 1)
    shown = run("memory", "usage").stdout.splitlines()
    assert (shown[0].split()[0], shown[1].split()[0]) == ("tenant", "local")


def test_copies_that_exist_are_truncated_or_missing_are_refused(run: Run, ingested: None, folder: Path) -> None:
    assert run("memory", "backup", "copy").exit_code == 0
    (folder / "cut").write_bytes((folder / "copy").read_bytes()[:-1])
    for arguments, why in (
        (("backup", "copy"), "the file exists already"),
        (("export", "copy"), "the file exists already"),
        (("restore", "cut", "--home", "second"), "this backup is corrupt"),
        (("restore", "nothing", "--home", "third"), "the file does not exist"),
    ):
        done = run("memory", *arguments)
        assert (done.exit_code, done.stdout) == (1, "")
        assert why in done.stderr
    assert not (folder / "third").exists()
    assert run("memory", "backup", "x", "--index", "y").exit_code == 2
    done = run("memory", "usage", "--database", "mysql://x", "--index", "y")
    assert done.exit_code == 1 and "postgresql://" in done.stderr


def test_an_index_is_rebuilt_and_files_are_compacted(run: Run, ingested: None) -> None:
    assert table(run("memory", "rebuild").stdout)["points"] == ["3"]
    assert run("memory", "compact").stdout == "no deleted bytes remain\n"
    assert run("memory", "verify", "--sample", "1000").exit_code == 0
    assert run("memory", "verify", "--sample", "-1").exit_code == 2
