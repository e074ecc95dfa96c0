"""Recorded exchanges with a real endpoint: replayed unchanged, without secrets, and refused for another prompt."""

from __future__ import annotations

import asyncio
import json
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    Layers,
    Message,
    ModelError,
    OpenAIModel,
    PromptContext,
    Reply,
    ScriptedModel,
    ToolCall,
    Usage,
    tool,
)
from agentkit.models import ModelInterrupted, ModelRateLimited, ModelUnavailable
from agentkit.models.model_errors import ScriptExhausted
from agentkit.prompts import ToolSpec, compose
from agentkit.testing import CutOff, RecordedModel, ReplayError, ReplayModel, no_real_models
from tests.models.asking import KEY, ask, both, composed, failure
from tests.raising import raises
from tests.servers import ChatServer, chat_reply, chunk, sends, streams

ODD = 'sk-very"secret/0123456789'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recording.jsonl"


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@both
def test_a_recorded_answer_of_an_endpoint_is_replayed_without_the_endpoint(
    server: ChatServer, path: Path, stream: bool
) -> None:
    model = OpenAIModel(server.on("told", chat_reply("Hello you.")), base_url=server.url, api_key=KEY)
    heard: list[list[str]] = [[], []]
    recorded = ask(RecordedModel(model, path), on_text=heard[0].append if stream else None)
    asked = len(server.asked)
    with no_real_models():
        replayed = ask(ReplayModel(path), on_text=heard[1].append if stream else None)
    assert replayed == recorded
    assert heard[0] == heard[1]
    assert len(server.asked) == asked
    assert KEY not in path.read_text()
    assert "uthorization" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_run_with_tools_is_replayed_with_the_same_messages(path: Path) -> None:
    def agent(model: Any) -> Agent[None, str]:
        return Agent(model, "Add.", tools=[add])

    script = [
        Message("assistant", "", (ToolCall("1", "add", '{"a": 1, "b": 2}'),)),
        Reply(Message("assistant", "3"), Usage(9, 1)),
    ]
    first = agent(RecordedModel(ScriptedModel(script), path)).run_sync("1 + 2?")
    again = agent(ReplayModel(path)).run_sync("1 + 2?")
    assert (again.messages, again.usage) == (first.messages, first.usage)


def test_another_prompt_is_an_error_that_shows_the_difference(path: Path) -> None:
    ask(RecordedModel(ScriptedModel(["Hi."]), path), composed("Say hello.\nNow."))
    with raises(ReplayError, name="request") as caught:
        ask(ReplayModel(path), composed("Say goodbye.\nNow."))
    assert isinstance(caught.value, ModelError)
    changed = [
        line for line in caught.value.difference.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert len(changed) == 2
    assert ("Say hello." in changed[0], "Say goodbye." in changed[1]) == (True, True)
    assert pickle.loads(pickle.dumps(caught.value)).difference == caught.value.difference


def test_every_exchange_is_answered_once_in_any_order(path: Path) -> None:
    model = RecordedModel(ScriptedModel(["A", "B", "A again"]), path)
    for text in ("a", "b", "a"):
        ask(model, composed(text))
    replay = ReplayModel(path)
    assert [ask(replay, composed(text)).message.text for text in ("b", "a", "a")] == ["B", "A", "A again"]
    with pytest.raises(ScriptExhausted):
        ask(replay, composed("a"))


@pytest.mark.parametrize(
    "error",
    [
        ModelUnavailable("down", model="m", host="h", status=503, retry_after=5.0),
        ModelRateLimited("slow down", model="m"),
        ModelRateLimited("slow down", model="m", status=429, retry_after=2.5),
        ModelInterrupted.after("Half", "gone", model="m"),
    ],
)
def test_a_recorded_failure_is_raised_again_with_all_attributes(path: Path, error: ModelError) -> None:
    failure(RecordedModel(ScriptedModel([error]), path))
    again = failure(ReplayModel(path))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_an_interrupted_stream_is_interrupted_again_after_the_same_text(path: Path) -> None:
    failure(RecordedModel(ScriptedModel([CutOff("Half an ans")]), path), stream=True)
    heard: list[str] = []
    with pytest.raises(ModelInterrupted):
        ask(ReplayModel(path), on_text=heard.append)
    assert "".join(heard) == "Half an ans"


@both
@pytest.mark.parametrize("key", [KEY, ODD])
def test_a_key_in_a_prompt_a_reply_or_an_error_is_masked(
    server: ChatServer, path: Path, monkeypatch: pytest.MonkeyPatch, key: str, stream: bool
) -> None:
    pieces = [chunk(content=f"Your key is {key[:9]}"), chunk(content=f"{key[9:]}."), chunk("stop")]
    server.on("leaks", streams(*pieces) if stream else chat_reply(f"Your key is {key}."))
    server.on("refuses", sends({"error": {"message": f"Incorrect: {key}"}}, 401))
    monkeypatch.setenv("MY_SERVICE_TOKEN", "tok-0987654321")
    prompt = composed(f"My key is {key}, my token tok-0987654321.", conversation=[
        Message("user", "q"),
        Message("assistant", "", (ToolCall("1", "add", json.dumps({"key": key})),)),
        Message("tool", key, tool_call_id="1"),
    ])  # fmt: skip
    for name in ("leaks", "refuses"):
        file = path.with_name(name)
        model = RecordedModel(OpenAIModel(name, base_url=server.url, api_key=key, max_retries=0), file)
        try:
            ask(model, prompt, on_text=(lambda text: None) if stream else None)
        except ModelError:
            assert name == "refuses"
        text = file.read_text()
        for secret in (key, json.dumps(key)[1:-1], json.dumps(json.dumps(key)[1:-1])[1:-1], "tok-0987654321"):
            assert secret not in text
        assert "[secret]" in text
        assert ReplayModel(file).name == name


def test_a_secret_that_is_a_name_in_a_schema_is_masked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "tok-0987654321")
    spec = ToolSpec("look", "", {"type": "object", "properties": {"tok-0987654321": {"type": "string"}}})
    prompt = compose(Layers("Be brief."), PromptContext(user_input="hi", tools=[spec]))
    recorded = asyncio.run(RecordedModel(ScriptedModel(["yes"]), path).request(prompt))
    assert "tok-0987654321" not in path.read_text()
    assert asyncio.run(ReplayModel(path).request(prompt)) == recorded


