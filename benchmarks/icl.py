"""Evaluation prompts: 10,000 rows of a few-shot dialogue with five worked examples, by OpenCompass and agentkit.

The peer is measured if `opencompass` is installed (0.5.4, without its dependencies except numpy, mmengine and
datasets). Only its template is imported, which does not need torch and transformers.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import Figure, Work, figures, interleave, main

from agentkit.prompts.evaluation import DatasetReader, InContext, PromptList, PromptTemplate
from agentkit.prompts.example_selectors import StaticSelector

ROWS = 10_000
EXAMPLES = {
    "round": [
        {"role": "HUMAN", "prompt": "{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nAnswer: "},
        {"role": "BOT", "prompt": "{answer}\n"},
    ]
}
TEMPLATE = {
    "begin": [
        {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Questions about {subject}, with answers."},
        "</E>",
    ],
    **EXAMPLES,
}
COLUMNS = ["subject", "question", "A", "B", "C", "D"]


def row(number: int) -> dict[str, Any]:
    """Return a row of the dataset, with a text and with numbers as choices."""
    question = f"Which of these is {number} times {number + 1}, if any, and why is it not one of the others? " * 2
    choices = {letter: number * (number + place) for place, letter in enumerate("ABCD")}
    return {"subject": "arithmetic", "question": question, **choices, "answer": "B"}


DATASET = [row(number) for number in range(ROWS)]
TRAIN = [row(number) for number in range(ROWS, ROWS + 5)]


def peer_classes() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return the template and the prompt list of OpenCompass, without its packages; None if not installed."""
    spec = importlib.util.find_spec("opencompass")
    if spec is None or not spec.submodule_search_locations:
        return None
    home = Path(spec.submodule_search_locations[0])
    for name in ("opencompass", "opencompass.openicl", "opencompass.utils"):
        package = ModuleType(name)
        package.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    template = importlib.import_module("opencompass.openicl.icl_prompt_template")
    prompt = importlib.import_module("opencompass.utils.prompt")
    return template.PromptTemplate, prompt.PromptList


def templates(rounds: int) -> Iterable[Figure]:
    """Measure the template alone, with rendered examples, and a whole evaluation, which includes retrieval."""
    peer = peer_classes()
    if peer is None:
        print("opencompass is not installed; its template is not measured", file=sys.stderr)
    ours = PromptTemplate(TEMPLATE, ice_token="</E>")
    example = PromptTemplate(EXAMPLES)
    ice = PromptList()
    for values in TRAIN:
        ice += example.ice_item(values)
    ice += [""]
    icl = InContext(
        DatasetReader(COLUMNS, "answer"),
        ours,
        ice_template=example,
        retriever=StaticSelector(ids=[str(number) for number in range(len(TRAIN))]),
        train=TRAIN,
    )
    last = DATASET[-1]

    def by_hand(n: int) -> None:
        for values in DATASET[:n]:
            items = [{"section": "begin", "pos": "begin"}]
            items.append({"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": _introduction(values)})
            items += [dict(part) for part in ice if isinstance(part, dict)]
            items += [{"section": "begin", "pos": "end"}, {"section": "round", "pos": "begin"}]
            items.append({"role": "HUMAN", "prompt": _question(values)})
            items += [{"role": "BOT", "prompt": "\n"}, {"section": "round", "pos": "end"}]

    def template(n: int) -> None:
        for values in DATASET[:n]:
            ours.item(values, ice=ice, hide="answer")

    def evaluation(n: int) -> None:
        for _ in icl.prompts(DATASET[:n]):
            pass

    title = "W10 few-shot rows"
    candidates: dict[str, Work] = {"by hand": by_hand}
    if peer is not None:
        their_template, their_list = peer
        other = their_template(TEMPLATE, ice_token="</E>")
        their_ice = their_list([dict(item) if isinstance(item, dict) else item for item in ice])

        def opencompass(n: int) -> None:
            for values in DATASET[:n]:
                other.generate_item(values, output_field="answer", ice_field_replace_token=their_ice)

        their_items = other.generate_item(last, output_field="answer", ice_field_replace_token=their_ice)
        assert list(their_items) == list(ours.item(last, ice=ice, hide="answer"))
        candidates = {"opencompass": opencompass, **candidates}
        title += ", with OpenCompass"
    assert list(ours.item(last, ice=ice, hide="answer")) == list(icl.prompt(last, range(len(TRAIN))))
    candidates |= {"template": template, "whole evaluation": evaluation}
    seconds = interleave(candidates, ROWS, rounds)
    return figures(title, seconds)


def _introduction(values: Any) -> str:
    return f"Questions about {values['subject']}, with answers."


def _question(values: Any) -> str:
    return f"{values['question']}\nA. {values['A']}\nB. {values['B']}\nC. {values['C']}\nD. {values['D']}\nAnswer: "


if __name__ == "__main__":
    main(__doc__, {"templates": templates})
