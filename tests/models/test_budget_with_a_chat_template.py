"""A budget of a model that completes text counts the text of its chat template."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit import Agent, CompletionModel, Composition, Document, FallbackModel, Message, OfflineModel, tool
from agentkit.models import Model
from agentkit.prompts import Budget, BudgetError, Layers, MemoPrompt, PromptContext, Size
from tests.prompts.laws import law
from tests.raising import raises


class Words:
    """Counts words, and every control token as one."""

    name = "words"
    estimated = False

    def count(self, text: str) -> int:
        return len(text.replace("<|", " <|").replace("|>", "|> ").split())


@tool
def price(item: str, *, currency: str = "CHF") -> int:
    """Return the price of an item in a currency."""
    return 30


def completing(template: str) -> CompletionModel:
    return CompletionModel("any", template, base_url="http://127.0.0.1:9/v1")


def composed_within(
    budget: int | Budget | None, model: Model | str, documents: int = 12, turns: int = 6
) -> Composition:
    shown = MemoPrompt(size=Size(cut="items", min=1))
    layers = Layers("Answer from the documents.", before_input=shown, history_block=0)
    agent = Agent(
        completing(model) if isinstance(model, str) else model,
        layers=layers,
        tools=[price],
        counter=Words(),
        budget=budget,
    )
    return agent.compose(
        PromptContext(
            user_input="Which one?",
            documents=[
                Document(f"Chunk {n}. " + "Words, words. " * 5, source="a.md", position=n) for n in range(documents)
            ],
            conversation=[
                Message("assistant" if n % 2 else "user", f"Message {n}. " + "Talk. " * 9) for n in range(2 * turns)
            ],
        )
    )


def sent(composition: Composition, template: str) -> int:
    return Words().count(composition.to_text(template))


@pytest.mark.parametrize("template", ["qwen3", "llama3_1", "internlm2"])
@law
@given(budget=st.integers(20, 700))
def test_the_text_of_a_request_never_exceeds_the_budget(template: str, budget: int) -> None:
    try:
        composition = composed_within(budget, template)
    except BudgetError as error:
        assert f"the budget is {budget}" in str(error) and "chat template" in str(error)
        return
    assert composition.tokens <= budget
    assert abs(sent(composition, template) - composition.tokens) <= 2 * len(composition.messages)  # words at seams
    rows = composition.explain()
    assert sum(row.tokens for row in rows) == composition.tokens
    for row in rows:
        assert row.status == "kept" or f"the budget is {budget} tokens" in row.why


def test_a_larger_budget_never_removes_anything() -> None:
    before = (0, 0)
    for budget in range(200, 700, 20):
        composition = composed_within(budget, "qwen3")
        shown = (len(composition.conversation), composition.user.text.count("Chunk"))
        assert all(now >= then for now, then in zip(shown, before, strict=True)), budget
        before = shown
    assert before == (12, 12)


def test_all_of_a_prompt_that_fits_is_sent() -> None:
    whole = composed_within(None, "qwen3")
    assert composed_within(whole.tokens, "qwen3").to_text("qwen3") == whole.to_text("qwen3")
    cut = composed_within(whole.tokens - 1, "qwen3")
    assert cut.tokens < whole.tokens
    assert cut.tokens > 0.9 * whole.tokens


def test_the_error_includes_the_tokens_of_the_template() -> None:
    with raises(BudgetError, limit=60):
        composed_within(60, "qwen3")


def test_a_reserve_stays_free() -> None:
    assert composed_within(Budget(400, reserve=100), "qwen3").tokens <= 300


@pytest.mark.parametrize(
    "model",
    [OfflineModel("qwen3"), FallbackModel(completing("qwen3"), OfflineModel())],
    ids=["offline", "fallback"],
)
def test_a_wrapper_of_a_model_counts_like_the_model(model: Model) -> None:
    assert composed_within(300, model).to_text("qwen3") == composed_within(300, "qwen3").to_text("qwen3")


def test_without_a_chat_template_the_messages_are_counted() -> None:
    plain, written = composed_within(300, OfflineModel()), composed_within(300, "qwen3")
    assert plain.tokens <= 300 and plain.text_tokens is None
    assert sent(plain, "qwen3") > 300 >= written.tokens
