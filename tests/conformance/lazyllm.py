"""Cases of the LazyLLM prompters: a prompter is created, gets the tokens of a model and a hook, and is called once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentkit.prompts.prompters import LAZYLLM_SYSTEM, AlpacaPrompter, ChatPrompter, EmptyPrompter, Prompter

_CLASSES: dict[str, type[Prompter]] = {
    "AlpacaPrompter": AlpacaPrompter,
    "ChatPrompter": ChatPrompter,
    "EmptyPrompter": EmptyPrompter,
}


def _wrap_input_add_turn(input: Any, history: Any, tools: Any, label: Any) -> tuple[Any, Any, Any, Any]:
    return f"<<{input}>>", [*(history or []), ["hook-q", "hook-a"]], tools, label


_HOOKS: dict[str, Callable[..., Any]] = {"wrap_input_add_turn": _wrap_input_add_turn}


def _prompter(construct: Mapping[str, Any]) -> Prompter:
    hook = construct.get("pre_hook")
    made = _CLASSES[construct["class"]](**construct.get("kwargs", {}), pre_hook=_HOOKS[hook] if hook else None)
    made = made.for_model(system=LAZYLLM_SYSTEM)
    return made.for_model(**construct.get("model_configs", {}))


def check(case: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the id of a required case, with its problem or None."""
    if not case["required"]:
        return
    call, expected = case["call"], case["expect"]["output"]
    given = copy.deepcopy((case["construct"], call))
    try:
        said = getattr(_prompter(case["construct"]), call["method"])(*call["args"], **call["kwargs"])
    except Exception as error:
        yield case["id"], f"{type(error).__name__}: {error}"
        return
    if (case["construct"], call) != given:
        yield case["id"], "the prompter changed what it was given"
    else:
        yield case["id"], None if said == expected else f"got {said!r}, expected {expected!r}"
