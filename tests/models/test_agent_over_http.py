"""A whole agent over real HTTP: the loop, the tools and the official SDK against a strict endpoint."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import warnings

import pytest
from starlette.responses import JSONResponse

from agentkit import Agent, OpenAIModel, RunFinished, Session, TextDelta, ToolFinished, tool
from agentkit.models import ModelInterrupted
from agentkit_prompts.system.per_loop import _OPEN
from tests.servers import ChatServer, calls, chat_reply, chunk, completion, in_turn, streams


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent_for(server: ChatServer, name: str) -> Agent[None, str]:
    return Agent(OpenAIModel(name, base_url=server.url, max_retries=0), "Be brief.", tools=[add])


TWO_CALLS = chat_reply("Let me see.", ("x", "add", '{"a": 2, "b": 3}'), ("y", "add", '{"a": "two", "b": 3}'))


def test_tool_calls_and_their_results_are_exchanged(server: ChatServer) -> None:
    name = server.on("agent", in_turn(TWO_CALLS, chat_reply("It is 5.")))
    result = agent_for(server, name).run_sync("What is 2 plus 3?")
    assert result.output == "It is 5."
    assert (result.usage.input_tokens, result.usage.output_tokens, result.steps) == (24, 10, 2)
    first, second = (asked.body for asked in server.to(name))
    assert [one["function"]["name"] for one in first["tools"]] == ["add"]
    answers = {
        message["tool_call_id"]: message["content"] for message in second["messages"] if message["role"] == "tool"
    }
    assert answers["x"] == "5"
    assert "integer" in answers["y"]


def test_a_session_of_several_turns_is_accepted_by_a_strict_endpoint(server: ChatServer) -> None:
    name = server.on("turns", in_turn(TWO_CALLS, chat_reply("It is 5."), TWO_CALLS, chat_reply("Still 5.")))
    agent, session = agent_for(server, name), Session()
    assert agent.run_sync("What is 2 plus 3?", session=session).output == "It is 5."
    assert agent.run_sync("Sure?", session=session).output == "Still 5."
    assert [message["role"] for message in server.to(name)[-1].body["messages"]].count("tool") == 4


async def test_a_streamed_run_yields_its_events_in_order(server: ChatServer) -> None:
    name = server.on("events", in_turn(TWO_CALLS, chat_reply("It is 5.")))
    events = [event async for event in agent_for(server, name).stream("What is 2 plus 3?")]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "Let me see.It is 5."
    assert len([event for event in events if isinstance(event, ToolFinished)]) == 2
    assert isinstance(events[-1], RunFinished)
    assert events[-1].result.output == "It is 5."


def test_sync_runs_inside_a_running_event_loop(server: ChatServer) -> None:
    agent = agent_for(server, server.on("nested", chat_reply("Hi")))

    async def notebook() -> tuple[str, str]:
        return agent.run_sync("Hello").output, (await agent.run("Hello")).output

    assert asyncio.run(notebook()) == ("Hi", "Hi")


def test_an_interrupted_stream_leaves_a_history_that_can_continue(server: ChatServer) -> None:
    name = server.on("cut-agent", in_turn(streams(chunk(content="It is"), cut=b"40\r\nhalf"), chat_reply("It is 5.")))
    agent, session = agent_for(server, name), Session()
    with pytest.raises(ModelInterrupted) as caught:
        agent.run_sync("What is 2 plus 3?", session=session, on_event=lambda event: None)
    assert caught.value.text == "It is"
    assert agent.run_sync("Again, please.", session=session).output == "It is 5."


def test_thinking_of_a_model_is_sent_back_to_its_endpoint_and_to_no_other(server: ChatServer) -> None:
    reply = completion("Let me see.", calls(("x", "add", '{"a": 2, "b": 3}')), "tool_calls")
    reply["choices"][0]["message"]["reasoning_content"] = "two and three"
    name = server.on("thinking", in_turn(lambda _: JSONResponse(reply), chat_reply("It is 5."), chat_reply("Yes.")))
    agent, session = agent_for(server, name), Session()
    agent.run_sync("What is 2 plus 3?", session=session)
    (thought,) = [one for one in server.to(name)[1].body["messages"] if "reasoning_content" in one]
    assert thought["reasoning_content"] == "two and three"
    elsewhere = Agent(
        OpenAIModel(name, base_url=server.url.replace("127.0.0.1", "localhost"), max_retries=0), tools=[add]
    )
    elsewhere.run_sync("Sure?", session=session)
    assert "two and three" not in str(server.to(name)[-1].body)


@pytest.mark.long
def test_a_model_that_is_deleted_leaves_no_socket_to_the_garbage_collector(server: ChatServer) -> None:
    name = server.on("gone", chat_reply("Hi"))
    agent_for(server, name).run_sync("Hello")
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            agent_for(server, name).run_sync("Hello")
            gc.collect()
    assert max(map(len, _OPEN.values())) == 1  # the next request in a loop closes the sockets of earlier requests

    async def several() -> None:
        for _ in range(3):
            await agent_for(server, name).run("Hello")
            gc.collect()
        assert len(_OPEN[asyncio.get_running_loop()]) == 1

    asyncio.run(several())
    assert not [loop for loop in _OPEN if loop.is_closed()]


def test_a_program_that_ends_has_no_warning_of_a_socket(server: ChatServer) -> None:
    name = server.on("ends", chat_reply("Hi"))
    program = (
        "import gc\nfrom agentkit import Agent, OpenAIModel\n"
        f"for _ in range(2):\n    agent = Agent(OpenAIModel({name!r}, base_url={server.url!r}))\n"
        "    print(agent.run_sync('Hello').output)\n    del agent\n    gc.collect()\n"
    )
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("Hi\nHi\n", "")
