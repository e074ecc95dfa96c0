"""Cost of requests: a request reuses the request of the previous turn."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentkit.prompts import Composition, Conversation, Layers, Message, PromptContext, ToolCall, compose

WRITERS: dict[str, Callable[[Composition], Any]] = {
    "chat": lambda composition: composition.to_openai("api.openai.com"),
    "responses": lambda composition: composition.to_responses(),
    "anthropic": lambda composition: composition.to_anthropic(),
}


def round_of(number: int) -> list[Message]:
    return [
        Message("user", f"Question {number}"),
        Message("assistant", "", (ToolCall("call_0", "add", '{"a": 1}'),)),  # the same id in each round
        Message("tool", "2", tool_call_id="call_0", name="add"),
        Message("assistant", f"Answer {number}"),
    ]


def request(write: Callable[[Composition], Any], conversation: Conversation) -> tuple[Any, int]:
    """Return the payload, and the number of calls of Python functions that made it."""
    made = compose(Layers("Be brief."), PromptContext(user_input="And now?", conversation=conversation))
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # Callbacks of the garbage collector would be counted.
    sys.setprofile(count)
    try:
        payload = write(made)
    finally:
        sys.setprofile(None)
        gc.enable()
    return payload, calls


@pytest.mark.parametrize("form", WRITERS)
def test_the_calls_for_a_turn_do_not_depend_on_the_length_of_the_conversation(form: str) -> None:
    counts = {}
    for rounds in (10, 500):
        conversation = Conversation([message for number in range(rounds) for message in round_of(number)])
        before, first = request(WRITERS[form], conversation)
        payload, counts[rounds] = request(WRITERS[form], conversation.append(*round_of(rounds)))
        assert first > rounds, "the first request visits all messages"
        assert len(str(payload)) > len(str(before))
    assert counts[500] == counts[10]


@pytest.mark.parametrize("form", WRITERS)
def test_an_extended_request_is_equal_to_a_new_request(form: str) -> None:
    conversation = Conversation()
    for number in range(6):
        conversation = conversation.append(*round_of(number)[: 4 if number % 2 else 1])
        grown, _ = request(WRITERS[form], conversation)
        assert grown == request(WRITERS[form], Conversation(list(conversation)))[0]
    for stop in (3, 9, 1):  # an older view, then a newer view
        view = conversation.window(0, stop)
        assert request(WRITERS[form], view)[0] == request(WRITERS[form], Conversation(list(view)))[0]
    branch = conversation.window(0, 5).append(Message("user", "Something else"))
    assert request(WRITERS[form], branch)[0] == request(WRITERS[form], Conversation(list(branch)))[0]


@pytest.mark.parametrize("form", WRITERS)
def test_many_messages_of_one_role_take_linear_time(form: str) -> None:
    def seconds(size: int) -> float:
        ctx = PromptContext(user_input="?", conversation=[Message("user", "x")] * size)
        composition = compose(Layers("Be brief."), ctx)
        start = time.process_time()
        WRITERS[form](composition)
        return time.process_time() - start

    small, large = seconds(4_000), seconds(32_000)
    assert large < max(small, 0.01) * 40  # 8 times the messages; quadratic time would be 64 times


def test_a_thought_has_no_cache_mark() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "Eq"}
    context = PromptContext(
        user_input="?", conversation=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [thought]}]
    )
    made = compose(Layers("Be brief."), context).to_anthropic()
    assert thought in made["messages"][1]["content"]