def test_common_words_are_not_secrets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLE_TOKEN", "assistant")
    assert ask(RecordedModel(ScriptedModel(["Hi."]), path)) == ask(ReplayModel(path))


def test_a_recording_is_not_overwritten(path: Path) -> None:
    RecordedModel(ScriptedModel(["Hi."]), path)
    with pytest.raises(FileExistsError):
        RecordedModel(ScriptedModel(["Hi."]), path)


def test_a_call_that_is_cancelled_is_not_recorded(path: Path) -> None:
    class Hanging:
        name = "hanging"

        async def request(self, composition: Any, *, on_delta: Any = None) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(RecordedModel(Hanging(), path).request(composed()), 0.01)

    asyncio.run(cancelled())
    assert len(path.read_text().splitlines()) == 1


def test_a_file_cut_at_any_byte_is_read_or_refused_by_name(path: Path) -> None:
    model = RecordedModel(ScriptedModel(["Grüße.", ModelUnavailable("down")]), path)
    ask(model)
    failure(model)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            replay = ReplayModel(path)
        except ReplayError as error:
            assert str(path) in str(error)
        else:
            assert whole[:size].endswith(b"}") or whole[size - 1 : size] == b"\n", size
            assert replay.name == "scripted"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "[]",
        "null",
        "3",
        '{"recording": "new"}',
        '{"recording": 2, "model": "m"}',
        '{"recording": 1, "model": "m", "output_modes": 5}',
        '{"recording": 1, "model": "m", "output_modes": "native"}',
        '{"a": 1}',
        "[" * 5000,
        "\x00",
    ],
)
def test_an_invalid_recording_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ReplayError):
        ReplayModel(path)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"request": {}, "pieces": 3, "reply": {}}',
        '{"request": {}, "pieces": [], "reply": {"message": {"role": "robot"}}}',
        '{"request": {}, "pieces": [], "error": 3}',
        '{"request": {}, "pieces": [1], "reply": {"message": {"role": "assistant", "content": "x"}}}',
    ],
)
def test_an_invalid_line_is_refused_with_its_number(path: Path, line: str) -> None:
    path.write_text('{"recording": 1, "model": "m"}\n' + line + "\n")
    with raises(ReplayError, line=2):
        ReplayModel(path)
