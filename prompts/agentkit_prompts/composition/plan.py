"""`Plan`: the values that a composition computes from its layers alone, independent of the context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import UnshownWarning
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.prompt import BasePrompt
from agentkit_prompts.tree.volatility import VolatilityWarning

Inputs: TypeAlias = tuple[object, ...]
"""Values of a context that a rendering depends on."""
InputReader: TypeAlias = Callable[[PromptContext], Inputs]
"""Function that reads the inputs of a rendering from a context."""


class PlannedPrompt(NamedTuple):
    """One prompt of a message, and the reader of its inputs."""

    path: str
    prompt: BasePrompt
    read: InputReader | None
    """Reader of the inputs of the prompt; None if its rendering is not cached separately."""


class SelectingPrompt(NamedTuple):
    """A prompt whose selector reads the query, and its path."""

    path: str
    prompt: ExamplesPrompt


class ItemsOfContext(NamedTuple):
    """A kind of items of a context, and the prompt that shows the items."""

    items: str
    prompt: str


_SHOWN_BY = {
    "documents": ItemsOfContext("documents", "MemoPrompt"),
    "examples": ItemsOfContext("examples", "ExamplesPrompt"),
    "knowledge": ItemsOfContext("facts", "KnowledgePrompt"),
    "recalled": ItemsOfContext("recalled messages", "RecalledPrompt"),
    "skills": ItemsOfContext("skills", "SkillsPrompt"),
    "loaded_skills": ItemsOfContext("loaded skills", "LoadedSkillsPrompt"),
}
"""Name in the context -> its items."""


class PlannedMessage(NamedTuple):
    """The prompts of one message, and the reader of their inputs."""

    slot: int
    """0 for the system message, 1 for the user message, 2 for the closing message."""
    name: str
    """Cache key of the message, and label of its section."""
    prompts: tuple[PlannedPrompt, ...]
    read: InputReader | None
    """Reader of the inputs of all prompts of the message; None if the message is not cached."""


class Plan:
    """The values that a composition computes from its layers alone.

    Attributes:
        has_maximum: True if a prompt, the history or the tool traffic has a `Size.max`, which also applies without a
            budget.
        selecting_prompts: The prompts whose selector reads the query, each once.
        messages: The messages that have prompts.
        is_checked: True if `warn_of_volatility` has run.
        unshown: Names in the context that no prompt shows, without the names that `warn_of_unshown` has reported;
            None before its first call.
    """

    __slots__ = ("has_maximum", "is_checked", "messages", "selecting_prompts", "unshown")

    def __init__(self, layers: Layers) -> None:
        sizes = [layers.history, layers.traffic]
        selecting_prompts: dict[int, SelectingPrompt] = {}
        for path, prompt in layers.walk():
            sizes.append(prompt.size)
            if isinstance(prompt, ExamplesPrompt) and type(prompt.selector) is not StaticSelector:
                selecting_prompts.setdefault(id(prompt), SelectingPrompt(path, prompt))
        self.is_checked = False
        self.unshown: frozenset[str] | None = None
        self.has_maximum = any(size.max is not None for size in sizes)
        self.selecting_prompts = tuple(selecting_prompts.values())
        messages = (
            _planned_message(0, "system", layers.prompts("system")),
            _planned_message(1, "input", layers.prompts("before_input", "input", "after_input")),
            _planned_message(2, "after_intermediate", layers.prompts("after_intermediate")),
        )
        self.messages = tuple([message for message in messages if message.prompts])

    def warn_of_volatility(self, layers: Layers) -> None:
        """Warn once about volatile prompts before stable prompts: a prompt cache ends at the first volatile prompt."""
        if self.is_checked:
            return
        self.is_checked = True
        for advice in layers.volatile_before_stable():
            warn(advice, VolatilityWarning)

    def warn_of_unshown(self, layers: Layers, ctx: PromptContext) -> None:
        """Warn once about the items of a context that no prompt of `layers` shows."""
        if self.unshown is None:
            self.unshown = _unshown(layers)
        names = [name for name in self.unshown if getattr(ctx, name)]
        # Most turns have no such items.
        if names:
            names = sorted([name for name in names if any(map(_is_given, getattr(ctx, name)))])
        if not names:
            return
        self.unshown -= {*names}
        items = ", ".join([_SHOWN_BY[name].items for name in names])
        prompts = ", ".join([f"{_SHOWN_BY[name].prompt}()" for name in names])
        warn(
            f"items of the context are not sent, because no prompt of the layers shows them: {items}; add prompts, "
            f"such as Layers(..., before_input=[{prompts}])",
            UnshownWarning,
        )


def _unshown(layers: Layers) -> frozenset[str]:
    """Return the names in the context that no prompt shows."""
    unshown = frozenset(_SHOWN_BY)
    for _, prompt in layers.walk():
        reads = prompt.reads
        # A prompt of a custom class can show everything.
        if reads is None:
            return frozenset()
        unshown -= reads
    return unshown


def _is_given(item: object) -> bool:
    """True if the program added an item to the context. Items with a score come from a recall or a selector."""
    # A recall finds documents, messages and facts; a program that shows some of these kinds has made its choice.
    return getattr(item, "score", None) is None


def plan_of(layers: Layers) -> Plan:
    """Return the plan of layers, created at its first use and stored in the layers."""
    try:
        plan: Plan = layers._plan  # type: ignore[attr-defined]
    except AttributeError:
        plan = Plan(layers)
        object.__setattr__(layers, "_plan", plan)
    return plan


def _planned_message(slot: int, name: str, prompts: Iterable[tuple[str, BasePrompt]]) -> PlannedMessage:
    placed = [(path, prompt, _names_read(prompt)) for path, prompt in prompts]
    # If a message has one prompt, caching the message is sufficient.
    if len(placed) == 1:
        path, prompt, names = placed[0]
        return PlannedMessage(slot, name, (PlannedPrompt(path, prompt, None),), _input_reader(names))
    planned: list[PlannedPrompt] = []
    all_names: frozenset[str] | None = frozenset()
    for path, prompt, names in placed:
        # The input differs every turn, so caching a prompt that reads it would cost more than it saves.
        if names is not None and "user_input" in names:
            names = None
        planned.append(PlannedPrompt(path, prompt, _input_reader(names)))
        if names is None or all_names is None:
            all_names = None
        else:
            all_names |= names
    return PlannedMessage(slot, name, tuple(planned), _input_reader(all_names))


def _input_reader(names: Collection[str] | None) -> InputReader | None:
    """Return the reader of the values of context names; None without names, if a rendering cannot be cached."""
    if names is None:
        return None
    fields = {"user_input.additional_kwargs" if name == "additional_kwargs" else name for name in names}
    # `RenderCache.keep` finds mutable kwargs only if the kwargs themselves are an input.
    if "user_input" in fields:
        fields.add("user_input.additional_kwargs")
    if not fields:
        return lambda _: ()
    get = attrgetter(*sorted(fields))
    # An attrgetter of one name returns the value, not a tuple.
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
