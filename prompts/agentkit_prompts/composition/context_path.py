"""Paths into a context, such as `documents[3].text` or `additional_kwargs['a, b']`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["ABSENT", "KWARGS", "ContextPath", "parse_path"]

KWARGS = "additional_kwargs"
ABSENT: Final = object()
"""The value of a path that leads to nothing; None is a value."""
_STEP = re.compile(r"""\.?([^\W\d]\w*)|\[(\d+)\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")


class ContextPath(tuple[str | int, ...]):
    """The steps of a path: names of fields and keys, and indices."""

    __slots__ = ()

    @property
    def root(self) -> str:
        """The first name."""
        return str(self[0])

    def is_below(self, other: ContextPath) -> bool:
        """True if the other path leads to this value, or to one that contains it."""
        return self[: len(other)] == other

    def upto(self, length: int) -> ContextPath:
        """Return the first steps."""
        return ContextPath(self[:length])

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return the value at the path, or `ABSENT`; `names` has the value of each name of the context."""
        value: Any = names.get(self.root, ABSENT)
        for step in self[1:]:
            value = _inner(value, step)
        return value

    def __str__(self) -> str:
        text = self.root
        for step in self[1:]:
            is_name = isinstance(step, str) and step.isidentifier()
            text += f".{step}" if is_name else f"[{step!r}]"
        return text


def parse_path(text: str) -> ContextPath | None:
    """Return the path that a text writes, or None if it is not a path. Additional kwargs have two paths to them."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        name, index, key = match.groups()
        is_first_a_name = name is not None and text[0] != "."
        if (not steps and not is_first_a_name) or (steps and text[at] not in ".["):
            return None
        if name is not None:
            steps.append(name)
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(ast.literal_eval(key))
        at = match.end()
    if steps[:2] == ["user_input", KWARGS]:
        steps = steps[1:]
    if not steps:
        return None
    return ContextPath(steps)


def _inner(value: Any, step: str | int) -> Any:
    """Return the item or field `step` of a value, or `ABSENT`."""
    if isinstance(value, Mapping):
        return value.get(step, ABSENT)
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if isinstance(step, int):
        if not is_list or step >= len(value):
            return ABSENT
        return value[step]
    if step.startswith("_") or isinstance(value, Sequence):
        return ABSENT
    field = getattr(value, step, ABSENT)
    if callable(field):
        return ABSENT
    return field
