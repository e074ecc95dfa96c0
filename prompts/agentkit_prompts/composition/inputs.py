"""`Inputs`: the values of a context that something was rendered from, compared by identity."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter, is_
from typing import Any, NamedTuple

from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.prompt_context import PromptContext

__all__ = ["InputReader", "Inputs"]

_ATOMS = frozenset({str, int, float, bool, type(None)})


class Inputs(NamedTuple):
    """The values of a context that something was rendered from."""

    values: tuple[Any, ...]

    def are_same(self, earlier: Inputs | None) -> bool:
        """True if these are the same objects as earlier inputs; of kwargs and extras, the same names and values."""
        if earlier is None:
            return False
        for value, before in zip(self.values, earlier.values):  # noqa: B905 (of one reader, as many)
            if value is not before and not _is_same_dict(value, before):
                return False
        return True

    @property
    def can_change(self) -> bool:
        """True if some dict contains objects that can change without being replaced."""
        for value in self.values:
            if type(value) is ReadOnlyDict and not _ATOMS.issuperset(map(type, value.values())):
                return True
        return False


def _is_same_dict(value: object, before: object) -> bool:
    return (
        type(value) is ReadOnlyDict
        and type(before) is ReadOnlyDict
        and [*value] == [*before]
        and all(map(is_, value.values(), before.values()))
    )


class InputReader:
    """Reads the values of some names from a context; of the input, also its additional kwargs."""

    __slots__ = ("_get", "_is_single")

    def __init__(self, names: Collection[str]) -> None:
        if "user_input" in names:
            names = {*names, "additional_kwargs"}
        fields = sorted("user_input.additional_kwargs" if name == "additional_kwargs" else name for name in names)
        self._is_single = len(fields) == 1
        self._get = attrgetter(*fields) if fields else None

    def read(self, ctx: PromptContext) -> Inputs:
        """Return the values."""
        if self._get is None:
            return Inputs(())
        values = self._get(ctx)
        return Inputs((values,) if self._is_single else values)
