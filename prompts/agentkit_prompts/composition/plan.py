"""`Plan`: the parts of layers that are the same for every context, computed once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_prompts.tree.volatility import VolatilityWarning

__all__ = ["Block", "Inputs", "PlacedSelector", "Plan", "Step", "plan_of"]

Inputs: TypeAlias = tuple[object, ...]
"""Values of a context that a rendering read."""
InputReader: TypeAlias = Callable[[PromptContext], Inputs]
"""Reads the inputs of a rendering from a context."""


class Step(NamedTuple):
    """One prompt of a message."""

    path: str
    prompt: BasePrompt
    read: InputReader | None
    """Reader of the inputs of the prompt; None if its fragment is not cached."""


class PlacedSelector(NamedTuple):
    """A prompt whose selector reads the query, and its path."""

    path: str
    prompt: ExamplesPrompt


class Block(NamedTuple):
    """The prompts of one message."""

    slot: int
    """0 for the system message, 1 for the user message, 2 for the closing message."""
    name: str
    steps: tuple[Step, ...]
    read: InputReader | None
    """Reader of the inputs of all prompts of the message; None if the message is not cached."""


class Plan:
    """The parts of layers that are the same for every context.

    Attributes:
        has_maximum: True if a prompt or the history has a `Size.max`, which applies without a budget, too.
        selecting: The prompts whose selector reads the query, each once.
        blocks: The messages that have prompts.
        is_checked: True after `warn_of_volatility`.
    """

    __slots__ = ("blocks", "has_maximum", "is_checked", "selecting")

    def __init__(self, layers: Layers) -> None:
        sizes = [layers.history, layers.traffic]
        selecting: dict[int, PlacedSelector] = {}
        for path, prompt in layers.walk():
            sizes.append(prompt.size)
            if isinstance(prompt, ExamplesPrompt) and type(prompt.selector) is not StaticSelector:
                selecting.setdefault(id(prompt), PlacedSelector(path, prompt))
        self.is_checked = False
        self.has_maximum = any(size.max is not None for size in sizes)
        self.selecting = tuple(selecting.values())
        blocks = (
            _block(0, "system", layers.prompts("system")),
            _block(1, "input", layers.prompts("before_input", "input", "after_input")),
            _block(2, "after_intermediate", layers.prompts("after_intermediate")),
        )
        self.blocks = tuple([block for block in blocks if block.steps])

    def warn_of_volatility(self, layers: Layers) -> None:
        """Warn once about prompts of `layers` that no prompt cache can store, or after which it ends."""
        if self.is_checked:
            return
        self.is_checked = True
        for advice in layers.volatile_before_stable():
            warn(advice, VolatilityWarning)


def plan_of(layers: Layers) -> Plan:
    """Return the plan of layers, created at its first use and stored in the layers."""
    try:
        plan: Plan = layers._plan  # type: ignore[attr-defined]
    except AttributeError:
        plan = Plan(layers)
        object.__setattr__(layers, "_plan", plan)
    return plan


def _block(slot: int, name: str, prompts: Iterable[tuple[str, BasePrompt]]) -> Block:
    placed = [(path, prompt, _names_read(prompt)) for path, prompt in prompts]
    # A message of one prompt is cached as a whole.
    if len(placed) == 1:
        path, prompt, names = placed[0]
        return Block(slot, name, (Step(path, prompt, None),), _input_reader(names))
    steps: list[Step] = []
    all_names: frozenset[str] | None = frozenset()
    for path, prompt, names in placed:
        # The input differs every turn, so caching a prompt that reads it would cost more than it saves.
        if names is not None and "user_input" in names:
            names = None
        steps.append(Step(path, prompt, _input_reader(names)))
        if names is None or all_names is None:
            all_names = None
        else:
            all_names |= names
    return Block(slot, name, tuple(steps), _input_reader(all_names))


def _input_reader(names: Collection[str] | None) -> InputReader | None:
    """Return the reader of the values of some names; None if a rendering depends on more than the context."""
    if names is None:
        return None
    fields = {"user_input.additional_kwargs" if name == "additional_kwargs" else name for name in names}
    # The same input can have kwargs that change.
    if "user_input" in fields:
        fields.add("user_input.additional_kwargs")
    if not fields:
        return lambda _: ()
    get = attrgetter(*sorted(fields))
    # An attrgetter of one name returns the value by itself.
    if len(fields) == 1:
        return lambda ctx: (get(ctx),)
    return get


def _names_read(prompt: BasePrompt) -> frozenset[str] | None:
    """Return the context names that a rendering depends on; None if it must be rendered again every turn.

    A fence also depends on the key of the session, which is not a context name.
    """
    if prompt.fence or any(_names_read(child) is None for _, child in prompt.children):
        return None
    return prompt.reads
