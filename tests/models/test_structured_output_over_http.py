"""Structured output through the official SDK, against a real server on loopback."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from agentkit import Agent, OutputSpec, PartialOutput
from agentkit.errors import OutputStopped
from agentkit.models.abilities import OutputMode
from tests.models.asking import model_for
from tests.models.raw import ChatML, raw_model
from tests.servers import ChatServer, chat_reply, completes, completion, in_turn, sends


class City(BaseModel):
    name: str
    inhabitants: int = 0


class River(BaseModel):
    length: float


BERN = '{"value": {"name": "Bern", "inhabitants": 9}}'
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@streamed
@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
def test_each_mode_has_its_requests_and_replies(server: ChatServer, mode: OutputMode, stream: bool) -> None:
    reply = {
        "native": chat_reply(BERN),
        "tool": chat_reply("", ("c1", "final_answer", BERN)),
        "prompted": chat_reply(f"<think>Hm.</think> Sure:\n```json\n{BERN}\n```\nDone."),
    }[mode]
    name = server.on(f"typed-{mode}-{stream}", reply)
    events: list[Any] = []
    agent = Agent(model_for(server, name), "You answer.", output=OutputSpec(City | River, mode=mode))
    result = agent.run_sync("go", on_event=events.append) if stream else agent.run_sync("go")
    assert result.output == City(name="Bern", inhabitants=9)
    body = server.to(name)[-1].body
    if mode == "native":
        declared = body["response_format"]["json_schema"]
        assert declared["strict"] is True
        assert declared["schema"]["required"] == ["value"]
        assert all(part["additionalProperties"] is False for part in declared["schema"]["$defs"].values())
    elif mode == "tool":
        (offered,) = body["tools"]
        assert (offered["function"]["name"], offered["function"]["strict"]) == ("final_answer", True)
    else:
        assert body.keys() & {"response_format", "tools"} == set()
        assert '"River"' in body["messages"][0]["content"]
    if stream:
        assert [event.output for event in events if isinstance(event, PartialOutput)][-1] == result.output.model_dump()


@streamed
def test_the_model_of_a_tool_answer_is_called_again_after_text(server: ChatServer, stream: bool) -> None:
    name = server.on(
        f"typed-again-{stream}",
        in_turn(chat_reply("Bern!"), chat_reply("", ("c1", "final_answer", '{"name": "Bern"}'))),
    )
    agent = Agent(model_for(server, name), output=OutputSpec(City, mode="tool"))
    result = agent.run_sync("go", on_event=(lambda event: None) if stream else None)
    assert result.output == City(name="Bern")
    assert [message["role"] for message in server.to(name)[-1].body["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (completion(None, refusal="I will not."), "refusal"),
        (completion('{"name": "Be', finish_reason="length"), "length"),
        (completion("", finish_reason="content_filter"), "content_filter"),
    ],
)
def test_a_reply_that_was_stopped_ends_the_run_after_one_request(server: ChatServer, body: Any, reason: str) -> None:
    name = server.on(f"typed-{reason}", sends(body))
    with pytest.raises(OutputStopped) as caught:
        Agent(model_for(server, name), output=City).run_sync("go")
    assert (caught.value.reason, len(server.to(name))) == (reason, 1)


@pytest.mark.parametrize("format", ["hermes", "harmony", "kimi_k2"])
def test_a_local_model_answers_with_a_call_in_its_format(server: ChatServer, format: str) -> None:
    text = {
        "hermes": '<tool_call>{"name": "final_answer", "arguments": {"name": "Bern"}}</tool_call>',
        "harmony": '<|channel|>commentary to=functions.final_answer <|constrain|>json<|message|>{"name": "Bern"}',
        "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.final_answer:0"
        '<|tool_call_argument_begin|>{"name": "Bern"}<|tool_call_end|><|tool_calls_section_end|>',
    }[format]
    name = server.on(f"typed-raw-{format}", completes(text))
    model = raw_model(server, name, chat_template=ChatML(tool_call_format=format))
    assert Agent(model, output=OutputSpec(City, mode="tool")).run_sync("go").output == City(name="Bern")
