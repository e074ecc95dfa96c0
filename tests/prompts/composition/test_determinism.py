"""Determinism: the same context has the same bytes in each process, with any hash seed, clock and environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import hashlib, json, warnings
warnings.simplefilter("ignore")
from datetime import UTC, datetime
from agentkit.prompts import *

layers = Layers(
    [
        "You are {{ extra.name }}.",
        ToolPrompt(),
        ExamplesPrompt(),
        AdditionalInfoPrompt(),
        TextPrompt("{{ additional_kwargs }}{{ additional_kwargs.tags | sort | join }}{{ now }}"),
        WrapPrompt([MemoPrompt(), KnowledgePrompt()], "<{{ wrapped_str }}>"),
    ],
    after_input=ConversationPrompt(),
    after_intermediate="Go on.",
)
kwargs = {
    "root": "/",
    "tags": ["b", "a"],
    "deep": {"z": {"y": [1, 2.5, None, True]}, "a": "\\u05e9"},
    "photo": Image(b"x"),
}
call = lambda name: [Message("assistant", "", (ToolCall(name, "look"),)), Message("tool", "r", tool_call_id=name)]
parameters = {"type": "object", "properties": {"q": {"type": "string"}, "a": {"type": "integer"}}}
metadata = {"b": 1, "a": {"d": 1, "c": 2}}
given = ["look ", Image(b"abc", name="a.png"), File("https://example.org/x.pdf")]
ctx = PromptContext(
    user_input=UserInput(given, additional_kwargs=kwargs),
    conversation=[Message("user", "hi"), *call("1")],
    documents=[Document(f"text {n} " * 20, title=f"t{n}", metadata=metadata) for n in range(9)],
    knowledge=[Fact("f1"), Fact("f2")],
    tools=[ToolSpec("look", "Look.", parameters)],
    examples=[Example("i", "o")],
    intermediate=call("2"),
    locale="zh-CN",
    now=datetime(2026, 1, 2, tzinfo=UTC),
    extra={"name": "Kit", "more": {"y": 1, "x": 2}},
)
state = hashlib.sha256()
for budget in (None, 8_300, 6_600):
    c = compose(layers, ctx, budget=budget)
    said = [c.to_text(), json.dumps(c.to_openai()), repr(c.spans), c.prefix_hash, repr(c.explain()), c.tokens]
    said += [json.dumps(c.versions), repr(c.breakpoints), repr(c.media), repr(sorted(c.trims))]
    said.append(json.dumps(layers.additional_kwargs_schema))
    state.update(repr(said).encode())
print(state.hexdigest(), c.tokens)
"""


def run(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_each_process_composes_the_same_bytes() -> None:
    said = {
        run(PYTHONHASHSEED="0"),
        run(PYTHONHASHSEED="1", TZ="Asia/Tokyo", LC_ALL="C", PYTHONUTF8="1"),
        run(PYTHONHASHSEED="424242", TZ="America/New_York", LANG="de_DE.UTF-8", PYTHONOPTIMIZE="1"),
    }
    assert len(said) == 1


@pytest.mark.parametrize("name", ["now()", "lipsum()", "range(3)|random", "[1,2]|random", "env", "environ"])
def test_templates_cannot_read_clock_random_numbers_or_environment(name: str) -> None:
    from agentkit.prompts import PromptContext, PromptError, TextPrompt

    with pytest.raises(PromptError):
        TextPrompt("{{ " + name + " }}").format_2_str(PromptContext(user_input="x"))


def test_a_set_is_refused_because_its_order_changes() -> None:
    from agentkit.prompts import AdditionalInfoPrompt, PromptContext, TemplateError, UserInput

    prompt = AdditionalInfoPrompt("{{ tags }}")
    ctx = PromptContext(user_input=UserInput("x", additional_kwargs={"tags": {"a", "b"}}))
    with pytest.raises(TemplateError) as caught:
        prompt.format_2_str(ctx)
    assert caught.value.line == 1
    listed = ctx.evolve(user_input=UserInput("x", additional_kwargs={"tags": ["a", "b"]}))
    assert prompt.format_2_str(listed), "the same values in a list are shown"


def test_an_object_that_shows_its_address_is_refused() -> None:
    from agentkit.prompts import AdditionalInfoPrompt, PromptContext, PromptError, UserInput

    class Thing:
        pass

    class Shows:
        def __str__(self) -> str:
            return f"<Shows at 0x{id(self):08x}>"

    for value in (Thing(), Shows(), len, (1 for _ in "ab")):
        ctx = PromptContext(user_input=UserInput("x", additional_kwargs={"thing": value}))
        with pytest.raises(PromptError):
            AdditionalInfoPrompt("{{ thing }}").format_2_str(ctx)
