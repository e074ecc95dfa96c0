"""The `session_len` of a chat template is a budget: what is too long for it is fitted, or refused before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agentkit import CompletionModel, Layers, Message, ModelSettings, PromptContext
from agentkit.models import ModelRequestError
from agentkit.prompts import compose
from agentkit.prompts.chat_templates import CHAT_TEMPLATES
from tests.servers import ChatServer, completes, serve


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serve() as running:
        yield running


def prompt(server: ChatServer, name: str, turns: int, system: str = "Rules.", **options: object) -> dict[str, object]:
    server.on(name, completes("Fine."))
    template = CHAT_TEMPLATES.get("internlm2")(session_len=400)
    model = CompletionModel(name, template, base_url=server.url, **options)  # type: ignore[arg-type]
    texts = [f"{number} and a few words more to fill the line" for number in range(2 * turns)]
    history = [Message("assistant" if at % 2 else "user", text) for at, text in enumerate(texts)]
    composition = compose(Layers(system), PromptContext(user_input="And now?", conversation=history))
    asyncio.run(model.request(composition))
    return server.to(name)[-1].body


def test_what_fits_is_sent_whole_with_room_for_the_reply(server: ChatServer) -> None:
    body = prompt(server, "short", 3)
    assert "0 and a few" in str(body["prompt"]) and 100 < int(str(body["max_tokens"])) < 400


def test_the_oldest_history_is_left_out_until_the_rest_fits(server: ChatServer) -> None:
    body = prompt(server, "long", 60)
    text = str(body["prompt"])
    assert "\n0 and a few" not in text and "119 and a few" in text and "Rules." in text
    assert "<|im_start|>system" in text and text.count("<|im_start|>user") == text.count("<|im_start|>assistant")
    assert int(str(body["max_tokens"])) >= 100


def test_tokens_that_are_asked_for_are_kept_free(server: ChatServer) -> None:
    few = str(prompt(server, "more", 60, settings=ModelSettings(max_tokens=300))["prompt"])
    many = str(prompt(server, "less", 60, settings=ModelSettings(max_tokens=20))["prompt"])
    assert len(few) < len(many)


def test_what_cannot_be_left_out_is_refused_and_not_sent(server: ChatServer) -> None:
    with pytest.raises(ModelRequestError, match="session_len 400 leaves 300 beside the reply: send less"):
        prompt(server, "never", 5, system="Many rules and words. " * 200)
    assert not server.to("never")
