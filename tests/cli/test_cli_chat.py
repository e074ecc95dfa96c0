"""`agentkit chat`: answers from recall and tools, resumed conversations, and the ways to exit."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentkit.memory import Memory
from agentkit.prompts import Message
from tests.cli.conftest import MAIN, Run, Start
from tests.servers import Asked, ChatServer, chat_reply, chunk, completion, in_turn, sends, streams

QUESTION = "When does the barn owl hunt?"
KEY = "sk-secret-0123456789"


@pytest.fixture
def endpoint(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> ChatServer:
    """The loopback endpoint, as the environment names one."""
    server.asked.clear()
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return server


def conversation(folder: Path, name: str) -> list[Message]:
    with Memory(folder / ".agentkit") as memory:
        return list(memory.session(name).conversation)


def test_without_a_key_the_offline_model_quotes_the_chunk_with_its_label_and_names_itself(
    run: Run, ingested: None
) -> None:
    done = run("chat", "--once", QUESTION)
    assert done.exit_code == 0
    assert "The barn owl hunts at night and swallows its prey whole." in done.stdout
    assert re.search(r"\[docs/owls\.md#\d+\]", done.stdout)
    assert "not a language model" in done.stdout
    assert "an offline model answers" in done.stderr
    assert "recalled docs/owls.md:1" in done.stderr


def test_a_tool_call_is_run_and_shown(run: Run) -> None:
    done = run("chat", "--once", 'Use calculate with expression="17 * (3 + 4)".')
    assert done.stdout.startswith("119\n")
    assert 'calls calculate {"expression": "17 * (3 + 4)"}\n  success: 119\n' in done.stderr


@pytest.mark.parametrize("in_a_process_of_its_own", [True, False])
def test_each_line_of_a_pipe_is_a_turn(run: Run, start: Start, ingested: None, in_a_process_of_its_own: bool) -> None:
    lines = [QUESTION, "", "/layers", "/nonsense", "/etc/hosts says what?", "/quit", "not asked"]
    done = (start if in_a_process_of_its_own else run)("chat", stdin="\n".join(lines))
    assert getattr(done, "returncode", None) == 0 or getattr(done, "exit_code", None) == 0
    assert done.stdout.count("not a language model") == 2
    assert "before_input[0]  chunks" in done.stdout
    assert "unknown command /nonsense; commands: /layers shows the last prompt, /why PLACE" in done.stderr


def test_with_json_each_line_of_a_pipe_has_a_line_of_json(run: Run) -> None:
    asked = ["/cost", "/layers", "/undo", "/nonsense", "Hi", "/cost", "/layers", "/why", "/why system[0]", "/fork two"]
    lines = [json.loads(line) for line in run("chat", "--json", stdin="\n".join([*asked, "/undo"])).stdout.splitlines()]
    assert [one.get("command") for one in lines] == [
        *("cost", "layers", "undo", "nonsense", None, "cost", "layers", "why", "why", "fork", "undo")
    ]
    assert ["error" in one for one in lines] == [at in (1, 2, 3, 7) for at in range(11)]
    before, after, layers, why, fork, undo = lines[0], lines[5], lines[6], lines[8], lines[9], lines[10]
    assert (before["turns"], after["turns"]) == (0, 1) and after["usage"] == lines[4]["usage"]
    assert layers["tokens"] > 0 and layers["layers"][0]["layer"] and why["pointer"] == "system[0]" and why["spans"]
    assert (fork["session"], fork["copy_of"], fork["messages"]) == ("two", lines[0]["session"], 2)
    assert (undo["session"], undo["messages"]) == ("two", 2)


def test_layers_before_the_first_turn_are_empty(run: Run) -> None:
    done = run("chat", stdin="/layers\n")
    assert done.exit_code == 0
    assert "nothing was sent yet" in done.stderr


def test_a_named_session_is_continued(run: Run, folder: Path) -> None:
    assert "session birds\n" in run("chat", "--session", "birds", "--once", "Good morning.").stderr
    assert "session birds, 2 messages so far" in run("chat", "-s", "birds", "--once", "Good evening.").stderr
    assert [message.role for message in conversation(folder, "birds")] == ["user", "assistant"] * 2


def test_each_chat_without_a_name_is_a_new_session_that_can_be_continued(run: Run, folder: Path) -> None:
    done = run("chat", "--once", "Good morning.")
    (name,) = re.findall(r"session (\S+)", done.stderr)
    assert conversation(folder, name)[0].text == "Good morning."
    assert "2 messages so far" in run("chat", "--session", name, "--once", "Again.").stderr


def test_an_invalid_name_of_a_session_is_refused(run: Run) -> None:
    done = run("chat", "--session", "x" * 300, "--once", "hello")
    assert done.exit_code == 1
    assert "session id: 300 characters, at most 255" in done.stderr


def test_bytes_that_are_not_utf_8_do_not_end_the_chat(start: Start, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "chat", "-s", "s"],
        input=b"caf\xe9\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert conversation(folder, "s")[0].text == "caf\ufffd"


def test_a_real_model_is_sent_the_layers_and_its_answer_is_streamed(
    run: Run, ingested: None, endpoint: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_MODEL", endpoint.on("owl-1", chat_reply("At night.")))
    done = run("chat", "--once", QUESTION)
    assert (done.exit_code, done.stdout) == (0, "At night.\n")
    assert "model owl-1" in done.stderr
    (asked,) = endpoint.asked
    assert asked.body["stream"] is True
    assert "The barn owl hunts at night" in asked.body["messages"][-1]["content"]
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["calculate", "current_time"]


def test_a_real_model_calls_a_tool_and_reads_its_result(run: Run, endpoint: ChatServer) -> None:
    endpoint.on(
        "sums", in_turn(chat_reply("", ("c1", "calculate", '{"expression": "2^10"}')), chat_reply("It is 1024."))
    )
    done = run("chat", "--model", "sums", "--once", "2 to the 10?")
    assert done.stdout == "It is 1024.\n"
    assert endpoint.asked[1].body["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "1024"}


def test_the_model_receives_the_earlier_turns_of_a_pipe(run: Run, endpoint: ChatServer) -> None:
    endpoint.on("echo", lambda asked: chat_reply(f"heard {len(asked.body['messages'])}")(asked))
    assert run("chat", "-m", "echo", stdin="one\ntwo\n").stdout == "heard 2\nheard 4\n"


def test_the_offline_model_can_be_selected_although_there_is_a_key(run: Run, endpoint: ChatServer) -> None:
    assert "not a language model" in run("chat", "--model", "offline", "--once", "hello").stdout
    assert endpoint.asked == []


def test_a_model_without_a_key_is_refused_before_any_request(run: Run, folder: Path) -> None:
    done = run("chat", "--model", "owl-1", "--once", "hello")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("agentkit: owl-1: missing API key: set OPENAI_API_KEY")
    assert not (folder / ".agentkit").exists()


def test_a_mistyped_provider_is_named_before_a_missing_key(run: Run) -> None:
    done = run("chat", "--model", "opnai:gpt-5", "--once", "hello")
    assert done.exit_code == 1
    assert "unknown provider 'opnai'; did you mean 'openai'?" in done.stderr
    assert "missing API key" in run("chat", "--model", "qwen2.5:7b", "--once", "hello").stderr


@pytest.mark.parametrize("key", ["", KEY])
def test_an_address_without_its_scheme_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    done = run("chat", "--model", "localhost:8055/v1#qwen3", "--once", "hello")
    assert done.exit_code == 1
    assert "an address starts with http:// or https://" in done.stderr


def refuses(status: int, message: str) -> object:
    return sends({"error": {"message": message, "code": None}}, status)


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (refuses(401, f"Incorrect API key provided: {KEY}"), "401: Incorrect API key provided: ***"),
        (refuses(400, "no"), "400: no"),
        (streams(chunk(content="At ni"), cut=b"x"), "broke off after 5 characters"),
        (sends("<html>"), "not a chat completion"),
    ],
    ids=["refused key", "bad request", "cut stream", "no protocol"],
)
def test_an_error_of_a_model_is_one_line_without_the_key(
    run: Run, endpoint: ChatServer, handler: object, said: str
) -> None:
    endpoint.on("broken", handler)  # type: ignore[arg-type]
    done = run("chat", "--model", "broken", "--once", "hello")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("agentkit: broken at 127.0.0.1:")
    assert said in done.stderr
    assert KEY not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_an_error_ends_a_pipe_and_keeps_the_conversation_in_the_store(
    run: Run, endpoint: ChatServer, folder: Path
) -> None:
    endpoint.on("moody", in_turn(chat_reply("Yes."), refuses(400, "no"), chat_reply("never asked")))  # type: ignore[arg-type]
    done = run("chat", "-m", "moody", "-s", "s", stdin="one\ntwo\nthree\n")
    assert (done.exit_code, done.stdout) == (1, "Yes.\n")
    assert [message.text for message in conversation(folder, "s")] == ["one", "Yes.", "two"]


def test_a_model_that_never_stops_calling_tools_is_stopped(run: Run, endpoint: ChatServer) -> None:
    endpoint.on("busy", chat_reply("", ("c1", "calculate", '{"expression": "1"}')))
    done = run("chat", "-m", "busy", "--once", "hello")
    assert done.exit_code == 1
    assert "the run stopped at its limit of 16 steps" in done.stderr


def test_the_output_of_a_model_cannot_control_the_terminal(run: Run, endpoint: ChatServer) -> None:
    endpoint.on("rude", chat_reply("a\x1b[2Jb\x07"))
    assert run("chat", "-m", "rude", "--once", "hello").stdout == "a\ufffd[2Jb\ufffd\n"


def test_long_arguments_and_results_of_tools_are_shortened(run: Run, endpoint: ChatServer) -> None:
    digits = "1" * 400
    endpoint.on("long", in_turn(chat_reply("", ("c1", "calculate", f'{{"expression": "{digits}"}}')), chat_reply("no")))
    done = run("chat", "-m", "long", "--once", "hello")
    assert "error: calculate failed: ToolError: the expression has 400 characters" in done.stderr
    assert all(len(line) < 400 for line in done.stderr.splitlines())


def test_an_offline_chat_shows_its_help_and_an_example_for_a_tool(run: Run, folder: Path) -> None:
    code = 'from agentkit import tool\nORDERS = {}\ndef order_status(order: str) -> str:\n    """Tell."""\n'
    (folder / "tools.py").write_text(f"{code}    return order\n")
    model = "{name: offline, redact: untrusted}"
    (folder / "shop.yaml").write_text(f"name: shop\nmodel: {model}\ntools: ['./tools.py:order_status']\n", "utf-8")
    done = run("chat", "--agent", "shop.yaml", stdin="/help\n")
    assert 'try: Use order_status with order="..."' in done.stderr
    assert "/layers shows the last prompt\n/why" in done.stdout and "unknown command" not in done.stderr
    (folder / "shop.yaml").write_text("name: shop\nmodel: offline\nmemory: tru\ntools: ['./tools.py:order']\n", "utf-8")
    done = run("chat", "--agent", "shop.yaml")
    assert "memory: expected true, or keys such as {home: .agentkit}, got text" in done.stderr
    (folder / "shop.yaml").write_text("name: shop\nmodel: offline\ntools: ['./tools.py:xyz']\n", "utf-8")
    done = run("chat", "--agent", "shop.yaml")
    assert "order_status" in done.stderr and "ORDERS" not in done.stderr and "tool," not in done.stderr


def test_messages_to_an_agent_without_memory_are_recalled_by_no_other_agent(run: Run, folder: Path) -> None:
    (folder / "shop.yaml").write_text("name: shop\nmodel: offline\n", "utf-8")
    own = ("--agent", "shop.yaml")
    assert run("chat", "-s", "s", "--once", "My barn owl is called Xanthippe.", *own).exit_code == 0
    assert run("run", "And she hunts.", "--session", "s", *own).exit_code == 0
    assert "Xanthippe" not in run("compose", "What is my barn owl called?", "--text").stdout
    assert "Xanthippe" not in run("recall", "What is my barn owl called?").stdout
    listed = run("sessions", "list")
    assert "--agent" in listed.stderr and "--user" in listed.stderr
    assert run("sessions", "list", *own).stdout.split()[3:5] == ["s", "4"]
    assert "Xanthippe" in run("sessions", "show", "s", *own).stdout
    assert "Xanthippe" in run("compose", "Hm?", "--session", "s", "--text", *own).stdout
    assert "Xanthippe" in run("export", *own).stdout


@contextmanager
def owned_index(folder: Path) -> Iterator[None]:
    with Memory(folder / ".agentkit") as memory:
        memory.recall("owl")
        yield


def test_a_second_process_on_the_index_recalls_without_it_and_names_its_owner(
    start: Start, ingested: None, folder: Path
) -> None:
    with owned_index(folder):
        done = start("chat", stdin=f"{QUESTION}\n{QUESTION}\n")
        assert done.returncode == 0
        assert len(re.findall(r"recalled docs/owls.md:", done.stderr)) == 2
        assert len(re.findall(r"recall is simpler while process \d+ has this folder open", done.stderr)) == 1
        assert "BM25 in SQL" not in done.stderr


@pytest.mark.long
def test_a_locked_database_is_reported_and_not_changed(run: Run, ingested: None, folder: Path) -> None:
    with closing(sqlite3.connect(folder / ".agentkit/memory.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        done = run("chat", "-s", "s", "--once", QUESTION)
    assert done.exit_code == 1
    assert "memory.db: database is locked; another process is writing; nothing was written" in done.stderr
    assert run("chat", "-s", "s", "--once", QUESTION).exit_code == 0


def test_a_file_that_is_not_a_database_is_reported_and_not_changed(run: Run, folder: Path) -> None:
    (folder / ".agentkit").mkdir()
    (folder / ".agentkit/memory.db").write_text("dear diary " * 100, "utf-8")
    for command in (["chat", "--once", "hello"], ["ingest", "docs"], ["compose", "hello"]):
        done = run(*command)
        assert done.exit_code == 1
        assert "memory.db: file is not a database" in done.stderr
    assert (folder / ".agentkit/memory.db").read_text("utf-8").startswith("dear diary")


def labels_of_request(asked: Asked) -> list[str]:
    return re.findall(r"\[[^\]\n]+#\d+\]", asked.body["messages"][-1]["content"])


def test_the_labels_in_a_request_are_the_labels_of_the_chunks(run: Run, ingested: None, endpoint: ChatServer) -> None:
    endpoint.on("cites", lambda asked: chat_reply(f"At night {labels_of_request(asked)[0]}.")(asked))
    done = run("chat", "-m", "cites", "--once", QUESTION)
    (label,) = re.findall(r"\[(docs/owls\.md#\d+)\]", done.stdout)
    with Memory(".agentkit") as memory:
        assert label in [document.label for document in memory.recall(QUESTION).documents]


def test_a_truncated_answer_is_reported_as_truncated(run: Run, endpoint: ChatServer) -> None:
    endpoint.on("cuts", sends(completion("Half of an", finish_reason="length")))
    for command in (("chat", "--once", "Tell."), ("run", "Tell.")):
        done = run(*command, "--model", "openai:cuts")
        assert done.exit_code == 0 and "Half of an" in done.stdout
        assert "the answer was cut" in done.stderr
    whole = run("run", "Tell.", "--model", "openai:cuts", "--json")
    assert json.loads(whole.stdout)["finish_reason"] == "length" and "was cut" not in whole.stderr
