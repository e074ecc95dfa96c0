"""Evaluation prompts: 10,000 rows of a few-shot dialogue with five worked examples, as OpenCompass's template and ours.

The peer is measured where `opencompass` can be imported (0.5.4, installed without its dependencies, beside numpy,
mmengine and datasets): of it only the template is loaded, so torch and transformers are not needed.
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
ASKED = {
    "begin": [
        {"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": "Questions about {subject}, with answers."},
        "</E>",
    ],
    **EXAMPLES,
}
COLUMNS = ["subject", "question", "A", "B", "C", "D"]


def row(number: int) -> dict[str, Any]:
    """Return one row of the dataset: text, and numbers as choices."""
    question = f"Which of these is {number} times {number + 1}, if any, and why is it not one of the others? " * 2
    choices = {letter: number * (number + place) for place, letter in enumerate("ABCD")}
    return {"subject": "arithmetic", "question": question, **choices, "answer": "B"}


DATASET = [row(number) for number in range(ROWS)]
TRAIN = [row(number) for number in range(ROWS, ROWS + 5)]


def theirs() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """Return OpenCompass's template and prompt list, loaded without the packages around them, where it is installed."""
    found = importlib.util.find_spec("opencompass")
    if found is None or not found.submodule_search_locations:
        return None
    home = Path(found.submodule_search_locations[0])
    for name in ("opencompass", "opencompass.openicl", "opencompass.utils"):
        package = ModuleType(name)
        package.__path__ = [str(home.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    template = importlib.import_module("opencompass.openicl.icl_prompt_template")
    prompt = importlib.import_module("opencompass.utils.prompt")
    return template.PromptTemplate, prompt.PromptList


def templates(rounds: int) -> Iterable[Figure]:
    """The template alone, with the examples rendered before; then a whole evaluation of ours, from retrieval on."""
    peer = theirs()
    if peer is None:
        print("opencompass cannot be imported here: its template is not measured", file=sys.stderr)
    ours = PromptTemplate(ASKED, ice_token="</E>")
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
            made = [{"section": "begin", "pos": "begin"}]
            made.append({"role": "SYSTEM", "fallback_role": "HUMAN", "prompt": _asked(values)})
            made += [dict(item) for item in ice if isinstance(item, dict)]
            made += [{"section": "begin", "pos": "end"}, {"section": "round", "pos": "begin"}]
            made.append({"role": "HUMAN", "prompt": _question(values)})
            made += [{"role": "BOT", "prompt": "\n"}, {"section": "round", "pos": "end"}]

    def template(n: int) -> None:
        for values in DATASET[:n]:
            ours.item(values, ice=ice, hide="answer")

    def evaluation(n: int) -> None:
        for _ in icl.prompts(DATASET[:n]):
            pass

    candidates: dict[str, Work] = {"by hand": by_hand}
    goals: dict[str, float] = {}
    if peer is not None:
        their_template, their_list = peer
        other = their_template(ASKED, ice_token="</E>")
        their_ice = their_list([dict(item) if isinstance(item, dict) else item for item in ice])

        def opencompass(n: int) -> None:
            for values in DATASET[:n]:
                other.generate_item(values, output_field="answer", ice_field_replace_token=their_ice)

        theirs_made = other.generate_item(last, output_field="answer", ice_field_replace_token=their_ice)
        assert list(theirs_made) == list(ours.item(last, ice=ice, hide="answer"))
        candidates = {"opencompass": opencompass, **candidates}
        goals = {"template": 1, "whole evaluation": 1}
    assert list(ours.item(last, ice=ice, hide="answer")) == list(icl.prompt(last, range(len(TRAIN))))
    candidates |= {"template": template, "whole evaluation": evaluation}
    taken = interleave(candidates, ROWS, rounds)
    return figures("few-shot rows", taken, goals=goals)


def _asked(values: Any) -> str:
    return f"Questions about {values['subject']}, with answers."


def _question(values: Any) -> str:
    return f"{values['question']}\nA. {values['A']}\nB. {values['B']}\nC. {values['C']}\nD. {values['D']}\nAnswer: "


if __name__ == "__main__":
    main(__doc__, {"templates": templates})
