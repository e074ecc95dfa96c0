"""Inputs of a rendering: the values of a context that it was made from, compared by identity."""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import attrgetter, is_
from typing import TypeAlias

from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.prompt_context import PromptContext

__all__ = ["NO_INPUTS", "InputReader", "Inputs", "are_same", "input_reader", "lasting"]

Inputs: TypeAlias = tuple[object, ...]
"""The values of a context that something was rendered from."""
InputReader: TypeAlias = Callable[[PromptContext], Inputs]
"""Reads the inputs of a rendering from a context."""

NO_INPUTS: Inputs = ()
_ATOMS = frozenset({str, int, float, bool, type(None)})
_FIELDS = {"additional_kwargs": "user_input.additional_kwargs"}
"""Attributes of a context, for names that are not one."""


def input_reader(names: Collection[str] | None) -> InputReader:
    """Return the reader of the values of some names; for the input, of its additional kwargs, too.

    Args:
        names: Names of the context; None if a rendering depends on more than the context.
    """
    if names is None:
        return _never_the_same
    fields = {_FIELDS.get(name, name) for name in names}
    if "user_input" in fields:
        fields.add("user_input.additional_kwargs")
    if not fields:
        return lambda _: NO_INPUTS
    get = attrgetter(*sorted(fields))
    # An attrgetter of one name returns the value by itself.
    if len(fields) == 1:
        return lambda ctx: (get(ctx),)
    return get


def are_same(inputs: Inputs, earlier: Inputs) -> bool:
    """True if the inputs of one reader are the same objects; of kwargs and extras, the same names and values."""
    # The common case, in C: a session passes the same objects every turn.
    if all(map(is_, inputs, earlier)):
        return True
    return all(map(_is_same, inputs, earlier))


def lasting(inputs: Inputs) -> Inputs:
    """Return the inputs to compare the next turn with, which differ from all if an object in them can change."""
    for value in inputs:
        if type(value) is ReadOnlyDict and not _ATOMS.issuperset(map(type, value.values())):
            return tuple([object() for _ in inputs])
    return inputs


def _never_the_same(_: PromptContext) -> Inputs:
    """Return inputs that differ from all others, for a rendering that must be made again every turn."""
    return (object(),)


def _is_same(value: object, earlier: object) -> bool:
    """True for the same object, and for two dicts of the same names with the same objects."""
    if value is earlier:
        return True
    if type(value) is not ReadOnlyDict or type(earlier) is not ReadOnlyDict:
        return False
    return [*value] == [*earlier] and all(map(is_, value.values(), earlier.values()))
