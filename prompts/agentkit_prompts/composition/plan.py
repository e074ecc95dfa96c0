"""`Plan`: the parts of layers that are the same for every context, looked up once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentkit_prompts.composition.inputs import InputReader, input_reader
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["Block", "PlacedSelector", "Plan", "Step", "plan_of"]


class Step(NamedTuple):
    """One prompt of a message."""

    path: str
    prompt: BasePrompt
    read: InputReader
    """Reads the inputs of the prompt."""


class PlacedSelector(NamedTuple):
    """A prompt whose selector looks at the query, and its path."""

    path: str
    prompt: ExamplesPrompt


class Block(NamedTuple):
    """The prompts of one message."""

    slot: int
    """0 for the system message, 1 for the user message, 2 for the closing message."""
    name: str
    steps: tuple[Step, ...]
    read: InputReader
    """Reads the inputs of all prompts of the message."""


class Plan:
    """The parts of layers that are the same for every context.

    Attributes:
        has_maximum: True if a prompt or the history has a `Size.max`, which holds without a budget, too.
        selecting: The prompts whose selector looks at the query, each once.
        blocks: The messages that have prompts.
    """

    __slots__ = ("blocks", "has_maximum", "selecting")

    def __init__(self, layers: Layers) -> None:
        sizes = [layers.history, layers.traffic]
        selecting: dict[int, PlacedSelector] = {}
        for path, prompt in layers.walk():
            sizes.append(prompt.size)
            if isinstance(prompt, ExamplesPrompt) and type(prompt.selector) is not StaticSelector:
                selecting.setdefault(id(prompt), PlacedSelector(path, prompt))
        self.has_maximum = any(size.max is not None for size in sizes)
        self.selecting = tuple(selecting.values())
        blocks = (
            _block(0, "system", layers.prompts("system")),
            _block(1, "input", layers.prompts("before_input", "input", "after_input")),
            _block(2, "after_intermediate", layers.prompts("after_intermediate")),
        )
        self.blocks = tuple([block for block in blocks if block.steps])


def plan_of(layers: Layers) -> Plan:
    """Return the plan of layers, made at its first use and kept with them."""
    try:
        plan: Plan = layers._plan  # type: ignore[attr-defined]
    except AttributeError:
        plan = Plan(layers)
        object.__setattr__(layers, "_plan", plan)
    return plan


def _block(slot: int, name: str, prompts: Iterable[tuple[str, BasePrompt]]) -> Block:
    steps: list[Step] = []
    all_names: set[str] | None = set()
    for path, prompt in prompts:
        names = _names_read(prompt)
        if names is None or all_names is None:
            all_names = None
        else:
            all_names |= names
        # The input differs every turn, so to remember a prompt that reads it would cost more than it saves.
        if names is not None and "user_input" in names:
            names = None
        steps.append(Step(path, prompt, input_reader(names)))
    # The steps of one turn have the same input, which is worth remembering for a message of one prompt only.
    if all_names is not None and "user_input" in all_names and len(steps) > 1:
        all_names = None
    return Block(slot, name, tuple(steps), input_reader(all_names))


def _names_read(prompt: BasePrompt) -> frozenset[str] | None:
    """Return the context names that a rendering depends on; None if it must be rendered again every turn.

    A fence also depends on the key of the session, which is no name.
    """
    if prompt.fence or any(_names_read(child) is None for _, child in prompt.children):
        return None
    return prompt.reads
