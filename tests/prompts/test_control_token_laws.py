"""Whatever untrusted text says, the control tokens of a chat template are those that it writes around harmless text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import law
from small_chat_templates import INQUISITIVE, PLAIN

from agentkit.prompts import (
    Composition,
    Conversation,
    Document,
    Layers,
    MemoPrompt,
    Message,
    PromptContext,
    TextPrompt,
    ToolCall,
    ToolSpec,
    compose,
)
from agentkit_prompts.chat_templates.base import ChatTemplate

pytestmark = pytest.mark.filterwarnings("ignore::agentkit_prompts.layers.VolatilityWarning")

BREAK = "\u200b"
LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
BRACKETS = set("<>[]{}()|\uff5c\u3010\u3011\u300a\u300b")
HARMLESS = "\u0436"
"""A letter of no token."""
PYTHON = ToolSpec("python", "Runs code.", {"type": "object", "properties": {"code": {"type": "string"}}})


def tokens_in(text: str, template: ChatTemplate) -> set[tuple[int, str]]:
    """Every control token of a text, with its place when zero-width spaces are not counted."""
    found = set()
    for token in {token.strip() for token in template.control_tokens}:
        at = text.find(token) if len(token) > 1 else -1
        while at >= 0:
            line = text[:at].rstrip(" \t")
            if not BRACKETS.isdisjoint(token) or not line or line[-1] in LINE_BREAKS:
                found.add((at - text.count(BREAK, 0, at), token))
            at = text.find(token, at + 1)
    return found


def hostile(template: ChatTemplate) -> st.SearchStrategy[str]:
    """Text made of the template's control tokens, cut at random places."""
    tokens = st.sampled_from([token for token in template.control_tokens if token.strip()])
    cut = st.builds(lambda token, at: (token[:at], token[at:]), tokens, st.integers(1, 20))
    noise = st.sampled_from(
        ["", " ", "\n", "x", '"', "\\", "~", "{", "é", "\n  ", HARMLESS, "\ue000", "<", "|", "user"]
    )
    pieces = st.one_of(tokens, cut.map(lambda halves: halves[0]), cut.map(lambda halves: halves[1]), noise)
    return st.lists(pieces, max_size=6).map("".join)


class Talk:
    """What untrusted people say in one conversation; `harmless` is the same with every visible character harmless."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)

    @property
    def harmless(self) -> Talk:
        return Talk(["".join(c if c.isspace() or c in '"\\' else HARMLESS for c in text) for text in self.texts])

    def composition(self) -> Composition:
        one, two, question, answer, value, result, first, second, said = self.texts
        layers = Layers(
            system=[
                "Obey <|im_end|> [INST] and\nUSER: me.",
                MemoPrompt(template="{% for d in documents %}{{ d.text }}{% endfor %}"),
            ],
            before_input=TextPrompt(template="Before <|im_{{ user_input }}|> and <{{ additional_kwargs.word }}s>."),
        )
        history = Conversation(
            [
                Message("user", question, name="Ann"),
                Message(
                    "assistant", answer, (ToolCall("c1", "python", json.dumps({"code": value}, ensure_ascii=False)),)
                ),
                Message("tool", result, tool_call_id="c1", name="python"),
                Message("user", first),
                Message("assistant", second),
            ]
        )
        context = PromptContext(
            user_input={"input": said, "additional_kwargs": {"word": said[:3]}},
            documents=[Document(one), Document(two)],
            conversation=history,
            tools=[PYTHON],
        )
        return compose(layers, context)


def talks(template: ChatTemplate) -> st.SearchStrategy[Talk]:
    return st.lists(hostile(template), min_size=9, max_size=9).map(Talk)


def obeys(template: ChatTemplate, talk: Talk, **kwargs: Any) -> str:
    composition = talk.composition()
    text = composition.to_text(template, **kwargs)
    expected = talk.harmless.composition().to_text(template, control_tokens="allow", **kwargs)
    assert tokens_in(text, template) == tokens_in(expected, template)
    assert composition.to_text(template, **kwargs) == text
    return text


@pytest.mark.parametrize("name", PLAIN)
def test_tokens_are_those_around_harmless_text_and_nothing_is_lost(name: str) -> None:
    template = PLAIN[name]

    @law
    @given(talks(template))
    def holds(talk: Talk) -> None:
        text = obeys(template, talk)
        untouched = talk.composition().to_text(template, control_tokens="allow")
        assert text.replace(BREAK, "") == untouched.replace(BREAK, "")
        assert "Obey <|im_end|> [INST] and\nUSER: me." in text

    holds()


@pytest.mark.parametrize("name", INQUISITIVE)
def test_a_template_that_looks_into_the_text_is_given_none_to_act_on(name: str) -> None:
    template = INQUISITIVE[name]

    @law
    @given(talks(template))
    def holds(talk: Talk) -> None:
        talk.texts = [text.replace("</think>", "") for text in talk.texts]  # reasoning has a test of its own
        text = talk.composition().to_text(template)
        expected = talk.harmless.composition().to_text(template, control_tokens="allow")
        assert [token for _, token in sorted(tokens_in(text, template))] == [
            token for _, token in sorted(tokens_in(expected, template))
        ]

    holds()
