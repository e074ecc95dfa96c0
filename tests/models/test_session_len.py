"""The `session_len` of a chat template is a budget: a longer prompt is cut to fit, or refused before it is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from agentkit import (
    Agent,
    Chain,
    CompletionModel,
    FallbackModel,
    Layers,
    Message,
    ModelSettings,
    OfflineModel,
    PromptComposed,
    PromptContext,
    Session,
    ToolCall,
    tool,
)
from agentkit.errors import AgentDefinitionError
from agentkit.models import ModelRequestError
from agentkit.prompts import ToolPrompt, compose
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, JinjaChatTemplate
from tests.raising import raises
from tests.servers import ChatServer, completes, serve


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serve() as running:
        yield running


class Pieces:
    """Counts words and signs, each as one token."""

    name = "pieces"
    estimated = False

    def __init__(self) -> None:
        self.read = 0

    def count(self, text: str) -> int:
        self.read += len(text)
        return len(re.findall(r"\w+|[^\w\s]|\n", text))


@tool
def stock(item: str) -> int:
    """Return the number of an item in stock."""
    return 3


JINJA = JinjaChatTemplate(
    "{% if tools %}# Tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}{% for m in messages %}"
    "<|begin_of_a_message|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}"
    "<|end_of_a_message|>\n{% endfor %}{% if add_generation_prompt %}<|begin_of_a_message|>assistant\n{% endif %}",
    eos_token="<|end_of_a_message|>",
)


def called(number: int) -> list[Message]:
    """Return a turn with a call."""
    call = ToolCall(f"call{number}", "stock", f'{{"item": "lamp {number}"}}')
    result = Message("tool", f"{number} lamps", tool_call_id=call.id, name="stock")
    return [
        Message("user", f"How many of {number}?"),
        Message("assistant", "", (call,)),
        result,
        Message("assistant", f"There are {number}."),
    ]


def prompt(server: ChatServer, name: str, turns: int, system: str = "Rules.", **options: object) -> dict[str, object]:
    server.on(name, completes("Fine."))
    template = CHAT_TEMPLATES.get("internlm2")(session_len=400)
    model = CompletionModel(name, template, base_url=server.url, **options)  # type: ignore[arg-type]
    texts = [f"{number} and a few words more to fill the line" for number in range(2 * turns)]
    history = [Message("assistant" if at % 2 else "user", text) for at, text in enumerate(texts)]
    composition = compose(Layers(system), PromptContext(user_input="And now?", conversation=history))
    asyncio.run(model.request(composition))
    return server.to(name)[-1].body


def test_a_prompt_that_fits_is_sent_completely_with_space_for_the_reply(server: ChatServer) -> None:
    body = prompt(server, "short", 3)
    assert "0 and a few" in str(body["prompt"]) and 100 < int(str(body["max_tokens"])) < 400


def test_the_oldest_history_is_removed_until_the_rest_fits(server: ChatServer) -> None:
    body = prompt(server, "long", 60)
    text = str(body["prompt"])
    assert "\n0 and a few" not in text and "119 and a few" in text and "Rules." in text
    assert "<|im_start|>system" in text and text.count("<|im_start|>user") == text.count("<|im_start|>assistant")
    assert int(str(body["max_tokens"])) >= 100


def test_requested_tokens_of_the_reply_stay_free(server: ChatServer) -> None:
    few = str(prompt(server, "more", 60, settings=ModelSettings(max_tokens=300))["prompt"])
    many = str(prompt(server, "less", 60, settings=ModelSettings(max_tokens=20))["prompt"])
    assert len(few) < len(many)


def test_a_prompt_that_cannot_be_cut_is_refused_and_not_sent(server: ChatServer) -> None:
    with raises(ModelRequestError, name="session_len", value=400):
        prompt(server, "never", 5, system="Many rules and words. " * 200)
    assert not server.to("never")


def test_events_and_results_show_the_removed_turns(server: ChatServer) -> None:
    server.on("shown", completes("Fine."))
    model = CompletionModel("shown", "qwen2.5-7b-instruct", base_url=server.url, session_len=400)
    for asked in (model, FallbackModel(model, OfflineModel())):
        agent, session, seen = Agent(asked, "Rules."), Session(), []
        for at in range(12):
            session.append(Message("user", f"Question {at} " * 8), Message("assistant", f"Answer {at} " * 8))
        result = agent.run_sync("And now?", session=session, on_event=seen.append)
        prompts = [event.composition for event in seen if isinstance(event, PromptComposed)]
        text = str(server.to("shown")[-1].body["prompt"])
        kept = sum(f"Question {at} " in text for at in range(12))
        assert 0 < kept < 12
        for composition in (*prompts, result.composition, agent.compose("And now?", session=session)):
            row = next(row for row in composition.explain() if row.layer == "conversation")
            whole = 12 if composition in (*prompts, result.composition) else 13
            assert row.status == "trimmed" and row.why.endswith(f" of {whole} turns kept: session_len is 400")
        assert len(prompts) == 1 and sum(message.role == "user" for message in prompts[0].messages) == kept + 1


def test_a_budget_and_the_session_len_count_the_same_turns(server: ChatServer) -> None:
    model = CompletionModel("both", "qwen2.5-7b-instruct", base_url=server.url, session_len=400)
    history = [Message("assistant" if at % 2 else "user", f"{at} and more words " * 6) for at in range(60)]
    ctx = PromptContext(user_input="And now?", conversation=history)
    both = Chain(model, "Rules.", budget=800).compose(ctx)
    row = next(row for row in both.explain() if row.layer == "conversation")
    assert row.why.endswith("of 30 turns kept: session_len is 400") and both.tokens <= 300


@pytest.mark.parametrize("wrong", [0, -1, True, "600", 1.5])
def test_a_session_len_is_a_number_of_tokens(wrong: object) -> None:
    with raises(AgentDefinitionError, name="session_len"):
        CompletionModel("m", "vicuna", session_len=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("template", ["qwen2.5-7b-instruct", "internlm2", "vicuna", JINJA], ids=str)
@pytest.mark.parametrize("session_len", [700, 2000])
def test_the_text_and_the_reply_fit_together(server: ChatServer, template: Any, session_len: int) -> None:
    """The markers of roles and the texts around tools count, and no turn is removed that could stay."""
    name, pieces = server.on("text", completes("Fine.")), Pieces()
    model = CompletionModel(name, template, base_url=server.url, session_len=session_len)
    system: Any = ["Rules.", ToolPrompt()] if template == "vicuna" else ["Rules."]
    layers = Layers(system, history_block=0)
    agent = Agent(model, layers=layers, tools=[stock], counter=pieces)
    history = [message for number in range(80) for message in called(number)]
    session = Session()
    session.append(*history)
    agent.run_sync("And now?", session=session)
    body = server.to(name)[-1].body
    text, asked = str(body["prompt"]), int(str(body["max_tokens"]))
    first = int(re.findall(r"How many of (\d+)", text)[0])
    assert first > 0 and pieces.count(text) + asked <= session_len and asked >= session_len // 4
    ctx = PromptContext(user_input="And now?", conversation=history[4 * (first - 1) :], tools=[stock.spec])
    one_more = compose(layers, ctx).to_text(model.chat_template)
    assert pieces.count(one_more) > session_len - session_len // 4


def test_a_turn_counts_only_its_new_messages() -> None:
    pieces = Pieces()
    model = CompletionModel("new", "qwen2.5-7b-instruct", base_url="http://localhost:1", session_len=20_000)
    agent, session = Agent(model, "Rules.", tools=[stock], counter=pieces), Session()
    for number in range(500):
        session.append(*called(number))
    agent.compose("And now?", session=session)
    before = pieces.read
    session.append(*called(500))
    composition = agent.compose("And now?", session=session)
    assert composition.tokens < 19_000 and pieces.read - before < 5_000 < len(composition.to_text("qwen2d5")) / 5


def test_explain_shows_the_tokens_of_the_chat_template() -> None:
    pieces = Pieces()
    cases: list[Any] = [
        ("qwen2.5-7b-instruct", Layers()),
        ("vicuna", Layers(["Rules.", ToolPrompt()])),
        (JINJA, Layers("Go.")),
    ]
    for template, layers in cases:
        model = CompletionModel("m", template, base_url="http://localhost:1")
        composition = Agent(model, layers=layers, tools=[stock], counter=pieces).compose("Where?")
        table = {row.layer: row.tokens for row in composition.explain()}
        text = composition.to_text(template)
        assert table["chat template"] > 5 and "overhead" not in table
        assert abs(sum(table.values()) - pieces.count(text)) <= 2 and sum(table.values()) == composition.tokens
