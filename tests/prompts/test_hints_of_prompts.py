"""Calls of prompts in the vocabulary of other libraries: the message names a call that works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentkit.prompts import (
    AdditionalInfoPrompt,
    Budget,
    Document,
    Example,
    ExamplesPrompt,
    Fact,
    Image,
    KnowledgePrompt,
    Layers,
    MemoPrompt,
    PromptContext,
    TextPrompt,
    UserInput,
    WrapPrompt,
    compose,
    select_examples,
)
from agentkit.prompts.example_selectors import StaticSelector
from agentkit_prompts.errors import ContextError, MediaError, PromptError
from tests.wrong_calls import check_right_way

teacher: Any = TextPrompt("You teach {{ additional_kwargs.subject }}.")
brief: Any = TextPrompt("Be brief.")
wrap: Any = WrapPrompt
examples: Any = ExamplesPrompt
info: Any = AdditionalInfoPrompt
knowledge: Any = KnowledgePrompt
memo: Any = MemoPrompt
text: Any = TextPrompt
layers: Any = Layers(system=[brief])
composed: Any = compose
tree: Any = Layers
image: Any = Image
selected: Any = select_examples
context: Any = PromptContext
MATHS = PromptContext(user_input=UserInput("5+5", additional_kwargs={"subject": "maths"}))
WRONG: list[tuple[Callable[[], object], type[Exception], str, Callable[[], object]]] = [
    (
        lambda: tree(brief, teacher, brief),
        PromptError,
        "Layers([prompt, prompt])",
        lambda: compose(Layers([brief, teacher]), MATHS).text.startswith("system: Be brief.\n\nYou teach maths."),
    ),
    (
        lambda: composed([teacher], "5+5", subject="maths"),
        TypeError,
        "UserInput(text, additional_kwargs={...}) as the input",
        lambda: "maths" in compose([teacher], UserInput("5+5", additional_kwargs={"subject": "maths"})).text,
    ),
    (
        lambda: knowledge([Document("Refunds.")]),
        PromptError,
        "for documents PromptContext(text, documents=[...]) and MemoPrompt()",
        lambda: "Refunds." in compose([MemoPrompt()], PromptContext("5+5", documents=[Document("Refunds.")])).text,
    ),
    (lambda: image(b"x", alt="A cat"), MediaError, "use name=...", lambda: Image(b"x", name="A cat").alt),
    (lambda: image(b"x", mime="image/gif"), MediaError, "use media_type=...", lambda: Image(b"x", "image/gif").mime),
    (
        lambda: selected([], "2+2", 2),
        TypeError,
        "ExamplesPrompt(examples, selector=StaticSelector(n))",
        lambda: ExamplesPrompt([("a", "b")], selector=StaticSelector(1)),
    ),
    (
        lambda: brief + teacher,
        TypeError,
        "WrapPrompt([prompt, prompt])",
        lambda: WrapPrompt([brief, teacher]).render(MATHS).text == "Be brief.\nYou teach maths.",
    ),
    (
        lambda: teacher.render(subject="maths"),
        TypeError,
        "prompt.render(PromptContext(user_input=UserInput(text, additional_kwargs={...})))",
        lambda: teacher.render(MATHS).text == "You teach maths.",
    ),
    (lambda: brief.render(), TypeError, "prompt.render(PromptContext(", lambda: brief.render(MATHS).text),
    (lambda: WrapPrompt(brief).render(), TypeError, "prompt.render(PromptContext(", lambda: brief.render(MATHS).text),  # type: ignore[call-arg]
    (
        lambda: wrap(brief, before="<rules>", after="</rules>"),
        PromptError,
        "WrapPrompt(prompts, '<tag>{{ wrapped_str }}</tag>')",
        lambda: WrapPrompt(brief, "<rules>{{ wrapped_str }}</rules>").render(MATHS).text == "<rules>Be brief.</rules>",
    ),
    (
        lambda: wrap(brief, tag="rules"),
        PromptError,
        "WrapPrompt(prompts, '<tag>{{ wrapped_str }}</tag>')",
        lambda: WrapPrompt(brief, "<rules>{{ wrapped_str }}</rules>"),
    ),
    (
        lambda: examples([], title="Examples"),
        PromptError,
        "WrapPrompt([ExamplesPrompt(examples)], 'Title\\n{{ wrapped_str }}')",
        lambda: WrapPrompt([ExamplesPrompt([("2+2", "4")])], "Title\n{{ wrapped_str }}"),
    ),
    (
        lambda: layers.compose("Hi"),
        AttributeError,
        "compose(layers, text, budget=...)",
        lambda: compose(layers, "Hi", budget=100).tokens,
    ),
    (
        lambda: compose(layers, "Hi").total_tokens,  # type: ignore[attr-defined]
        AttributeError,
        "use composition.tokens",
        lambda: compose(layers, "Hi").tokens,
    ),
    (
        lambda: Layers(context=[brief]),  # type: ignore[call-arg]
        PromptError,
        "before_input=[...]",
        lambda: Layers(before_input=[brief]),
    ),
    (
        lambda: memo(documents=["Lamps."]),
        PromptError,
        "use PromptContext(text, documents=[...]) as the context, and MemoPrompt()",
        lambda: MemoPrompt().render(PromptContext("Hi", documents=["Lamps."])).text,
    ),
    (
        lambda: knowledge([Fact("Green.")]),
        PromptError,
        "use PromptContext(text, knowledge=[...]) as the context, and KnowledgePrompt()",
        lambda: KnowledgePrompt().render(PromptContext("Hi", knowledge=["Green."])).text == "- Green.",
    ),
    *[
        (
            lambda value=value: info(value),
            PromptError,
            "use UserInput(text, additional_kwargs={...}) as the input, and AdditionalInfoPrompt()",
            lambda: AdditionalInfoPrompt().render(MATHS).text == "subject: maths",
        )
        for value in ({"subject"}, {"subject": "maths"}, {"subject": 1}, [("subject", "maths")])
    ],
    (
        lambda: text([brief, teacher]),
        PromptError,
        "use WrapPrompt([prompt, prompt])",
        lambda: WrapPrompt([brief, teacher]).render(MATHS).text,
    ),
    (
        lambda: Budget(total=100),  # type: ignore[call-arg]
        PromptError,
        "use limit=...",
        lambda: compose(layers, "Hi", budget=Budget(limit=100)).tokens,
    ),
    (
        lambda: composed(layers, "Hi", max_tokens=9),
        TypeError,
        "use budget=...",
        lambda: compose(layers, "Hi", budget=99),
    ),
    (
        lambda: context("Hi", budget=100),
        ContextError,
        "compose(layers, context, budget=...)",
        lambda: compose(layers, MATHS, budget=100),
    ),
    (
        lambda: examples([("2+2", "4"), ("3+3", "6")], limit=1),
        PromptError,
        "selector=StaticSelector(n), imported from agentkit.prompts.example_selectors",
        lambda: (
            ExamplesPrompt([("2+2", "4"), ("3+3", "6")], selector=StaticSelector(1)).format_2_str(MATHS)
            == "Input: 2+2\nOutput: 4"
        ),
    ),
    (
        lambda: compose(layers, "Hi").explain().rows,  # type: ignore[attr-defined]
        AttributeError,
        "`for row in composition.explain()`",
        lambda: [row.layer for row in compose(layers, "Hi").explain()],
    ),
    (
        lambda: compose(layers, "Hi").explain()[0].dropped,  # type: ignore[attr-defined]
        AttributeError,
        "use row.status",
        lambda: compose(layers, "Hi").explain()[0].status == "kept",
    ),
    (
        lambda: composed(layers, "Hi", kwargs={}),
        TypeError,
        "UserInput(text, additional_kwargs={...})",
        lambda: compose(layers, UserInput("Hi", additional_kwargs={"a": 1})),
    ),
    (
        lambda: context("Hi", kwargs={}),
        ContextError,
        "user_input=UserInput(text, additional_kwargs={...})",
        lambda: MATHS.user_input.additional_kwargs["subject"] == "maths",
    ),
    (
        lambda: MemoPrompt([Document("Lamps.")]),  # type: ignore[arg-type]
        PromptError,
        "use PromptContext(text, documents=[...]) as the context, and MemoPrompt()",
        lambda: (
            "Lamps."
            in compose(Layers(before_input=[MemoPrompt()]), PromptContext("Hi", documents=[Document("Lamps.")])).text
        ),
    ),
]


@pytest.mark.parametrize(("wrong", "error", "message", "right"), WRONG)
def test_the_message_names_a_call_that_works(
    wrong: Callable[[], object], error: type[Exception], message: str, right: Callable[[], object]
) -> None:
    check_right_way(wrong, error, message, right)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Prompt", r"agentkit\.Layers\(system=\[\.\.\.\]\)"),
        ("TemplatePrompt", r"agentkit\.prompts\.TextPrompt"),
        ("DocumentsPrompt", r"agentkit\.prompts\.MemoPrompt\(\)"),
    ],
)
def test_the_module_names_the_class(name: str, message: str) -> None:
    with pytest.raises(ImportError, match=message):
        exec(f"from agentkit.prompts import {name}")


def test_examples_can_be_pairs() -> None:
    pairs = ExamplesPrompt([("2+2", "4"), ("3+3", "6")])
    assert pairs.examples == (Example(input="2+2", output="4"), Example(input="3+3", output="6"))
    with pytest.raises(PromptError) as caught:
        ExamplesPrompt([("2+2", "4", "6")])  # type: ignore[list-item]
    assert str(caught.value.name).startswith("examples")
