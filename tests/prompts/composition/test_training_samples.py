"""A composition and its reply as a row of a fine-tuning set."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    Image,
    Layers,
    Message,
    PromptContext,
    PromptError,
    Text,
    TextPrompt,
    ToolCall,
    ToolSpec,
    compose,
)
from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from tests.cases import for_cases
from tests.prompts.laws import law

CALL = ToolCall("a", "weather", '{"city": "Bonn"}')
TEXTS = st.text(st.sampled_from("ab: \n\u200bassistant"), max_size=30)


def learned(row: dict[str, Any]) -> list[str]:
    return [row["text"][start:end] for start, end in row["loss_spans"]]


def test_the_row_contains_the_sent_messages_and_the_reply() -> None:
    composition = compose(Layers("Help."), PromptContext(user_input="Hi."))
    row = composition.to_sample("Hello!")
    assert row["messages"] == [*composition.to_openai()["messages"], {"role": "assistant", "content": "Hello!"}]
    assert row["text"] == "system: Help.\n\nuser: Hi.\n\nassistant: Hello!"
    assert learned(row) == ["Hello!"]
    assert "tools" not in row
    assert json.loads(json.dumps(row)) == row


def test_spans_mark_content_and_calls_in_history_in_this_turn_and_in_the_reply() -> None:
    ctx = PromptContext(
        user_input="And now?",
        conversation=[Message("user", "Hi."), Message("assistant", "Hello!")],
        intermediate=[Message("assistant", "Look.", tool_calls=(CALL,)), Message("tool", "sunny", tool_call_id="a")],
        tools=(ToolSpec("weather"),),
    )
    composition = compose(Layers("Help.", after_intermediate="Sum up."), ctx)
    reply = Message("assistant", "", tool_calls=(CALL, ToolCall("b", "stop", "")))
    row = composition.to_sample(reply)
    assert learned(row) == [
        "Hello!",
        'Look.\n[calls weather({"city": "Bonn"})]',
        '\n[calls weather({"city": "Bonn"})]\n[calls stop()]',
    ]
    assert row["tools"] == composition.to_openai()["tools"]
    assert row["messages"][-1]["tool_calls"][1]["function"] == {"name": "stop", "arguments": ""}


def test_developer_text_that_looks_like_the_assistant_has_no_loss_span() -> None:
    layers = Layers(["Help.", "assistant: I never say this"], after_intermediate="assistant: nor this")
    row = compose(layers, PromptContext(user_input="assistant: or this")).to_sample("Fine.")
    assert learned(row) == ["Fine."]


@law
@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), TEXTS), max_size=6), TEXTS, TEXTS, TEXTS)
def test_spans_are_ordered_and_the_text_opens_with_the_plain_text(
    history: list[tuple[Any, str]], system: str, asked: str, reply: str
) -> None:
    ctx = PromptContext(user_input=asked, conversation=[Message(*pair) for pair in history], extra={"system": system})
    composition = compose(Layers(TextPrompt("{{ extra.system }}")), ctx)
    row = composition.to_sample(reply)
    plain = composition.to_text()
    assert row["text"].startswith(plain)
    flat = [offset for span in row["loss_spans"] for offset in span]
    assert flat == sorted(flat)
    assert all(start < end <= len(row["text"]) for start, end in row["loss_spans"])
    expected = [text for role, text in history if role == "assistant" and text] + [reply] * bool(reply)
    assert [text.replace("\u200b", "") for text in learned(row)] == [text.replace("\u200b", "") for text in expected]
    assert all(row["text"][:start].endswith("assistant: ") for start, _ in row["loss_spans"])


def test_media_of_the_reply_are_alt_text_in_the_text() -> None:
    reply = Message("assistant", (Text("Here: "), Image(b"x", name="cat.png")))
    row = compose(Layers(), PromptContext(user_input="Draw.")).to_sample(reply)
    assert learned(row) == ["Here: [image: cat.png]"]
    assert row["messages"][-1]["content"][1]["type"] == "image_url"


@for_cases("reply", [Message("user", "x"), None, {"role": "user", "content": "x"}])
def test_only_an_assistant_replies(reply: Any) -> None:
    with pytest.raises(PromptError) as caught:
        compose(Layers(), PromptContext(user_input="x")).to_sample(reply)
    assert caught.value.name == "reply"


DATED = JinjaChatTemplate(
    "{{ strftime_now('%d %b %Y') }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    eos_token="<|end|>",
)


def test_a_template_prints_the_date_of_the_context() -> None:
    context = PromptContext(user_input="Hi <|end|>", now=datetime(2031, 5, 6))
    composition = compose(Layers(), context)
    assert composition.to_text(DATED) == "06 May 2031<|user|>Hi <\u200b|end|><|end|><|assistant|>"
    row = composition.to_sample("Ho.", DATED)
    assert row["text"].startswith("06 May 2031<|user|>")
    assert [row["text"][start:end] for start, end in row["loss_spans"]] == ["Ho.<|end|>"]
    assert composition.to_text(replace(DATED, now=datetime(2001, 1, 2))).startswith("02 Jan 2001")


def test_the_error_of_a_template_without_a_date_names_strftime_now() -> None:
    with pytest.raises(ChatTemplateError) as caught:
        compose(Layers(), PromptContext(user_input="Hi")).to_text(DATED)
    assert caught.value.name == "strftime_now"


def test_copies_of_a_template_for_other_dates_share_its_probes() -> None:
    at_first, later = DATED.with_now(datetime(2031, 5, 6)), DATED.with_now(datetime(2032, 5, 6))
    assert at_first.render([{"role": "user", "content": None}]) == "06 May 2031<|user|><|end|><|assistant|>"
    assert later.render([{"role": "user", "content": None}]) == "06 May 2032<|user|><|end|><|assistant|>"
    assert vars(at_first)["_probes"] is vars(later)["_probes"]
    plain = JinjaChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert plain.with_now(datetime(2031, 5, 6)) is plain
