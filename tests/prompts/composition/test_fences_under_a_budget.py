"""Fences under a budget: only the text in a fence is cut."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.prompts import (
    BasePrompt,
    BudgetError,
    Document,
    Layers,
    MemoPrompt,
    PromptContext,
    Size,
    WrapPrompt,
    compose,
)
from tests.prompts.laws import law

DOCUMENTS = [Document(f"{'secret ' * 30}{index}", id=str(index)) for index in range(4)]
CONTEXT = PromptContext(user_input="question", documents=DOCUMENTS, session_key="key")
FENCE = re.compile(r"<untrusted-(\w+)>\n(.*?)\n</untrusted-\1>", re.DOTALL)

PROMPTS: dict[str, BasePrompt] = {
    "alone": MemoPrompt(fence=True),
    "wrapped": WrapPrompt((MemoPrompt(fence=True),), "Quoted:\n{{ wrapped_str }}"),
    "around a wrap": WrapPrompt((MemoPrompt(),), "Quoted:\n{{ wrapped_str }}", fence=True),
}
CUTS: dict[str, Any] = {
    "head": "head",
    "tail": "tail",
    "middle": "middle",
    "drop": "drop",
    "callable": lambda text, allowed: text[:allowed],
}
PROMPTS |= {f"cut {name}": MemoPrompt(fence=True, size=Size(cut=cut)) for name, cut in CUTS.items()}


@pytest.mark.parametrize("prompt", PROMPTS.values(), ids=PROMPTS)
@law
@given(budget=st.integers(1, 260))
def test_the_remaining_untrusted_text_is_in_a_complete_fence(prompt: BasePrompt, budget: int) -> None:
    try:
        composition = compose(Layers(before_input=prompt), CONTEXT, budget=budget)
    except BudgetError:
        return
    text = composition.messages[0].text
    assert composition.tokens <= budget
    assert "secret" not in FENCE.sub("", text)
    assert text.count("untrusted-") == 2 * len(FENCE.findall(text)) <= 2
    assert text.endswith("question")
