"""What is known about layers before any context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
        reads = [_reads(prompt) for _, prompt in prompts]
        self.steps: tuple[_Step, ...] = tuple(
            (path, prompt, _reader(names)) for (path, prompt), names in zip(prompts, reads, strict=True)
        )
        known = [names for names in reads if names is not None]
        self.reads = _reader(frozenset[str]().union(*known)) if len(known) == len(reads) else None


def _reads(prompt: BasePrompt) -> frozenset[str] | None:
    """Return the names a prompt depends on; a fence also depends on the session's key, which is no name."""
    return None if prompt.fence or any(_reads(child) is None for _, child in prompt.children) else prompt.reads


def _reader(names: Collection[str] | None) -> Reader | None:
    """Return the function that gets the values of `names` from a view.

    None when it is not known what is read, and for what shows the input, which differs every turn: there is nothing to
    look up.
    """
    if names is None or "user_input" in names:
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
