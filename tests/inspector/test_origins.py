"""The names of items of a context, and the minimum lengths for prompt caches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agentkit import ScriptedModel, UserInput, model
from agentkit.inspector.item_names import item_names
from agentkit.models import AnthropicModel, FallbackModel, OpenAIModel
from agentkit.models.cache_minimums import cache_minimum
from agentkit.prompts import Document, Example, Fact, PromptContext, RecalledMessage


def test_items_have_names_that_a_person_recognises() -> None:
    when = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    ctx = PromptContext(
        user_input=UserInput(),
        documents=[Document("a", source="policies/shipping.md", position=1), Document("b", title="T", label="x#2")],
        knowledge=[Fact("f", source="crm"), Fact("g", id="f2"), Fact("h")],
        recalled=[
            RecalledMessage("m", "user", name="Ada", session="monday", position=3, when=when),
            RecalledMessage("n", "assistant"),
        ],
        examples=[Example("i", "o", id="e1"), Example("i", "o")],
    )
    assert item_names(ctx) == {
        "documents[0]": "policies/shipping.md#1",
        "documents[1]": "x#2",
        "knowledge[0]": "crm",
        "knowledge[1]": "f2",
        "recalled[0]": "Ada, session monday#3, 2026-03-02 09:30",
        "recalled[1]": "assistant",
        "examples[0]": "e1",
    }


def test_the_minimum_of_a_prompt_cache_depends_on_endpoint_and_model() -> None:
    def least(model: Any) -> int | None:
        minimum = cache_minimum(model)
        return minimum and minimum.tokens

    claude = AnthropicModel("claude-haiku-4-5")
    openai = OpenAIModel("gpt-5-mini", api_key="k")
    cases: list[tuple[Any, int | None]] = [
        (openai, 1024),
        (OpenAIModel("gpt-5-mini", base_url="http://localhost:1/v1"), None),
        (claude, 4096),
        (AnthropicModel("claude-opus-5"), 512),
        (AnthropicModel("claude-opus-9"), None),
        (model("gemini:gemini-2.5-flash"), 2048),
        (model("deepseek:deepseek-chat"), 64),
        (FallbackModel(claude, openai), 4096),
        (ScriptedModel([]), None),
    ]
    assert [(model.name, least(model)) for model, _ in cases] == [(model.name, tokens) for model, tokens in cases]
