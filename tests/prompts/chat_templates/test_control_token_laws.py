"""Laws of control tokens: with any untrusted text, a chat template writes the tokens of harmless text."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ChatTemplate, ChatTemplateError, JinjaChatTemplate
from agentkit.prompts.evaluation import MetaTemplate
from tests.cases import for_cases
from tests.effort import spread, thinned
from tests.paths import CONFORMANCE
from tests.prompts.chat_templates.small_chat_templates import INQUISITIVE, PLAIN
from tests.prompts.laws import law

# Each law runs on many templates: a share of the cases for each template is sufficient in total.
a_share = settings(law, max_examples=law.max_examples // 10 + 3)
fewer = settings(law, max_examples=law.max_examples // 20 + 3)

pytestmark = [
    pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning"),
    pytest.mark.untraced,  # see conftest.py
]

BREAK = "\u200b"
LINE_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
BRACKETS = set("<>[]{}()|\uff5c\u3010\u3011\u300a\u300b")
HARMLESS = "\u0436"
"""Letter that is in no token."""
PYTHON = ToolSpec("python", "Runs code.", {"type": "object", "properties": {"code": {"type": "string"}}})


def tokens_in(text: str, template: ChatTemplate) -> set[tuple[int, str]]:
    """Return the control tokens of a text, with their places without zero-width spaces."""
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
    """Draw text of the control tokens of a template, cut at random places."""
    tokens = st.sampled_from([token for token in template.control_tokens if token.strip()] or ["<s>"])
    cut = st.builds(lambda token, at: (token[:at], token[at:]), tokens, st.integers(1, 20))
    noise = st.sampled_from(
        ["", " ", "\n", "x", '"', "\\", "~", "{", "é", "\n  ", HARMLESS, "\ue000", "<", "|", "user"]
    )
    pieces = st.one_of(tokens, cut.map(lambda halves: halves[0]), cut.map(lambda halves: halves[1]), noise)
    return st.lists(pieces, max_size=6).map("".join)


class Talk:
    """Untrusted texts of a conversation; `harmless` has a harmless character for each visible character."""

    def __init__(self, texts: Sequence[str], shape: str = "tools") -> None:
        self.texts = list(texts)
        self.shape = shape
        """Largest supported conversation: with `tools`, with a `system` message, or turns that `alternate`."""

    @property
    def harmless(self) -> Talk:
        return Talk(
            ["".join(c if c.isspace() or c in '"\\' else HARMLESS for c in text) for text in self.texts], self.shape
        )

    def composition(self) -> Composition:
        one, two, question, answer, value, result, second, said = self.texts
        rules = TextPrompt(template="Obey <|im_end|> [INST] and\nUSER: me.")
        memo = MemoPrompt(template="{% for d in documents %}{{ d.text }}{% endfor %}")
        before = TextPrompt(template="Before <|im_{{ user_input }}|> and <{{ additional_kwargs.word }}s>.")
        layers = (
            Layers(before_input=[rules, memo, before])
            if self.shape == "alternate"
            else Layers(system=[rules, memo], before_input=before)
        )
        spoken = json.dumps({"code": value, f"{result}k": [{"a": result}, 1.5, None]}, ensure_ascii=False)
        history = [
            Message("user", question, name="Ann"),
            Message("assistant", answer, (ToolCall("call12345", "python", spoken),)),
            Message("tool", result, tool_call_id="call12345", name="python"),
            Message("assistant", second),
        ]
        if self.shape != "tools":
            history = [Message("user", question), Message("assistant", answer)]
        context = PromptContext(
            user_input={"input": said, "additional_kwargs": {"word": said[:3]}},
            documents=[Document(one), Document(two)],
            conversation=Conversation(history),
            tools=[PYTHON] if self.shape == "tools" else [],
        )
        return compose(layers, context)


def talks(template: ChatTemplate) -> st.SearchStrategy[Talk]:
    shape = shape_for(template)
    return texts_for(template).map(lambda texts: Talk(texts, shape))


def shape_for(template: ChatTemplate) -> str:
    """Return the name of the largest conversation that the template can write; "" for none."""
    for shape in ("tools", "system", "alternate"):
        with contextlib.suppress(ChatTemplateError):
            said = [f"{HARMLESS}{number}{HARMLESS}" for number in range(8)]  # lost text is found by its content
            Talk(said, shape).composition().to_text(template, control_tokens="allow")
            return shape
    return ""


@st.composite
def texts_for(draw: st.DrawFn, template: ChatTemplate) -> list[str]:
    """Draw a conversation; sometimes a token is split over successive texts."""
    texts = draw(st.lists(hostile(template), min_size=8, max_size=8))
    for token in draw(st.lists(st.sampled_from(template.control_tokens or ("<s>",)), max_size=3)):
        first, cuts = draw(st.integers(0, 6)), draw(st.lists(st.integers(0, len(token)), min_size=1, max_size=2))
        borders = [0, *sorted(cuts), len(token)]
        for number, (start, end) in enumerate(pairwise(borders)):
            if first + number < 8:
                piece = token[start:end]
                texts[first + number] = (
                    piece
                    if number and end < len(token)
                    else (piece + texts[first + number] if number else texts[first] + piece)
                )
    return texts


def checked_text(template: ChatTemplate, talk: Talk, **kwargs: Any) -> str:
    composition = talk.composition()
    text = composition.to_text(template, **kwargs)
    expected = talk.harmless.composition().to_text(template, control_tokens="allow", **kwargs)
    assert tokens_in(text, template) == tokens_in(expected, template)
    assert composition.to_text(template, **kwargs) == text
    return text


REASONED = re.compile(r"</\w*think\w*>|</thought>|</reasoning>|</seed:think>|\[/THINK\]|<\|END_THINKING\|>")
"""End of the reasoning in a reply. Its tags can stay: other tests check them."""


def keeps_order(template: ChatTemplate, talk: Talk) -> str:
    talk.texts = [REASONED.sub(" ", text) for text in talk.texts]
    text = talk.composition().to_text(template)
    expected = talk.harmless.composition().to_text(template, control_tokens="allow")
    assert [token for _, token in sorted(tokens_in(text, template))] == [
        token for _, token in sorted(tokens_in(expected, template))
    ]
    return text


@for_cases("name", PLAIN)
def test_a_text_has_the_tokens_of_harmless_text_and_loses_no_text(name: str) -> None:
    template = PLAIN[name]

    @a_share
    @given(talks(template))
    def holds(talk: Talk) -> None:
        text = checked_text(template, talk)
        untouched = talk.composition().to_text(template, control_tokens="allow")
        assert text.replace(BREAK, "") == untouched.replace(BREAK, "")
        assert "Obey <|im_end|> [INST] and\nUSER: me." in text

    holds()


@for_cases("name", INQUISITIVE)
def test_a_template_that_inspects_the_text_finds_no_tokens(name: str) -> None:
    template = INQUISITIVE[name]

    @a_share
    @given(talks(template))
    def holds(talk: Talk) -> None:
        keeps_order(template, talk)

    holds()


def test_untrusted_text_forges_no_token_of_a_meta_template() -> None:
    template = MetaTemplate(
        {
            "begin": "<s>",
            "round": [
                {"role": "HUMAN", "begin": "<|Human|>:", "end": "<eoh>\n"},
                {"role": "BOT", "begin": "Bot: ", "end": "<eoa>\n", "generate": True},
            ],
            "reserved_roles": [{"role": "SYSTEM", "begin": "<|System|>:", "end": "\n"}],
            "eos_token_id": "</s>",
        }
    )
    assert {"<s>", "<|Human|>", "<eoh>", "<eoa>"} <= {token.rstrip(":") for token in template.control_tokens}

    @fewer
    @given(talks(template))
    def holds(talk: Talk) -> None:
        checked_text(template, talk)

    holds()


@pytest.mark.parametrize("name", spread(CHAT_TEMPLATES, 3))
def test_untrusted_text_forges_no_token_of_a_registered_template(name: str) -> None:
    template = CHAT_TEMPLATES.get(name)()
    assert template.control_tokens
    assert shape_for(template) in ("tools", "system")

    @fewer
    @given(talks(template))
    def holds(talk: Talk) -> None:
        talk.texts = [REASONED.sub(" ", text) for text in talk.texts]
        text = checked_text(template, talk)
        untouched = talk.composition().to_text(template, control_tokens="allow")
        if "<|python_tag|>" not in template.control_tokens:  # The end of a turn depends on this tag in its text.
            assert text.replace(BREAK, "") == untouched.replace(BREAK, "")
        assert "Obey <|im_end|> [INST] and\nUSER: me." in text

    holds()


SHARED = CONFORMANCE / "chat_templates"


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the templates of real models in ../shared/conformance")
@pytest.mark.parametrize("path", spread(thinned(sorted(SHARED.glob("*.jinja")), 4), 2))
def test_untrusted_text_forges_no_token_of_a_template_of_a_real_model(path: Path) -> None:
    template = JinjaChatTemplate.from_file(
        path, bos_token="<s>", eos_token="</s>", now=datetime(2026, 1, 1, tzinfo=UTC)
    )
    if not shape_for(template):
        pytest.skip("the template is for something else than a conversation")

    @settings(law, max_examples=law.max_examples // 50 + 3)
    @given(talks(template))
    def holds(talk: Talk) -> None:
        keeps_order(template, talk)

    holds()
