"""Tracebacks of typed errors: few frames of agentkit, and all frames of the user."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Chain, CompletionModel, Limits, OpenAIModel, PromptContext, ScriptedModel, ToolCall, tool
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelError
from agentkit.server import Access, Server, add_token
from agentkit.server.serving import uvicorn_server

REFUSED = "http://127.0.0.1:9/v1"


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield the package and the function of each frame of an error and its causes, as Python prints them."""
    printed: traceback.TracebackException | None = traceback.TracebackException.from_exception(error)
    roots: dict[str, str] = {}
    current: BaseException | None = error
    while current is not None:
        for frame, _ in traceback.walk_tb(current.__traceback__):
            roots[frame.f_code.co_filename] = str(frame.f_globals["__name__"]).partition(".")[0]
        current = current.__cause__ or current.__context__
    while printed is not None:
        for line in printed.stack:
            yield roots[line.filename], line.name
        printed = printed.__cause__ or (None if printed.__suppress_context__ else printed.__context__)


def test_typed_errors_have_few_frames_of_agentkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    refused, keyless = OpenAIModel("m", base_url=REFUSED, api_key="k"), OpenAIModel("m")
    raw = CompletionModel("qwen2.5-7b-instruct", base_url=REFUSED)
    calls = ScriptedModel.repeat(ToolCall("c", "look", "{}"))
    inner = Agent(refused, name="inner").as_tool(name="look", description="Look.")
    cases: dict[str, Callable[[], Any]] = {
        "refused": lambda: Agent(refused).run_sync("x"),
        "raw": lambda: Agent(raw).run_sync("x"),
        "awaited": lambda: asyncio.run(Agent(refused).run("x")),
        "with a limit of time": lambda: Agent(refused, limits=Limits(seconds=60)).run_sync("x"),
        "streamed": lambda: list(Agent(refused).stream_sync("x")),
        "chain": lambda: Chain(refused).run_sync(PromptContext(user_input="x")),
        "missing key": lambda: Agent(keyless).run_sync("x"),
        "limit": lambda: Agent(calls, tools=[inner], limits=Limits(steps=1)).run_sync("x"),
        "failed tool": lambda: Agent(calls, tools=[inner], limits=Limits(on_tool_error="raise")).run_sync("x"),
        "refused answers": lambda: Agent(ScriptedModel.repeat("x"), output=int).run_sync("x"),
        "too few replies": lambda: Agent(ScriptedModel([])).run_sync("x"),
    }
    for name, run in cases.items():
        with pytest.raises(Exception) as caught:  # the classes differ
            run()
        ours = [frame for frame in _frames(caught.value) if frame[0].startswith("agentkit")]
        assert 1 <= len(ours) <= 8, (name, ours)


def test_frames_of_the_user_are_not_removed_from_tracebacks() -> None:
    def outer_step() -> None:
        raise ModelError("no", model="m")

    def failing(composition: object) -> str:
        outer_step()
        return ""

    with pytest.raises(ModelError) as caught:
        Agent(ScriptedModel.repeat(failing)).run_sync("x")
    assert {"failing", "outer_step"} <= {name for _, name in _frames(caught.value)}

    @tool
    def look() -> str:
        """Look."""
        raise ValueError("bug")

    agent = Agent(ScriptedModel.repeat(ToolCall("c", "look", "{}")), tools=[look])
    with pytest.raises(Exception) as failed:
        agent.run_sync("x", limits=Limits(on_tool_error="raise"))
    assert "look" in {name for _, name in _frames(failed.value)}

    def broken(composition: object) -> str:
        raise KeyError("bug of a model")

    with pytest.raises(KeyError) as bug:
        Agent(ScriptedModel.repeat(broken)).run_sync("x")
    assert "run_loop" in {name for _, name in _frames(bug.value)}


def test_a_server_refuses_an_address_on_which_it_cannot_listen(tmp_path: Path) -> None:
    add_token(tmp_path / "access.yaml", "ada", "shop")
    agent = Agent(ScriptedModel([]), name="desk")
    server, guarded = Server([agent]), Server([agent], access=Access(tmp_path / "access.yaml"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        used = listener.getsockname()[1]
        for host, port in (
            ("127.0.0.1", used),
            ("localhost", 70_000),
            ("no.such.host.invalid", 8000),
            ("localhost", -1),
        ):
            with pytest.raises(AgentDefinitionError) as caught:
                uvicorn_server(guarded, host=host, port=port)
            assert (caught.value.name, caught.value.value) == ("port", port)
    uvicorn_server(server, port=used)
    uvicorn_server(server, port=0)
