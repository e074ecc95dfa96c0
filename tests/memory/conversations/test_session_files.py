"""Conversations from a file of JSON lines: validated completely, stored once, continued after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentkit.memory import AlreadyUsed, IngestError, Memory
from agentkit_memory.conversations.session_file import SessionImport
from agentkit_prompts.limits import MAX_INPUT_BYTES
from tests.raising import raises

CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ROUND = [
    {"role": "user", "content": "Look"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "a heron"},
]
INVALID = [
    ("{", "expected JSON"),
    ("[1]", "expected an object"),
    ('{"session": "", "messages": []}', "session: a name cannot be empty; messages: expected a list of messages"),
    ('{"session": "s", "messages": [{"role": "user"}], "said_at": "x", "keys": 1}', "unknown field 'keys'"),
    ('{"session": "s", "messages": [{"role": "user"}], "said_at": "x"}', "said_at: expected seconds"),
    ('{"session": "s", "messages": [{"role": "narrator", "content": "x"}]}', "messages[0]"),
    ('{"session": "s", "messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}', "messages[0]"),
    ('{"session": "s", "messages": [{"role": "user", "content": "\\ud800"}]}', "surrogate"),
    ('{"session": "s\\u0000", "messages": [{"role": "user", "content": "x"}]}', "session: "),
    ('{"session": "s", "messages": [{"role": "user", "content": "x"}], "key": 1}', "key: expected text"),
]


def line(session: str, *texts: str, **more: Any) -> str:
    return json.dumps({"session": session, "messages": [{"role": "user", "content": text} for text in texts], **more})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sessions.jsonl"


def test_lines_are_stored_once_in_the_conversations_they_name(either: Memory, file: Path) -> None:
    lines = [line("s", "a", "b", key="k", said_at=5.0), "", line("t", "c"), line("s", "d"), line("s", "d")]
    file.write_text("\n".join([*lines, json.dumps({"session": "u", "messages": ROUND})]))
    progress: list[SessionImport] = []
    done = either.admin.import_sessions(file, on_progress=progress.append)
    assert (done.lines, done.added, done.done_bytes) == (5, 8, done.total_bytes)
    assert progress == [done]
    assert [each.text for each in either.session("s").conversation] == ["a", "b", "d", "d"]
    assert [each.said_at for each in either.session("s").page(limit=2, after=0)] == [5.0, 5.0]
    assert [each.role for each in either.session("u").conversation] == ["user", "assistant", "tool"]
    assert len(either.session("u").tool_calls()) == 1
    again = either.admin.import_sessions(file)
    assert (again.lines, again.added) == (5, 0)
    other = either.within("other")
    assert either.admin.import_sessions(file, scope="other").added == 8
    assert len(other.session("s").conversation) == 4
    assert [each.text for each in either.recall("b")] == ["b"]


def test_the_error_names_all_invalid_lines_and_nothing_is_stored(memory: Memory, file: Path) -> None:
    lines = [line("s", "a"), *[text for text, _ in INVALID], line("s", "b", key="k"), line("s", "c", key="k")]
    file.write_text("\n".join(lines))
    with raises(IngestError, path=str(file)) as caught:
        memory.admin.import_sessions(file)
    problems = dict(caught.value.problems)
    assert list(problems) == [f"line {number}" for number in (*range(2, 2 + len(INVALID)), len(lines))]
    for number, (_, problem) in enumerate(INVALID, 2):
        assert problem in problems[f"line {number}"]
    assert "is the key of line" in problems[f"line {len(lines)}"]
    assert memory.sessions() == ()
    with pytest.raises(IngestError):
        memory.admin.import_sessions(file.with_name("missing"))


def test_a_line_that_is_too_long_is_an_invalid_line(memory: Memory, file: Path) -> None:
    padded = line("s", "b").encode().ljust(MAX_INPUT_BYTES + 1)
    file.write_bytes(b"\n".join([line("s", "a").encode(), padded, b"[1]", line("s", "c").encode()]))
    with raises(IngestError, path=str(file)) as caught:
        memory.admin.import_sessions(file)
    assert [problem.place for problem in caught.value.problems] == ["line 2", "line 3"]
    assert memory.sessions() == ()


def test_the_error_of_a_key_of_other_messages_names_its_line(memory: Memory, file: Path) -> None:
    memory.session("s").append({"role": "user", "content": "other"}, key="k")
    file.write_text(line("s", "a") + "\n" + line("s", "b", key="k"))
    with raises(AlreadyUsed, name="k") as caught:
        memory.admin.import_sessions(file)
    assert "line 2" in caught.value.__notes__[0]


@pytest.mark.skipif(os.name != "posix", reason="processes are killed by signals")
def test_the_same_call_continues_a_killed_import(home: Path, file: Path) -> None:
    file.write_text("\n".join(line(f"s{number % 3}", f"turn {number}") for number in range(9)))
    code = "import sys; from agentkit_memory import Memory; Memory(sys.argv[1]).admin.import_sessions(sys.argv[2])"
    killed = {**os.environ, "AGENTKIT_FAILPOINT": "sessions.line:4"}
    assert subprocess.run([sys.executable, "-c", code, str(home), str(file)], env=killed).returncode == -signal.SIGKILL
    with Memory(home) as memory:
        done = memory.admin.import_sessions(file)
        assert (done.lines, done.added) == (9, 5)
        texts = [[each.text for each in memory.session(f"s{number}").conversation] for number in range(3)]
    assert texts == [[f"turn {number}" for number in range(first, 9, 3)] for first in range(3)]
