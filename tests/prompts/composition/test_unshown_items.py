"""Items of a context that no prompt of the layers shows: a warning, once for each `Layers`."""

from __future__ import annotations

import warnings

from agentkit import Agent, ScriptedModel
from agentkit.prompts import (
    BasePrompt,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    PromptContext,
    RecalledMessage,
    RecalledPrompt,
    TextPrompt,
    UnshownWarning,
    WrapPrompt,
    compose,
)

ALL = PromptContext(
    "Hi",
    documents=["Lamps."],
    knowledge=["Green."],
    examples=[Example("2+2", "4")],
    recalled=[RecalledMessage("Hello.", role="user")],
)
SCORED = PromptContext("Hi", documents=[Document("Lamps.", score=0.5)], knowledge=[Fact("Green.", score=0.5)])


class Custom(BasePrompt):
    def format_2_str(self, ctx: PromptContext) -> str:
        return str(len(ctx.documents))


def unshown(layers: Layers, *contexts: PromptContext) -> list[str]:
    """Return the items that the warnings name, for one composition of each context."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for ctx in contexts:
            compose(layers, ctx)
    assert all(warning.category is UnshownWarning and warning.filename == __file__ for warning in caught)
    return [str(warning.message).partition("shows them: ")[2].partition(";")[0] for warning in caught]


def test_items_that_no_prompt_shows_are_reported_once() -> None:
    parts = WrapPrompt([MemoPrompt(), WrapPrompt([KnowledgePrompt()])])
    cases: list[tuple[Layers, PromptContext, list[str]]] = [
        (Layers(), PromptContext("Hi"), []),
        (Layers(system=["Be brief."]), ALL, ["documents, examples, facts, recalled messages"]),
        (Layers(before_input=[MemoPrompt()]), ALL, ["examples, facts, recalled messages"]),
        (Layers(before_input=[parts]), ALL, ["examples, recalled messages"]),
        (Layers(before_input=[parts, RecalledPrompt()], system=[ExamplesPrompt()]), ALL, []),
        (Layers(before_input=[KnowledgePrompt()]), PromptContext("Hi", documents=["Lamps."]), ["documents"]),
        (Layers(before_input=[MemoPrompt()]), PromptContext("Hi", knowledge=["Green."]), ["facts"]),
        # A custom template can show a part of the items.
        (Layers(before_input=[TextPrompt("{{ documents | length }}")]), PromptContext("Hi", documents=["Lamps."]), []),
        (Layers(before_input=[Custom()]), ALL, []),
        # A recall found them.
        (Layers(before_input=[MemoPrompt()]), SCORED, []),
    ]
    wrong = [
        (layers, expected, names) for layers, ctx, expected in cases if (names := unshown(layers, ctx, ctx)) != expected
    ]
    assert not wrong


def test_a_later_context_reports_only_new_items() -> None:
    first = PromptContext("Hi", documents=["Lamps."])
    assert unshown(Layers(), first, first, ALL, ALL) == ["documents", "examples, facts, recalled messages"]


def test_a_run_reports_the_items_of_its_input() -> None:
    agent = Agent(ScriptedModel.repeat("4"), "Be brief.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            agent.run_sync(PromptContext("Hi", documents=["Lamps."]))
    assert [(warning.category, warning.filename) for warning in caught] == [(UnshownWarning, __file__)]
