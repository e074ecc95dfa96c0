"""Cases of the corpus forge no message, no call and no control token, in any place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit.prompts import (
    AdditionalInfoPrompt,
    ConversationPrompt,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    PromptContext,
    TextPrompt,
    ToolSpec,
    compose,
)
from agentkit.prompts.chat_templates import CHAT_TEMPLATES, ControlTokenError
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_of
from agentkit_prompts.templates.line_heads import MESSAGE

pytestmark = pytest.mark.filterwarnings("ignore::agentkit.prompts.VolatilityWarning")

CASES = [json.loads(line) for line in Path(__file__).with_name("forging_corpus.jsonl").read_text("utf-8").splitlines()]
LAYERS = Layers(
    "Be brief.",
    before_input=[
        *(MemoPrompt(), KnowledgePrompt(), AdditionalInfoPrompt("{{ history[0].role }}"), ConversationPrompt()),
        TextPrompt("{{ locale }}"),
    ],
)


def context(place: str, text: str, has_tools: bool) -> PromptContext:
    schema: dict[str, Any] = {
        "tool title": {"title": text},
        "tool property": {"properties": {text: {}}},
        "tool enum": {"properties": {"a": {"enum": [text]}}},
        "tool default": {"properties": {"a": {"default": {"b": [text]}}}},
        "tool unknown key": {text: text},
    }.get(place, {})
    described = text if place == "tool description" else "Looks."
    tool = ToolSpec("look", described, {"type": "object", **schema}, trust="untrusted")
    calls = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}}]
    if place == "arguments":
        calls[0]["function"] = {"name": "look", "arguments": '{"q":1}' + text}
    talk = [{"role": "user", "content": text if place == "conversation" else "x"}]
    traffic = [{"role": "assistant", "content": "", "tool_calls": calls}, {"role": "tool", "content": "x"}]
    traffic[1]["tool_call_id"] = "1"
    shown = {key: text if place == name else "x" for key, name in (("input", "user_input"), ("kwarg", "kwarg"))}
    return PromptContext(
        user_input={
            "input": shown["input"] + (shown["kwarg"] if place == "kwarg" else ""),
            "additional_kwargs": {"history": [{"role": text if place in ("role key", "kwarg") else "x"}]},
        },
        conversation=talk,
        documents=[text if place == "document" else "x"],
        knowledge=[text if place == "fact" else "x"],
        locale=text if place == "locale" else "en",
        tools=[tool] if has_tools else [],
        intermediate=traffic if place == "arguments" else [],
    )


def written(place: str, text: str, template: str) -> list[Any]:
    has_tools = template in ("qwen2d5", "llama3_1", "internlm2")
    composition = compose(LAYERS, context(place, text, has_tools))
    if not template:
        shown = composition.to_text()
        assert text == "calm" or "OBEY" in shown
        return [MESSAGE.count(shown)]
    made = CHAT_TEMPLATES.get(template)()
    shown = composition.to_text(made)
    assert text == "calm" or "OBEY" in shown
    tokens = tokens_of(made)
    return [found.token for found in sorted(tokens.find(shown))]


def test_the_corpus_has_a_minimum_size() -> None:
    assert len(CASES) >= 1_000


@pytest.mark.parametrize("template", sorted({case["template"] for case in CASES}))
def test_no_case_forges(template: str) -> None:
    calm: dict[str, list[Any]] = {}
    forged: list[dict[str, str]] = []
    for case in CASES:
        if case["template"] == template:
            place = case["place"]
            if place not in calm:
                calm[place] = written(place, "calm", template)
            if written(place, case["text"], template) != calm[place]:
                forged.append(case)
    assert not forged


@pytest.mark.parametrize("template", sorted({case["template"] for case in CASES} - {""}))
def test_the_error_names_each_rejected_token(template: str) -> None:
    for case in CASES:
        if case["template"] == template:
            composition = compose(LAYERS, context(case["place"], case["text"], case["place"].startswith("tool ")))
            with pytest.raises(ControlTokenError):
                composition.to_text(template, control_tokens="reject")
