"""Limits of the renderings that inspect an untrusted chat template: together the limit of a single rendering."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.chat_templates.jinja import chat_template
from agentkit_prompts.templates.sandbox.meter import CHAT_LIMITS, Limits, Meter
from tests.cases import for_cases

TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "add 2"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"of": "add 2"}'}}],
    },
    {"role": "tool", "tool_call_id": "1", "name": "add", "content": "add 2"},
]
WORKS = "{% for i in range(WORK) %}{% endfor %}"
SAYS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}add 2{% endfor %}{% endfor %}"
)


@pytest.fixture
def renderings(monkeypatch: pytest.MonkeyPatch) -> list[Meter]:
    """Record the meters of later renderings."""
    seen: list[Meter] = []

    class Seen(Meter):
        __slots__ = ()

        def __init__(self, limits: Limits) -> None:
            super().__init__(limits)
            seen.append(self)

    monkeypatch.setattr(chat_template, "Meter", Seen)
    return seen


def work_of(renderings: list[Meter]) -> int:
    return sum(one.limits.rounds - max(0, one.rounds) for one in renderings)


@pytest.mark.parametrize("rounds", [200, 2_000, 20_000, 60_000, 95_000])
def test_all_inspecting_renderings_have_the_limit_of_one_rendering(renderings: list[Meter], rounds: int) -> None:
    template = JinjaChatTemplate(WORKS.replace("WORK", str(rounds)) + SAYS, lossy=True)
    template.diagnose()
    with suppress(ChatTemplateError):
        _ = template.control_tokens
    assert len(renderings) > 3, "none was rendered"
    assert work_of(renderings) <= CHAT_LIMITS.rounds
    del renderings[:]
    assert "add 2" in template.render(TALK[:1]), "cached properties are no work of this rendering"


def test_a_template_with_markers_above_the_limit_has_no_list_of_tokens() -> None:
    assert "user:" in JinjaChatTemplate(WORKS.replace("WORK", "2_000") + SAYS).control_tokens
    costly = JinjaChatTemplate(WORKS.replace("WORK", "95_000") * 3 + SAYS)
    with pytest.raises(ChatTemplateError):
        _ = costly.control_tokens
    assert "user:" in replace(costly, limits=None).control_tokens, "the limits were the reason"


def test_limits_for_one_rendering_are_sufficient_to_inspect_a_template() -> None:
    template = JinjaChatTemplate(SAYS, limits=Limits(rounds=4))
    assert "user:" in template.control_tokens
    assert template.diagnose()
    assert template.render(TALK[:1]) == "user: add 2"


def test_the_search_for_lost_text_has_the_limit_of_the_text(renderings: list[Meter]) -> None:
    template = JinjaChatTemplate(WORKS.replace("WORK", "95_000") + SAYS)
    template.diagnose()
    del renderings[:]
    try:
        template.render(TALK)
    except ChatTemplateError as error:
        assert error.problems
    assert len(renderings) > 1, "no search was necessary"
    assert work_of(renderings) <= 2 * CHAT_LIMITS.rounds


def test_a_text_is_searched_once_for_all_documents(renderings: list[Meter]) -> None:
    says = SAYS.replace("add 2{%", "{{ c.function.name }}{{ c.function.arguments }}{%")
    template = JinjaChatTemplate(says + "{% for d in documents %}{{ d.text }}{% endfor %}")
    for text in ("one", "two", "three"):
        del renderings[:]
        assert template.render(TALK, documents=[{"title": "", "text": text}]).endswith(text)
    assert len(renderings) == 1
    template.render(TALK, documents=[])
    assert len(renderings) > 2, "a template can write other messages without documents"


@for_cases("isolated", [False, True])
def test_the_text_of_a_small_conversation_is_small(isolated: bool) -> None:
    template = JinjaChatTemplate("{{ '<|a|>' * 30_000 }}" + SAYS, lossy=True, isolated=isolated)
    assert [str(one) for one in template.diagnose() if "makes a text of 150,000 characters" in str(one)]
    assert len(template.render(TALK[:1])) > 150_000


def test_more_markers_than_a_model_can_have_are_refused() -> None:
    many = "".join(f"<|{number}|>" for number in range(1_001))
    counted = "{% for i in range(2_000) %}<|{{ i }}|>{% endfor %}"
    for markers in (many, counted):
        with pytest.raises(ChatTemplateError) as caught:
            _ = JinjaChatTemplate(markers + SAYS).control_tokens
        assert caught.value.name == "added_tokens"


def test_a_tokenizer_can_have_thousands_of_tokens() -> None:
    tokens = [f"<unused{number}>" for number in range(6_000)]
    assert JinjaChatTemplate(SAYS, added_tokens=tokens).control_tokens[:6_000] == tuple(tokens)
