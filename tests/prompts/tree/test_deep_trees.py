"""Trees of prompts of any depth and size: rendered, or refused with the limit."""

from __future__ import annotations

from typing import Any

import pytest

from agentkit.prompts import BasePrompt, Layers, PromptContext, PromptError, TextPrompt, UserInput, WrapPrompt, compose


class Around(BasePrompt):
    """Custom class that contains another prompt."""

    inner: Any

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        return (("inner", self.inner),)

    def format_2_str(self, ctx: PromptContext) -> str:
        return str(self.inner.format_2_str(ctx))


def wrapped(levels: int, times: int = 1) -> BasePrompt:
    prompt: BasePrompt = TextPrompt("x")
    for _ in range(levels):
        prompt = WrapPrompt(wrapped_prompts=[prompt] * times)
    return prompt


def test_the_deepest_tree_that_is_allowed_is_sent() -> None:
    ctx = PromptContext(user_input=UserInput("hi"))
    prompt = wrapped(99)
    assert prompt.format_2_str(ctx) == "x"
    assert "x" in str(compose(Layers(prompt), ctx).messages)


def test_a_deeper_tree_is_refused_at_construction() -> None:
    for levels in (100, 200, 1_000):
        with pytest.raises(PromptError) as caught:
            wrapped(levels)
        assert (caught.value.name, caught.value.value) == ("depth", 100), levels


def test_a_deeper_tree_of_custom_classes_is_refused_by_layers() -> None:
    for levels in (100, 200, 5_000):
        prompt: BasePrompt = TextPrompt("x")
        for _ in range(levels):
            prompt = Around(inner=prompt)
        with pytest.raises(PromptError) as caught:
            Layers(prompt)
        assert (caught.value.name, caught.value.value) == ("depth", 100), levels


def test_prompts_at_too_many_places_are_refused() -> None:
    with pytest.raises(PromptError) as caught:
        wrapped(40, times=2)
    assert (caught.value.name, caught.value.value) == ("prompts", 100_000)
