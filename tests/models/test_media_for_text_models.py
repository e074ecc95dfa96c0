"""Media for a model that reads text only: a warning, and honest numbers in the layer table."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from agentkit import Agent, CompletionModel, Message, OpenAIModel, PromptContext, ToolCall
from agentkit.models import MediaAsTextWarning, ModelRequestError
from agentkit.prompts import Audio, File, Image, Video
from tests.raising import raises

PNG = Image(b"\x89PNG\r\n\x1a\n", name="lamp.png")
MEDIA = [PNG, Audio(b"RIFF0000WAVE", name="a.wav"), Video(b"x", name="v.mp4"), File(b"%PDF-1.4", name="d.pdf")]


def _composed(model: Any, ctx: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        composition = Agent(model, "You look.").compose(ctx)
    return composition, [str(each.message) for each in caught if each.category is MediaAsTextWarning]


def test_a_text_model_receives_names_of_media_and_the_table_and_a_warning_report_it() -> None:
    model = CompletionModel("qwen2.5-7b-instruct", base_url="http://127.0.0.1:9/v1")
    call = Message("assistant", tool_calls=[ToolCall("c1", "look", "{}")])
    result = Message("tool", [PNG], tool_call_id="c1", name="look")
    history = (Message("user", ["See ", PNG]), Message("assistant", "ok"))
    cases: list[tuple[str, Any, str]] = [
        *[(part.kind, ["What is this? ", part], "input[0]") for part in MEDIA],
        ("two", [PNG, MEDIA[1]], "input[0]"),
        ("only", [PNG], "input[0]"),
        ("history", PromptContext(user_input="And?", conversation=history), "conversation"),
        ("tool", PromptContext(user_input="And?", intermediate=(call, result)), "intermediate"),
    ]
    for name, ctx, layer in cases:
        composition, texts = _composed(model, ctx)
        assert len(texts) == 1, name
        table = composition.explain()
        (row,) = [row for row in table if row.layer == layer]
        assert (row.status, "text only" in row.why) == ("trimmed", True), name
        assert all(0 <= each.share <= 1 and each.tokens >= 0 for each in table), (name, str(table))
        assert sum(each.tokens for each in table) == composition.tokens, name


def test_other_models_and_prompts_without_media_are_unchanged() -> None:
    raw = CompletionModel("qwen2.5-7b-instruct", base_url="http://127.0.0.1:9/v1")
    hosted = OpenAIModel("gpt-5-mini", api_key="k")
    parts = PromptContext(user_input="And?", conversation=(Message("user", ["text"]), Message("assistant", "ok")))
    for model, ctx in ((raw, "Hi"), (raw, parts), (hosted, ["What? ", PNG])):
        composition, texts = _composed(model, ctx)
        assert not texts
        assert {row.status for row in composition.explain()} == {"kept"}
    assert composition.tokens > 700


@pytest.mark.parametrize("ctx", [["See ", PNG], PromptContext(user_input="And?", intermediate=[])])
def test_media_for_an_endpoint_that_reads_text_only_are_an_error_before_a_request(ctx: Any) -> None:
    agent = Agent("deepseek:deepseek-chat", "You look.")
    if isinstance(ctx, PromptContext):
        call = Message("assistant", tool_calls=[ToolCall("c1", "look", "{}")])
        ctx = ctx.evolve(intermediate=[call, Message("tool", [MEDIA[3]], tool_call_id="c1", name="look")])
    model: Any = agent.chain.model
    with raises(ModelRequestError, name="media"):
        model.request_body(agent.compose(ctx))
    assert model.request_body(agent.compose("Hi"))["model"] == "deepseek-chat"
