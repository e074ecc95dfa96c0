"""Errors of agent files and token files do not contain the keys of the files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agentkit.agent_files import AgentFileError, load_agent
from agentkit.server import Access
from agentkit.server.server_errors import AccessFileError
from tests.raising import raises

KEY = "SEKRET123"
FILES = {
    "headers as text": f"model: offline\ntools:\n - mcp: http://h/mcp\n   headers: 'Authorization: {KEY}'",
    "a header as a list": f"model: offline\ntools:\n - mcp: http://h/mcp\n   headers: {{Authorization: [{KEY}]}}",
    "a header as a mapping": f"model: offline\ntools:\n - mcp: http://h/mcp\n   headers: {{X: {{Bearer: {KEY}}}}}",
    "variables as a list": f"model: offline\ntools:\n - mcp: [server]\n   env: [KEY={KEY}]",
    "an address of another kind": f"model: offline\ntools:\n - mcp: ftp://u:{KEY}@h/mcp?key={KEY}",
    "a memory as text": f"model: offline\nmemory: postgresql://u:{KEY}@h/db",
    "a memory of another kind": f"model: offline\nmemory: {{home: 'mysql://u:{KEY}@h/db', index: index}}",
    "a memory at no port": f"model: offline\nmemory: {{home: 'postgresql://u:{KEY}@h:p/db', index: index}}",
    "an embedder by its address": f"model: offline\nmemory: {{embedder: 'http://u:{KEY}@h/v1'}}",
    "an address as a tool": f"model: offline\ntools: ['http://u:{KEY}@h/mcp']",
    "an address as the length": f"model: {{name: offline, session_len: 'http://u:{KEY}@h/mcp'}}",
    "a model as a list": f"model: [http://u:{KEY}@h/v1#m]",
    "a model at no port": f"model: http://u:{KEY}@h:p/v1#m",
    "settings as text": f"model: {{name: offline, settings: api_key={KEY}}}",
}
TOKENS = {
    "a token in the place of its hash": f"tokens:\n  - {{name: a, sha256: ak_{KEY}, tenant: t, scopes: [run]}}",
    "a token in a list": f"tokens:\n  - {{name: a, sha256: [ak_{KEY}], tenant: t, scopes: [run]}}",
    "tokens as a list": f"tokens: [ak_{KEY}]",
    "tokens as text": f"tokens: ak_{KEY}",
    "tokens as keys": f"tokens: {{ak_{KEY}: t}}",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_an_agent_file_is_reported_without_its_keys(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent.yaml").write_text(text)
    with pytest.raises(AgentFileError) as caught:
        load_agent(tmp_path / "agent.yaml")
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("text", TOKENS.values(), ids=TOKENS)
def test_an_access_file_is_reported_without_its_tokens(tmp_path: Path, text: str) -> None:
    (tmp_path / "access.yaml").write_text(text)
    with pytest.raises(AccessFileError) as caught:
        Access(tmp_path / "access.yaml")
    assert KEY not in str(caught.value)
    assert "line" in str(caught.value)


def test_wrong_values_without_keys_are_shown(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("model: offline\ncompaction: {kind: trimm}\nlimits: {steps: many}")
    with pytest.raises(AgentFileError) as caught:
        load_agent(tmp_path / "agent.yaml")
    assert [(one.line, one.key) for one in caught.value.problems] == [(2, "compaction.kind"), (3, "limits.steps")]
    assert "'trimm'" in str(caught.value) and "'many'" in str(caught.value)


def test_a_key_that_is_no_text_is_reported_with_its_place(tmp_path: Path) -> None:
    server = "{mcp: [server], env: {5: a}}"
    (tmp_path / "agent.yaml").write_text(f"model: offline\ntools: [{server}]\n7: b")
    with pytest.raises(AgentFileError) as caught:
        load_agent(tmp_path / "agent.yaml")
    assert [(one.line, one.key) for one in caught.value.problems] == [(2, "tools[0].env.5 (key)"), (3, "7")]


@pytest.mark.parametrize("number", ["1" + ":1" * 300_000, "!!int 1" + ":1" * 300_000, "1" + "_1" * 300_000])
def test_numbers_are_read_in_time_that_grows_with_their_length(tmp_path: Path, number: str) -> None:
    (tmp_path / "agent.yaml").write_text(f"model: offline\nlimits: {{steps: {number}}}")
    began = time.thread_time()
    with raises(AgentFileError, line=2):
        load_agent(tmp_path / "agent.yaml")
    assert time.thread_time() - began < 10  # numbers of base 60 would take minutes


def test_of_thousands_of_problems_the_first_are_named(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("".join(f"k{number}: 1\n" for number in range(3_000)))
    with pytest.raises(AgentFileError) as caught:
        load_agent(tmp_path / "agent.yaml")
    assert len(caught.value.problems) > 3_000 and len(str(caught.value)) < 100_000


@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_a_key_with_the_tag_of_another_type_is_in_no_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "agent.yaml").write_text(f"model: {{provider: openai, model: x, api_key: !!{kind} secret-9}}")
    with raises(AgentFileError, line=1) as found:
        load_agent(tmp_path / "agent.yaml")
    assert "secret-9" not in str(found.value)
