"""`Inputs`: the values of a context that something was rendered from, compared by identity."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter, is_
from typing import Any, NamedTuple

from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.prompt_context import PromptContext

__all__ = ["UNKNOWN_INPUTS", "InputReader", "Inputs"]

_ATOMS = frozenset({str, int, float, bool, type(None)})
_FIELDS = {"additional_kwargs": "user_input.additional_kwargs"}
"""Attributes of a context, for names that are not one."""


class Inputs(NamedTuple):
    """The values of a context that something was rendered from."""

    values: tuple[Any, ...]
    can_be_found: bool = True
    """False if the rendering must be made again whatever the values are."""

    def are_same(self, earlier: Inputs) -> bool:
        """True if these are the same objects as the earlier inputs; of kwargs and extras, the same names and values."""
        if not self.can_be_found or not earlier.can_be_found:
            return False
        for value, before in zip(self.values, earlier.values):  # noqa: B905 (one reader has read both)
            if value is not before and not _is_same_dict(value, before):
                return False
        return True

    def lasting(self) -> Inputs:
        """Return the inputs to compare the next turn with: none if an object in them can change without a trace."""
        if any(map(_can_change, self.values)):
            return UNKNOWN_INPUTS
        return self


UNKNOWN_INPUTS = Inputs((), can_be_found=False)


def _is_same_dict(value: object, before: object) -> bool:
    return (
        type(value) is ReadOnlyDict
        and type(before) is ReadOnlyDict
        and [*value] == [*before]
        and all(map(is_, value.values(), before.values()))
    )


def _can_change(value: object) -> bool:
    """True for a dict with objects that can change without being replaced, such as an object of the developer."""
    return type(value) is ReadOnlyDict and not _ATOMS.issuperset(map(type, value.values()))


class InputReader:
    """Reads the values of some names from a context; for the input, its additional kwargs, too.

    Args:
        names: Names of the context; None if a rendering depends on more than the context.
    """

    __slots__ = ("_get", "_is_known", "_is_single")

    def __init__(self, names: Collection[str] | None) -> None:
        self._is_known = names is not None
        fields = {_FIELDS.get(name, name) for name in names or ()}
        if "user_input" in fields:
            fields.add("user_input.additional_kwargs")
        self._is_single = len(fields) == 1
        self._get = None
        if fields:
            self._get = attrgetter(*sorted(fields))

    def read(self, ctx: PromptContext) -> Inputs:
        """Return the values."""
        if not self._is_known:
            return UNKNOWN_INPUTS
        if self._get is None:
            return _NO_INPUTS
        values = self._get(ctx)
        # An attrgetter of one name returns the value by itself.
        if self._is_single:
            values = (values,)
        return Inputs(values)


_NO_INPUTS = Inputs(())
