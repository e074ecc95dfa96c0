"""What is known about layers before any context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from agentkit_prompts.tokens.size import Size
from agentkit_prompts.tree.examples import ExamplesPrompt, StaticSelector
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["Block", "Plan", "Reader"]

Reader: TypeAlias = Callable[[Mapping[str, Any]], tuple[Any, ...]]
"""Gets from the view of a context the values that something was rendered from."""
_Placed: TypeAlias = Sequence[tuple[str, BasePrompt]]
_Step: TypeAlias = tuple[str, BasePrompt, Reader | None]


class Block:
    """What is known about one message before any context: its steps, and the names they read together."""

    __slots__ = ("name", "reads", "steps")

    def __init__(self, name: str, prompts: _Placed) -> None:
        self.name = name
        # What shows the input is rendered every turn: there is nothing to look up first.
        self.steps: tuple[_Step, ...] = tuple(
            (path, prompt, None if "user_input" in (_reads(prompt) or ()) else _reader(_reads(prompt)))
            for path, prompt in prompts
        )
        names: set[str] | None = set()
        for _, prompt in prompts:
            reads = _reads(prompt)
            names = None if names is None or reads is None else names | reads
        # The input differs every turn: a block that shows it is looked at prompt by prompt.
        self.reads = None if names is not None and "user_input" in names else _reader(names)


def _reads(prompt: BasePrompt) -> frozenset[str] | None:
    """Return the names a prompt depends on; a fence also depends on the session's key, which is no name."""
    return None if prompt.fence or any(_reads(child) is None for _, child in prompt.children) else prompt.reads


def _reader(names: Iterable[str] | None) -> Reader | None:
    """Return the function that gets the values of `names` from a view; None when it is not known what is read."""
    if names is None:
        return None
    ordered = sorted(names)
    if len(ordered) < 2:
        return lambda view: tuple([view[name] for name in ordered])
    return itemgetter(*ordered)


class Plan:
    """What is known about layers before any context.

    Args:
        places: Per message the prompts it is made of, with their paths.
        every: Every prompt of the tree, with its path.
        sizes: How the messages that no prompt makes give way.
    """

    __slots__ = ("blocks", "has_maximum", "selecting")

    def __init__(self, places: Mapping[str, _Placed], every: _Placed, sizes: Iterable[Size]) -> None:
        self.has_maximum = any(size.max is not None for size in (*sizes, *(prompt.size for _, prompt in every)))
        selecting: dict[int, tuple[str, ExamplesPrompt]] = {}
        for path, prompt in every:
            if isinstance(prompt, ExamplesPrompt) and type(prompt.selector) is not StaticSelector:
                selecting.setdefault(id(prompt), (path, prompt))
        self.selecting = tuple(selecting.values())
        """The prompts whose selector looks at the query, each once, with its path."""
        self.blocks = tuple(Block(name, prompts) for name, prompts in places.items())
