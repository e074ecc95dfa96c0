"""`agentkit models`: providers, their variables, and the models of a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentkit.models.providers import PROVIDERS
from tests.cli.conftest import Run
from tests.loopback import Received, answering


def test_the_table_shows_each_provider_and_no_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk_hunter2")
    monkeypatch.setenv("VLLM_BASE_URL", "http://me:hunter2@box:1/v1?key=hunter2")
    monkeypatch.setenv("LITELLM_BASE_URL", "hunter2")
    done = run("models")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "hunter2" not in done.stdout
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:]}
    assert list(rows) == list(PROVIDERS)
    assert rows["groq"][:2] == ["set", "GROQ_API_KEY"]
    assert rows["mistral"][:2] == ["missing", "MISTRAL_API_KEY"]
    assert rows["vllm"] == ["optional", "VLLM_API_KEY", "http://box:1/v1"]
    data = {row["name"]: row for row in json.loads(run("models", "--json").stdout)["providers"]}
    assert data["bedrock"]["address_variables"] == ["BEDROCK_BASE_URL", "AWS_REGION", "AWS_DEFAULT_REGION"]
    assert data["groq"]["key"] == "set"


LISTS: dict[str, tuple[int, Any]] = {
    "/v1/models": (200, {"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "gemma4"}]}),
    "/bare/models": (200, [{"id": "a"}]),
    "/google/models": (200, {"data": [{"id": "models/gemini-3-pro"}]}),
    "/none/models": (200, {"object": "list", "data": None}),
    "/broken/models": (200, {"data": 5}),
    "/text/models": (200, "models"),
    "/lines/models": (200, {"data": [{"id": "a\nb"}]}),
    "/odd/models": (200, {"data": [{}, 5, {"id": None}, {"id": ["x"]}, {"id": 7, "name": "b"}]}),
    "/base/models": (200, {"base_resp": {"status_code": 1004, "status_msg": "login fail"}}),
    "/v1/models?limit=1000": (200, {"data": [{"type": "model", "id": "claude-a"}], "has_more": False}),
}


def test_the_models_of_a_server_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: Received) -> tuple[int, dict[str, str], bytes]:
        status, body = LISTS.get(request.path, (401, {"error": {"message": "no key"}}))
        return status, {"content-type": "application/json"}, json.dumps(body).encode()

    wrong = []
    with answering(answer) as server:
        for provider, path, code, lines in (
            ("ollama", "", 0, ["ollama:gemma4", "ollama:qwen3:8b"]),
            ("anthropic", "", 0, ["anthropic:claude-a"]),
            ("together", "/bare", 0, ["together:a"]),
            ("gemini", "/google", 0, ["gemini:gemini-3-pro"]),
            ("vllm", "/none", 0, []),
            ("vllm", "/odd", 0, ["vllm:b"]),
            ("vllm", "/broken", 1, []),
            ("vllm", "/text", 1, []),
            ("minimax", "/base", 1, []),
            ("groq", "/other", 1, []),
            ("azure", None, 1, []),
            ("olama", None, 1, []),
            ("offline", None, 0, []),
            ("ollama:qwen3", None, 1, []),
            ("vllm", "/lines", 0, ["vllm:a", "b"]),
        ):
            if path is not None:
                monkeypatch.setenv(PROVIDERS[provider].addresses[0], f"{server}{path}")
            done = run("models", "--at", provider)
            if (done.exit_code, done.stdout.split(), done.stderr == "") != (code, lines, bool(lines)):
                wrong.append((provider, path, done.exit_code, done.stdout, done.stderr))
            if path == "/lines":
                assert len(done.stdout.splitlines()) == 1
        assert json.loads(run("models", "--at", "together", "--json").stdout) == {"models": ["together:a"]}
    # The errors are about the option, not about a model.
    for provider, advice in (("olama", "'ollama'"), ("google", "'gemini'")):
        done = run("models", "--at", provider)
        assert done.stderr.startswith(f"agentkit: --at: unknown provider {provider!r}; "), done.stderr
        assert advice in done.stderr
    # The errors are about the server of a provider, not about a model.
    for provider in ("ollama", "vllm", "llamacpp", "lmstudio"):
        monkeypatch.setenv(PROVIDERS[provider].addresses[0], server)
        done = run("models", "--at", provider)
        if done.exit_code != 1 or not done.stderr.startswith(f"agentkit: {provider} at 127.0.0.1:"):
            wrong.append((provider, None, done.exit_code, done.stdout, done.stderr))
    assert not wrong
